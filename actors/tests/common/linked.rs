//! An engine process without a process: the same link and the same two ends, on one runtime.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use playhouse_actors::{
    link::{EngineLauncher, Exit, Launched, Loading, Process, ProcessState},
    system::{Core, EngineEnd, EngineStart, EngineState, EngineView, System, SystemConfig},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf, duplex, split},
    sync::watch,
    task::AbortHandle,
};

use super::{
    FakeCodec, FakeFactory, FakeGrammars, Faults,
    kept::{FakeMemory, OfProcess},
    settings,
    wait::until,
};

/// Size of the link's buffers. Few frames fit, so a kill cuts most links within a frame.
const BUFFER_LEN: usize = 96;

/// Starts processes that share their faults.
#[derive(Debug)]
pub(crate) struct FakeLauncher {
    config: SystemConfig,
    info: playhouse_actors::ports::ModelInfo,
    faults: Arc<Faults>,
    pub(crate) processes: AtomicU32,
    /// Number of further processes that end before their model is loaded.
    pub(crate) broken: AtomicU64,
    /// Number of further processes that never say a word.
    pub(crate) mute: AtomicU64,
    pub(crate) keeps_spare: bool,
    /// The pause before a spare process is loaded, in milliseconds.
    pub(crate) spare_pause_ms: AtomicU64,
    /// Whether the system does not report the ends of processes.
    pub(crate) hides_ends: Arc<AtomicBool>,
    /// The memory in which processes leave their KV cache.
    pub(crate) kept: Arc<FakeMemory>,
    started: parking_lot::Mutex<Vec<Arc<FakeProcess>>>,
}

#[derive(Debug)]
pub(crate) struct FakeProcess {
    pub(crate) number: u32,
    is_dead: Arc<AtomicBool>,
    is_silent: Arc<AtomicBool>,
    is_stopped: AtomicBool,
    task: AbortHandle,
    exit: watch::Sender<Option<String>>,
    hides_end: Arc<AtomicBool>,
}

impl FakeProcess {
    /// Ends the process as a signal does, also within a frame.
    pub(crate) fn end(&self, how: &str) {
        if !self.is_dead.swap(true, Ordering::AcqRel) {
            self.task.abort();
            self.exit.send_replace(Some(how.to_owned()));
        }
    }

    /// Stops the process as SIGSTOP does: the system reports it, and it writes nothing.
    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
        self.freeze();
    }

    /// Lets the process write nothing more. It lives, and its link is open.
    pub(crate) fn freeze(&self) {
        self.is_silent.store(true, Ordering::Release);
    }
}

impl Process for FakeProcess {
    fn id(&self) -> u32 {
        self.number
    }

    fn kill(&self) {
        self.end("SIGKILL");
    }

    fn state(&self) -> ProcessState {
        match self.is_stopped.load(Ordering::Acquire) {
            true => ProcessState::Stopped,
            false => ProcessState::Runs,
        }
    }

    fn ended(&self) -> Pin<Box<dyn Future<Output = Exit> + Send>> {
        let mut exit = self.exit.subscribe();
        let hides_end = Arc::clone(&self.hides_end);
        Box::pin(async move {
            while hides_end.load(Ordering::Acquire) {
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
            let exit = exit.wait_for(Option::is_some).await;
            let how = exit.ok().and_then(|exit| exit.clone()).unwrap_or_default();
            let is_from_outside = how == "SIGKILL";
            let is_out_of_memory = how.contains("out of memory");
            Exit { how, is_from_outside, is_out_of_memory }
        })
    }
}

impl FakeLauncher {
    /// Returns the faults of its processes.
    pub(crate) fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Returns the same, to keep.
    pub(crate) fn shared_faults(&self) -> Arc<Faults> {
        Arc::clone(&self.faults)
    }

    /// Returns the last process that was started.
    pub(crate) fn process(&self) -> Arc<FakeProcess> {
        self.started.lock().last().unwrap().clone()
    }

    /// Returns the process with this number, once it was started.
    pub(crate) async fn numbered(&self, number: usize) -> Arc<FakeProcess> {
        let started = || self.started.lock().clone();
        let what = format!("process {number} is started");
        let started = until(&what, started, |started| started.len() >= number).await;
        Arc::clone(&started[number - 1])
    }
}

impl EngineLauncher for FakeLauncher {
    fn launch(&self) -> io::Result<Launched> {
        let (front, engine) = duplex(BUFFER_LEN);
        let is_dead = Arc::new(AtomicBool::new(false));
        let is_one_of = |further: &AtomicU64| {
            let fewer = |left: u64| left.checked_sub(1);
            further.fetch_update(Ordering::AcqRel, Ordering::Acquire, fewer).is_ok()
        };
        let is_silent = Arc::new(AtomicBool::new(is_one_of(&self.mute)));
        let (of_dead, of_silent) = (Arc::clone(&is_dead), Arc::clone(&is_silent));
        let mortal = Mortal { stream: engine, is_dead: of_dead, is_silent: of_silent };
        let (reader, writer) = split(mortal);
        let is_broken = is_one_of(&self.broken);
        let mut executors = FakeFactory::new(self.info.clone(), Arc::clone(&self.faults));
        let (memory, of_memory) = (Arc::clone(&self.kept), Arc::clone(&is_dead));
        executors.kept = Some(OfProcess { memory, is_dead: of_memory });
        let of_executors = Arc::clone(&executors.process);
        let core = Core {
            config: self.config.clone(),
            executors: Arc::new(executors),
            codec: Arc::new(FakeCodec(Arc::clone(&self.faults))),
            grammars: Arc::new(FakeGrammars(Arc::clone(&self.faults))),
        };
        let task = tokio::spawn(async move {
            let mut end = EngineEnd::new(Box::new(reader), Box::new(writer));
            if end.settings().await.is_ok() && !is_broken {
                let over = end.serve(b"facts".to_vec(), core).await;
                drop(over);
            }
        });
        let number = self.processes.fetch_add(1, Ordering::AcqRel) + 1;
        let (exit, _) = watch::channel(None);
        let (is_stopped, task_of) = (AtomicBool::new(false), task.abort_handle());
        let process = Arc::new(FakeProcess {
            number,
            is_dead,
            is_silent,
            is_stopped,
            task: task_of,
            exit,
            hides_end: Arc::clone(&self.hides_ends),
        });
        let _ = of_executors.set(Arc::clone(&process));
        *self.faults.process.lock() = Some(Arc::clone(&process));
        let of_end = Arc::clone(&process);
        tokio::spawn(async move {
            let _ = task.await;
            of_end.end("exit code 0");
        });
        self.started.lock().push(Arc::clone(&process));
        let (reader, writer) = split(front);
        let (reader, writer) = (Box::new(reader), Box::new(writer));
        Ok(Launched { reader, writer, process, settings: b"settings".to_vec() })
    }

    fn keeps_spare(&self) -> bool {
        self.keeps_spare
    }

    fn spare_pause(&self) -> Duration {
        Duration::from_millis(self.spare_pause_ms.load(Ordering::Relaxed))
    }

    fn forget_kv_cache(&self) {
        self.kept.lock().fill(0);
    }
}

/// The end of a process's stream, which breaks when the process ends.
struct Mortal {
    stream: DuplexStream,
    is_dead: Arc<AtomicBool>,
    is_silent: Arc<AtomicBool>,
}

impl Mortal {
    fn check(&self) -> io::Result<()> {
        match self.is_dead.load(Ordering::Acquire) {
            true => Err(io::ErrorKind::BrokenPipe.into()),
            false => Ok(()),
        }
    }
}

impl AsyncRead for Mortal {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Mortal {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        if self.is_silent.load(Ordering::Acquire) {
            // Nothing wakes it: a silent process is killed.
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Starts a front with the fake model in a fake process.
pub(crate) async fn spawn_linked(
    num_blocks: u32,
    change: impl FnOnce(&mut SystemConfig),
) -> (System, Arc<FakeLauncher>, Arc<Faults>) {
    spawn_with_spare(num_blocks, false, change).await
}

/// Returns a launcher that has started no process, and the settings.
pub(crate) fn launcher(
    num_blocks: u32,
    keeps_spare: bool,
    change: impl FnOnce(&mut SystemConfig),
) -> (SystemConfig, Arc<FakeLauncher>) {
    let (mut config, info) = settings(num_blocks);
    change(&mut config);
    let launcher = FakeLauncher {
        config: config.clone(),
        info,
        faults: Arc::default(),
        processes: AtomicU32::new(0),
        broken: AtomicU64::new(0),
        mute: AtomicU64::new(0),
        keeps_spare,
        spare_pause_ms: AtomicU64::new(0),
        hides_ends: Arc::default(),
        kept: Arc::default(),
        started: parking_lot::Mutex::default(),
    };
    (config, Arc::new(launcher))
}

/// Starts the same, and perhaps a spare process.
pub(crate) async fn spawn_with_spare(
    num_blocks: u32,
    keeps_spare: bool,
    change: impl FnOnce(&mut SystemConfig),
) -> (System, Arc<FakeLauncher>, Arc<Faults>) {
    let (config, launcher) = launcher(num_blocks, keeps_spare, change);
    let (info, faults) = (launcher.info.clone(), Arc::clone(&launcher.faults));
    let first = loaded(&launcher).await;
    let codec = Arc::new(FakeCodec(Arc::clone(&faults)));
    let system = System::spawn_front(config, info, codec, first, Vec::new(), 0).await.unwrap();
    system.ready().await.unwrap();
    (system, launcher, faults)
}

/// Starts a process and waits until its model is loaded.
async fn loaded(launcher: &Arc<FakeLauncher>) -> EngineStart {
    let loading = Loading::begin(&**launcher, launcher.config.hang_timeout).unwrap();
    let loaded = loading.loaded(|_| ()).await.unwrap();
    assert_eq!(loaded.facts, b"facts");
    (Arc::clone(launcher) as Arc<dyn EngineLauncher>, loaded)
}

/// Starts a front with several engines. Each has a launcher of its own.
pub(crate) async fn spawn_engines(
    count: usize,
    num_blocks: u32,
    change: impl Fn(&mut SystemConfig),
) -> (System, Vec<Arc<FakeLauncher>>) {
    spawn_engines_with(&vec![false; count], num_blocks, change).await
}

/// Starts the same. Those engines keep a spare process that `keep_spare` says, and it is ready.
pub(crate) async fn spawn_engines_with(
    keep_spare: &[bool],
    num_blocks: u32,
    change: impl Fn(&mut SystemConfig),
) -> (System, Vec<Arc<FakeLauncher>>) {
    let launcher = |keeps_spare: &bool| launcher(num_blocks, *keeps_spare, &change);
    let all: Vec<_> = keep_spare.iter().map(launcher).collect();
    let (config, first) = all[0].clone();
    let mut starts = Vec::new();
    for (_, launcher) in &all {
        starts.push(loaded(launcher).await);
    }
    let others = starts.split_off(1);
    let codec = Arc::new(FakeCodec(Arc::clone(&first.faults)));
    let info = first.info.clone();
    let first = starts.remove(0);
    let system = System::spawn_front(config, info, codec, first, others, 0).await.unwrap();
    system.ready().await.unwrap();
    let are_up = |engines: &Vec<EngineView>| {
        let is_up = |(engine, (_, launcher)): (&EngineView, &(_, Arc<FakeLauncher>))| {
            engine.state != EngineState::Restarting
                && engine.process.is_spare_ready == launcher.keeps_spare
        };
        engines.iter().zip(&all).all(is_up)
    };
    until("all engines and spare processes are up", || system.engines(), are_up).await;
    (system, all.into_iter().map(|(_, launcher)| launcher).collect())
}
