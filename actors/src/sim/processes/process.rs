//! One simulated process.

use std::{
    pin::Pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{sync::watch, task::AbortHandle, time::sleep};

use super::life::Life;
use crate::{
    link::{Exit, Process, ProcessState},
    sim::{device::Device, faults::ProcessFault},
};

/// Time after its kill at which a process ends that is held up. Longer than any wait for its end.
const LATE: Duration = Duration::from_secs(5);

const KILLED: &str = "SIGKILL";
const OUT_OF_MEMORY: &str = "out of memory";

/// A process of the simulator: some tasks, and a device.
#[derive(Debug)]
pub(super) struct SimProcess {
    pub(super) number: u32,
    pub(super) life: Arc<Life>,
    pub(super) device: Arc<Device>,
    task: OnceLock<AbortHandle>,
    exit: watch::Sender<Option<&'static str>>,
    is_stopped: AtomicBool,
    is_frozen: AtomicBool,
    ends_late: AtomicBool,
}

impl SimProcess {
    pub(super) fn new(number: u32, life: Arc<Life>, device: Arc<Device>) -> Arc<Self> {
        let (exit, _) = watch::channel(None);
        let [is_stopped, is_frozen, ends_late] = [(); 3].map(|()| AtomicBool::new(false));
        let task = OnceLock::new();
        Arc::new(Self { number, life, device, task, exit, is_stopped, is_frozen, ends_late })
    }

    /// Sets the task of the process. It is aborted with the process.
    pub(super) fn set_task(&self, task: AbortHandle) {
        if self.life.is_dead() {
            task.abort();
        }
        let _ = self.task.set(task);
    }

    /// Ends the process, also within a frame. Its tasks write nothing from now on.
    pub(super) fn end(&self, how: &'static str) {
        if self.life.end() {
            self.device.end();
            if let Some(task) = self.task.get() {
                task.abort();
            }
            self.exit.send_replace(Some(how));
        }
    }

    /// Makes a fault, other than garbage, which the process writes itself.
    pub(super) fn strike(self: &Arc<Self>, fault: ProcessFault) {
        match fault {
            ProcessFault::Kill => self.end(KILLED),
            ProcessFault::Crash => self.end("SIGSEGV"),
            ProcessFault::OutOfMemory => self.end(OUT_OF_MEMORY),
            ProcessFault::Stop => {
                self.is_stopped.store(true, Ordering::Relaxed);
                self.freeze();
            }
            ProcessFault::Pause(time) => self.pause(time),
            ProcessFault::Hang => self.freeze(),
            ProcessFault::EndLate => {
                self.ends_late.store(true, Ordering::Relaxed);
                self.life.set_silent(true);
            }
            ProcessFault::FlipBit { is_to_front, place } => self.life.flip(is_to_front, place),
            ProcessFault::Slow { delay, time } => self.life.slow_down(delay, time),
            ProcessFault::Garbage => {}
        }
    }

    /// Lets nothing in the process go on. Only a kill ends this.
    fn freeze(&self) {
        self.is_frozen.store(true, Ordering::Relaxed);
        self.life.set_silent(true);
        self.device.end();
    }

    fn pause(self: &Arc<Self>, time: Duration) {
        self.is_stopped.store(true, Ordering::Relaxed);
        self.life.set_silent(true);
        let process = Arc::clone(self);
        drop(tokio::spawn(async move {
            sleep(time).await;
            if !process.is_frozen.load(Ordering::Relaxed) {
                process.is_stopped.store(false, Ordering::Relaxed);
                process.life.set_silent(false);
            }
        }));
    }
}

impl Process for Arc<SimProcess> {
    fn id(&self) -> u32 {
        self.number
    }

    fn kill(&self) {
        if !self.ends_late.load(Ordering::Relaxed) {
            return self.end(KILLED);
        }
        let process = Self::clone(self);
        drop(tokio::spawn(async move {
            sleep(LATE).await;
            process.end(KILLED);
        }));
    }

    fn state(&self) -> ProcessState {
        match self.is_stopped.load(Ordering::Relaxed) {
            true => ProcessState::Stopped,
            false => ProcessState::Runs,
        }
    }

    fn ended(&self) -> Pin<Box<dyn Future<Output = Exit> + Send>> {
        let mut exit = self.exit.subscribe();
        Box::pin(async move {
            let exit = exit.wait_for(Option::is_some).await;
            let how = exit.ok().and_then(|exit| *exit).unwrap_or_default();
            Exit {
                how: how.to_owned(),
                is_from_outside: how == KILLED,
                is_out_of_memory: how == OUT_OF_MEMORY,
            }
        })
    }
}
