//! Starts engine processes: children that run this same program and have their link as standard
//! input. They end with this process, whatever ends it.

use std::{
    fmt,
    fs::File,
    io,
    os::{
        fd::OwnedFd,
        unix::{
            net::UnixStream as Socket,
            process::{CommandExt, ExitStatusExt},
        },
    },
    path::{Path, PathBuf},
    pin::Pin,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc,
        mpsc::{SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

#[cfg(target_os = "linux")]
use nix::{
    errno::Errno,
    sys::wait::{Id, WaitPidFlag, WaitStatus, waitid},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use parking_lot::Mutex;
use playhouse_actors::link::{EngineLauncher, Exit, Launched, Process, ProcessState};
use playhouse_kernels::EXIT_OUT_OF_MEMORY;
use tokio::{net::UnixStream, sync::watch};

use super::{child::COMMAND, kv_memory, memory};
use crate::files;

/// The load of a spare process waits for two or three steps of a slow model.
const SPARE_PAUSE: Duration = Duration::from_millis(300);

/// A child with the socket of its link, or the reason why there is none.
type Started = io::Result<(Child, Socket)>;

/// How engine processes are started.
#[derive(Debug, Clone, Default)]
pub(crate) struct HowToStart {
    /// The program that they run. `None`: this program.
    pub(crate) program: Option<PathBuf>,
    /// Whether a second one is kept waiting.
    pub(crate) keeps_spare: bool,
}

/// Starts engine processes with the same settings.
pub(super) struct ProcessLauncher {
    settings: Mutex<Vec<u8>>,
    keeps_spare: bool,
    /// The file in which a process leaves its KV cache to the next one.
    kept: Option<File>,
    /// The thread that starts processes. A child is killed when the thread that started it ends, so
    /// this thread lives as long as the launcher.
    starter: Mutex<SyncSender<SyncSender<Started>>>,
}

impl fmt::Debug for ProcessLauncher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessLauncher").finish_non_exhaustive()
    }
}

impl ProcessLauncher {
    /// Returns a launcher of processes with these settings.
    ///
    /// # Errors
    /// When the system provides no thread.
    pub(super) fn new(how: HowToStart, settings: Vec<u8>) -> io::Result<Self> {
        let HowToStart { program, keeps_spare } = how;
        let kept = kv_memory::create();
        let of_thread = kept.as_ref().map(File::try_clone).transpose()?;
        let (starter, orders) = sync_channel::<SyncSender<Started>>(1);
        let thread = thread::Builder::new().name("playhouse-starter".to_owned());
        thread.spawn(move || {
            for order in orders {
                if let Err(undelivered) = order.send(start(program.as_deref(), of_thread.as_ref()))
                {
                    abandon(undelivered.0);
                }
            }
        })?;
        let (settings, starter) = (Mutex::new(settings), Mutex::new(starter));
        Ok(Self { settings, keeps_spare, kept, starter })
    }

    /// Gives later processes other settings.
    pub(super) fn set_settings(&self, settings: Vec<u8>) {
        *self.settings.lock() = settings;
    }
}

impl EngineLauncher for ProcessLauncher {
    fn launch(&self) -> io::Result<Launched> {
        let gone = || io::Error::other("the thread that starts processes is gone");
        let (reply, started) = sync_channel(1);
        self.starter.lock().send(reply).map_err(|_| gone())?;
        let (child, socket) = started.recv().map_err(|_| gone())??;
        let process = ChildProcess::watch(child)?;
        let (reader, writer) = UnixStream::from_std(socket)?.into_split();
        let (reader, writer) = (Box::new(reader), Box::new(writer));
        let settings = self.settings.lock().clone();
        Ok(Launched { reader, writer, process: Arc::new(process), settings })
    }

    fn keeps_spare(&self) -> bool {
        self.keeps_spare
    }

    fn spare_pause(&self) -> Duration {
        SPARE_PAUSE
    }

    fn forget_kv_cache(&self) {
        self.kept.iter().for_each(kv_memory::free);
    }
}

/// Starts a child that waits for its settings. It gets the file `kept`.
fn start(program: Option<&Path>, kept: Option<&File>) -> Started {
    let (own, other) = Socket::pair()?;
    own.set_nonblocking(true)?;
    let program = program.map_or_else(files::this_program, |program| Ok(program.to_owned()))?;
    let kept = kept.map(File::try_clone).transpose()?;
    let child = Command::new(program)
        .arg0("playhouse")
        .arg(COMMAND)
        .stdin(Stdio::from(OwnedFd::from(other)))
        .stdout(kept.map_or_else(Stdio::null, Stdio::from))
        .spawn()?;
    Ok((child, own))
}

/// Ends a child that nothing waits for.
fn abandon(started: Started) {
    if let Ok((mut child, _)) = started {
        // A child that has ended need not be killed.
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// A child of this process.
#[derive(Debug)]
struct ChildProcess {
    pid: Pid,
    /// Whether the number still belongs to the child: the system gives it away after the wait.
    is_known: Arc<Mutex<bool>>,
    exit: watch::Receiver<Option<Exit>>,
}

impl ChildProcess {
    /// Waits for the child's end on a thread.
    fn watch(mut child: Child) -> io::Result<Self> {
        let pid = Pid::from_raw(child.id().try_into().map_err(io::Error::other)?);
        let is_known = Arc::new(Mutex::new(true));
        let (ended, exit) = watch::channel(None);
        let of_thread = Arc::clone(&is_known);
        let oom_kills = memory::oom_kills();
        let wait = move || {
            let status = end_of(&mut child, pid, &of_thread);
            let kills_now = memory::oom_kills();
            let is_oom_kill = kills_now > oom_kills;
            let is_kill = |status: &ExitStatus| status.signal() == Some(Signal::SIGKILL as i32);
            // A system that does not count may have ended it because a step needs memory.
            let is_from_outside =
                status.as_ref().is_ok_and(is_kill) && kills_now.is_some() && !is_oom_kill;
            let is_refused = |status: &ExitStatus| status.code() == Some(EXIT_OUT_OF_MEMORY.into());
            let is_out_of_memory = status
                .as_ref()
                .is_ok_and(|status| is_kill(status) && is_oom_kill || is_refused(status));
            let words = |status| words(status, is_oom_kill);
            let how = status.map_or_else(|error| error.to_string(), words);
            // Without a receiver, nothing asks.
            let _ = ended.send(Some(Exit { how, is_from_outside, is_out_of_memory }));
            // Only now: Linux may take seconds to take down the folder of a process in /proc.
            let _ = child.wait();
        };
        thread::Builder::new().name("playhouse-waiter".to_owned()).spawn(wait)?;
        Ok(Self { pid, is_known, exit })
    }
}

impl Process for ChildProcess {
    fn id(&self) -> u32 {
        self.pid.as_raw().unsigned_abs()
    }

    fn kill(&self) {
        let is_known = self.is_known.lock();
        if *is_known && let Err(error) = kill(self.pid, Signal::SIGKILL) {
            tracing::warn!(%error, pid = self.id(), "the engine process could not be killed");
        }
    }

    /// Asks the system for the child's state, and leaves it there for the next call. A look at the
    /// child's folder in /proc would make the end of the child slow.
    #[cfg(target_os = "linux")]
    fn state(&self) -> ProcessState {
        let is_known = self.is_known.lock();
        let flags = WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        match *is_known && matches!(waitid(Id::Pid(self.pid), flags), Ok(WaitStatus::Stopped(..))) {
            true => ProcessState::Stopped,
            false => ProcessState::Runs,
        }
    }

    /// This system does not tell of a stop.
    #[cfg(not(target_os = "linux"))]
    fn state(&self) -> ProcessState {
        ProcessState::Runs
    }

    fn ended(&self) -> Pin<Box<dyn Future<Output = Exit> + Send>> {
        let mut exit = self.exit.clone();
        Box::pin(async move {
            let unknown = || Exit {
                how: "its end is unknown".to_owned(),
                is_from_outside: false,
                is_out_of_memory: false,
            };
            match exit.wait_for(Option::is_some).await {
                Ok(exit) => exit.clone().unwrap_or_else(unknown),
                Err(_) => unknown(),
            }
        })
    }
}

/// Waits for the end of a child. Forgets its number before the system may give that to another
/// process: on Linux the child keeps it until it is waited for again.
#[cfg(target_os = "linux")]
fn end_of(child: &mut Child, pid: Pid, is_known: &Mutex<bool>) -> io::Result<ExitStatus> {
    let ended = loop {
        match waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT) {
            Err(Errno::EINTR) => {}
            ended => break ended,
        }
    };
    *is_known.lock() = false;
    match ended {
        Ok(WaitStatus::Exited(_, code)) => Ok(ExitStatus::from_raw((code & 0xff) << 8)),
        Ok(WaitStatus::Signaled(_, signal, _)) => Ok(ExitStatus::from_raw(signal as i32)),
        // The second wait learns of an error too, and of a signal without a name.
        Ok(_) | Err(_) => child.wait(),
    }
}

/// Waits for the end of a child. This system has no wait after which the child keeps its number.
#[cfg(not(target_os = "linux"))]
fn end_of(child: &mut Child, _: Pid, is_known: &Mutex<bool>) -> io::Result<ExitStatus> {
    let status = child.wait();
    *is_known.lock() = false;
    status
}

/// Returns how a process ended, in words. `is_oom_kill` says whether the system ended a process of
/// this control group because its memory was used up.
fn words(status: ExitStatus, is_oom_kill: bool) -> String {
    if let Some(number) = status.signal() {
        let name = Signal::try_from(number).map(|signal| signal.as_str().to_owned());
        let name = name.unwrap_or_else(|_| format!("signal {number}"));
        let is_kill = number == Signal::SIGKILL as i32;
        let meaning = if is_kill && is_oom_kill { " (the system is out of memory)" } else { "" };
        return format!("{name}{meaning}");
    }
    let code = status.code().unwrap_or_default();
    let meaning = match code {
        0 => " (its link was closed)",
        1 => " (it failed, see its log)",
        2 => " (its settings are invalid)",
        70 => " (its supervisors gave up)",
        71 => " (out of memory)",
        74 => " (a mapped file was cut)",
        76 => " (its link was broken)",
        101 => " (a panic)",
        _ => "",
    };
    format!("exit code {code}{meaning}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched(script: &str) -> ChildProcess {
        let child = Command::new("sh").args(["-c", script]).spawn().unwrap();
        ChildProcess::watch(child).unwrap()
    }

    async fn end(process: &ChildProcess) -> String {
        let ended = tokio::time::timeout(Duration::from_secs(30), process.ended());
        ended.await.unwrap().how
    }

    #[tokio::test]
    async fn ends_are_told_in_words() {
        for (script, expected) in [
            ("exit 0", "exit code 0 (its link was closed)"),
            ("exit 3", "exit code 3"),
            ("exit 71", "exit code 71 (out of memory)"),
            ("exit 76", "exit code 76 (its link was broken)"),
            ("kill -SEGV $$", "SIGSEGV"),
            ("kill -ABRT $$", "SIGABRT"),
        ] {
            assert_eq!(end(&watched(script)).await, expected, "{script}");
        }
        let sleeper = watched("sleep 60");
        sleeper.kill();
        assert_eq!(end(&sleeper).await, "SIGKILL");
        // The number may be another process's by now.
        sleeper.kill();
    }

    #[test]
    fn a_kill_of_the_system_is_told() {
        let killed = ExitStatus::from_raw(Signal::SIGKILL as i32);
        assert_eq!(words(killed, true), "SIGKILL (the system is out of memory)");
        let aborted = ExitStatus::from_raw(Signal::SIGABRT as i32);
        assert_eq!(words(aborted, true), "SIGABRT", "another process was killed");
    }

    #[tokio::test]
    #[cfg(target_os = "linux")]
    async fn a_stopped_process_is_seen() {
        let sleeper = watched("sleep 60");
        assert_eq!(sleeper.state(), ProcessState::Runs);
        kill(sleeper.pid, Signal::SIGSTOP).unwrap();
        while sleeper.state() != ProcessState::Stopped {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        sleeper.kill();
        assert_eq!(end(&sleeper).await, "SIGKILL");
    }
}
