//! Faults on purpose in the engine process.

use std::time::Duration;

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use playhouse_actors::{link::frames::Fault, logic::request::ids::EngineIndex};

use crate::engine::Engine;

/// Pause before a signal is sent again.
const REPEAT_PAUSE: Duration = Duration::from_millis(5);
/// Largest number of these repetitions.
const REPEATS_MAX: usize = 200;

/// A way to end the engine process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessStrike {
    /// A signal: SIGKILL, SIGSEGV, SIGABRT or SIGSTOP.
    Signal(&'static str),
    /// An exit with code 3.
    Exit,
    /// Bytes on the link that are no frame.
    Garbage,
    /// All threads of its runtime are blocked for ever.
    Wedge,
}

impl ProcessStrike {
    /// All ways.
    pub const ALL: [Self; 7] = [
        Self::Signal("SIGKILL"),
        Self::Signal("SIGSEGV"),
        Self::Signal("SIGABRT"),
        Self::Signal("SIGSTOP"),
        Self::Exit,
        Self::Garbage,
        Self::Wedge,
    ];

    /// Returns the name in the chaos interface.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Signal(name) => name,
            Self::Exit => "exit",
            Self::Garbage => "garbage",
            Self::Wedge => "wedge",
        }
    }
}

impl Engine {
    /// Strikes the process of an engine. Returns its number, or `None` if there is none now.
    #[must_use]
    pub async fn strike_process(&self, engine: EngineIndex, how: ProcessStrike) -> Option<u32> {
        let running = || self.engines().get(engine.0).and_then(|engine| engine.process.pid);
        let pid = running()?;
        let fault = match how {
            ProcessStrike::Signal(name) => {
                let signal: Signal = name.parse().ok()?;
                let to = Pid::from_raw(i32::try_from(pid).ok()?);
                kill(to, signal).ok()?;
                // Rust's own handler takes the first SIGSEGV, and expects that the fault repeats.
                let is_fault = signal == Signal::SIGSEGV;
                for _ in 0..if is_fault { REPEATS_MAX } else { 0 } {
                    tokio::time::sleep(REPEAT_PAUSE).await;
                    if running() != Some(pid) || kill(to, signal).is_err() {
                        break;
                    }
                }
                return Some(pid);
            }
            ProcessStrike::Exit => Fault::Exit(3),
            ProcessStrike::Garbage => Fault::Garbage,
            ProcessStrike::Wedge => Fault::Wedge,
        };
        self.chaos().engine_process_of(engine, fault).then_some(pid)
    }
}
