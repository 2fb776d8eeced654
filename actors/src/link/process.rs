//! The needs of a link from outside: a process at its other end.

use std::{fmt, future::Future, io, pin::Pin, sync::Arc, time::Duration};

use super::{incoming::Reader, outgoing::Writer};

/// Starts engine processes. Each has a link of its own.
pub trait EngineLauncher: fmt::Debug + Send + Sync + 'static {
    /// Starts a process. It loads its model when it gets the settings.
    ///
    /// # Errors
    /// When the system starts none.
    fn launch(&self) -> io::Result<Launched>;

    /// Returns whether a second process is kept waiting, with its model loaded.
    fn keeps_spare(&self) -> bool {
        false
    }

    /// Returns how long the load of a second process waits. It would take the processor while the
    /// first one catches up with the steps of a process that has ended.
    fn spare_pause(&self) -> Duration {
        Duration::ZERO
    }

    /// Frees the memory in which processes leave their KV cache. No process that may use it lives.
    fn forget_kv_cache(&self) {}
}

/// A process that was started.
pub struct Launched {
    /// The bytes from the process.
    pub reader: Reader,
    /// The bytes to the process.
    pub writer: Writer,
    /// The process.
    pub process: Arc<dyn Process>,
    /// The settings that it loads its model with, in the program's own format.
    pub settings: Vec<u8>,
}

/// A process at the other end of a link.
pub trait Process: fmt::Debug + Send + Sync + 'static {
    /// Returns the system's number of the process.
    fn id(&self) -> u32;

    /// Ends the process at once, whatever it does. This has no effect on an ended process.
    fn kill(&self);

    /// Returns the state of the process, as far as the system reports it.
    fn state(&self) -> ProcessState;

    /// Waits for the end of the process.
    fn ended(&self) -> Pin<Box<dyn Future<Output = Exit> + Send>>;
}

/// The state of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessState {
    /// It runs, or may run.
    Runs,
    /// A signal has stopped it.
    Stopped,
}

/// The end of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    /// In words: its exit code or its signal, by name.
    pub how: String,
    /// Whether another process has ended it, so that no step can be the cause.
    pub is_from_outside: bool,
    /// Whether it ended because memory was used up.
    pub is_out_of_memory: bool,
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.how)
    }
}
