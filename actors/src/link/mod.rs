//! The link between the front and an engine process. The front has the sockets, the ledger and the
//! text side. The engine process has the core, which plans and computes the steps. Both sides number and fence their messages as within one process, so the link may lose
//! any of them.

pub mod calls;
pub mod frames;
pub mod incoming;
pub mod outgoing;
pub mod parts;
pub mod peer;
pub mod process;
pub(crate) mod spare;

pub use peer::{LoadError, Loaded, Loading, Peer};
pub use process::{EngineLauncher, Exit, Launched, Process, ProcessState};
