//! The simulator: the real actors, in simulated time, under seeded faults.
//!
//! A run is a function of its seed: the engine's settings, the clients' requests and how they read,
//! the operator's orders, and the faults ([`workload`], [`faults`]). It uses a current-thread
//! runtime with a paused clock. So waiting costs nothing, and every run of a seed is the same run.
//! The model is fake, but strict ([`device`]): its next token depends on the whole history, and it
//! reads all KV that attention would read.
//!
//! [`checker`] checks invariants after each step, [`client`] compares streams with an [`oracle`],
//! and [`run()`] looks for leaks at the end. [`crate::fault::Bug`] lists bugs that the simulator
//! must find. `playhouse-sim --seed N --trace` shows a run.

pub mod adapter;
mod blocks;
pub mod checker;
pub mod client;
pub mod device;
pub mod faults;
pub mod grammar;
pub mod media;
pub mod memory;
pub mod model;
pub mod oracle;
pub mod record;
pub mod regressions;
pub mod rng;
pub mod run;
pub mod sweep;
pub mod vocabulary;
pub mod workload;

pub use self::{
    regressions::REGRESSIONS,
    run::{Options, Outcome, run},
    sweep::{Sweep, explain, replay_command, sweep},
};
