//! Engine processes in the simulator: some tasks with a device each, behind a link in memory that
//! carries the real frames. A process ends at any moment, and nothing of it is seen afterwards.

mod launcher;
mod life;
mod link;
mod observer;
mod process;

pub use self::launcher::{Engine, SimLauncher};
