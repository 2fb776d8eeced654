//! The simulator: the real actors, in simulated time, under seeded faults.
//!
//! A run is a function of its seed: an engine, what its clients ask and how they read, what an
//! operator does, and what goes wrong ([`workload`], [`faults`]). It happens on a current-thread
//! runtime whose clock is paused, so that waiting costs nothing and every run of a seed is the same
//! run. The model is fake, but strict ([`device`]): its next token depends on the whole history,
//! and it reads back all KV that attention would read.
//!
//! [`checker`] holds invariants after each step, [`client`] holds streams against an [`oracle`],
//! and [`run()`] looks for leaks at the end. [`crate::fault::Bug`] lists mistakes that it must
//! find. `playhouse-sim --seed N --trace` shows a run.

mod blocks;
pub mod checker;
pub mod client;
pub mod device;
pub mod faults;
pub mod grammar;
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
