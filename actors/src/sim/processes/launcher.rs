//! Starts the simulated processes of one engine.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    io::{duplex, split},
    time::sleep,
};

use super::{life::Life, link::LinkEnd, observer::ProcessObserver, process::SimProcess};
use crate::{
    link::{EngineLauncher, Launched, Process},
    sim::{
        checker::Checker,
        device::{Device, EngineDevice, Factory, Parts},
        faults::{FaultPlan, LoadFault, ProcessFault},
        record::Record,
        vocabulary::Vocabulary,
        workload::{EnginesPlan, Workload},
    },
    system::{Core, EngineEnd, SystemConfig},
};

/// The facts about an engine that all of its processes share.
#[derive(Debug)]
pub struct Engine {
    /// Its place among the engines.
    pub engine: usize,
    /// The actors' settings.
    pub config: SystemConfig,
    /// The run's workload.
    pub workload: Arc<Workload>,
    /// The engine processes of the run.
    pub engines: EnginesPlan,
    /// The run's faults.
    pub plan: FaultPlan,
    /// The device.
    pub device: Arc<EngineDevice>,
    /// The checker of all engines.
    pub checker: Arc<Checker>,
    /// The run's record.
    pub record: Arc<Record>,
}

/// Starts the processes of one engine.
#[derive(Debug)]
pub struct SimLauncher {
    of: Engine,
    num_started: AtomicU32,
    num_faults: AtomicU64,
    /// Whether all faults are over.
    is_calm: AtomicBool,
    /// The processes that may live.
    processes: Mutex<Vec<Arc<SimProcess>>>,
}

impl SimLauncher {
    /// Returns the launcher of an engine.
    #[must_use]
    pub fn new(of: Engine) -> Arc<Self> {
        Arc::new(Self {
            of,
            num_started: AtomicU32::new(0),
            num_faults: AtomicU64::new(0),
            is_calm: AtomicBool::new(false),
            processes: Mutex::default(),
        })
    }

    /// Returns the number of processes that were started.
    pub fn num_started(&self) -> u32 {
        self.num_started.load(Ordering::Relaxed)
    }

    /// Returns the number of faults of processes so far.
    pub fn num_faults(&self) -> u64 {
        self.num_faults.load(Ordering::Relaxed)
    }

    /// Ends all faults: those of processes that will be started, too.
    pub fn calm(&self) {
        self.is_calm.store(true, Ordering::Relaxed);
    }

    /// Makes a fault of the process that serves, or with `is_at_newest` of the newest one, which
    /// may be a spare process or load its model. Returns whether it is a fault that the process
    /// itself has to make.
    pub fn strike(&self, fault: ProcessFault, is_at_newest: bool) -> bool {
        let processes = self.processes.lock();
        let serves = |process: &&Arc<SimProcess>| process.life.serves() && !is_at_newest;
        let struck = processes.iter().rev().find(serves).or(processes.last()).cloned();
        drop(processes);
        let Some(process) = struck.filter(|_| !self.is_calm.load(Ordering::Relaxed)) else {
            return false;
        };
        self.trouble();
        let (engine, number) = (self.of.engine, process.number);
        self.of.record.explain(|| format!("process {number} of engine {engine}: {fault:?}"));
        self.of.record.note("process fault", &[engine as u64, u64::from(number)]);
        process.strike(fault);
        fault == ProcessFault::Garbage
    }

    fn trouble(&self) {
        self.num_faults.fetch_add(1, Ordering::Relaxed);
        self.of.record.trouble();
    }

    fn load_fault(&self, number: u32) -> Option<LoadFault> {
        let fault = self.of.plan.processes.loads.get(&(self.of.engine, number)).copied();
        let fault = fault.filter(|_| !self.is_calm.load(Ordering::Relaxed))?;
        self.trouble();
        self.of
            .record
            .explain(|| format!("engine {}, process {number}: {fault:?}", self.of.engine));
        Some(fault)
    }

    /// Returns the parts of a process's core.
    fn core(&self, process: &Arc<SimProcess>) -> Core {
        let dying = Arc::downgrade(process);
        let death = move |is_from_outside| {
            if let Some(process) = dying.upgrade() {
                let fault = if is_from_outside { ProcessFault::Kill } else { ProcessFault::Crash };
                process.strike(fault);
            }
        };
        let parts = Parts {
            death: Some(Arc::new(death)),
            is_poison_deadly: self.of.engines.is_poison_deadly,
            ..Parts::new(&self.of.workload, &self.of.record)
        };
        let grammars = Arc::clone(&parts.grammars);
        let executors = Arc::new(Factory::new(Arc::clone(&process.device), parts));
        Core { config: self.of.config.clone(), executors, codec: Arc::new(Vocabulary), grammars }
    }
}

impl EngineLauncher for SimLauncher {
    fn launch(&self) -> io::Result<Launched> {
        let number = self.num_started.fetch_add(1, Ordering::Relaxed) + 1;
        let fault = self.load_fault(number);
        self.of.record.note("launch", &[self.of.engine as u64, u64::from(number)]);
        if fault == Some(LoadFault::NotStarted) {
            return Err(io::Error::other("planned: there is no process"));
        }
        let (front, engine) = duplex(self.of.engines.link_len);
        let (life, device) = (Arc::<Life>::default(), Device::new(&self.of.device));
        let process = SimProcess::new(number, Arc::clone(&life), device);
        if fault == Some(LoadFault::IsMute) {
            life.set_silent(true);
        }
        let (reader, writer) = split(LinkEnd::new(engine, Arc::clone(&life)));
        let core = self.core(&process);
        let (plan, engine) = (self.of.plan.clone(), self.of.engine);
        let observer = ProcessObserver::new(Arc::clone(&self.of.checker), engine, number, life);
        let is_calm = self.is_calm.load(Ordering::Relaxed);
        let load_time = self.of.engines.load_time;
        let task = tokio::spawn(async move {
            let mut end = EngineEnd::new(Box::new(reader), Box::new(writer));
            end.set_begin(move |chaos| {
                observer.begin();
                chaos.set_observer(Arc::new(observer));
                if !is_calm {
                    plan.begin_process(chaos, engine, number);
                }
            });
            run(end, core, load_time, fault).await;
        });
        process.set_task(task.abort_handle());
        let ending = Arc::clone(&process);
        drop(tokio::spawn(async move {
            // A task that was aborted has ended its process before.
            let _ = task.await;
            ending.end("exit code 1");
        }));
        let mut processes = self.processes.lock();
        processes.retain(|process| !process.life.is_dead());
        processes.push(Arc::clone(&process));
        drop(processes);
        let (reader, writer) = split(front);
        let (reader, writer) = (Box::new(reader), Box::new(writer));
        let process: Arc<dyn Process> = Arc::new(process);
        Ok(Launched { reader, writer, process, settings: Vec::new() })
    }

    fn keeps_spare(&self) -> bool {
        self.of.engines.spares.get(self.of.engine).copied().unwrap_or_default()
    }

    fn forget_kv_cache(&self) {
        self.of.device.forget_kv_cache();
    }
}

/// Runs a process to its end.
async fn run(mut end: EngineEnd, core: Core, load_time: Duration, fault: Option<LoadFault>) {
    if end.settings().await.is_err() {
        return;
    }
    let load_time = if fault == Some(LoadFault::Dies) { load_time / 2 } else { load_time };
    if end.while_loading(sleep(load_time)).await.is_err() {
        return;
    }
    match fault {
        Some(LoadFault::Dies) => {}
        Some(LoadFault::Refuses) => end.failed("planned: there is no model".to_owned()).await,
        _ => drop(end.serve(Vec::new(), core).await),
    }
}
