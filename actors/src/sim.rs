//! The simulator: the real actors, in simulated time, under seeded faults.
//!
//! A run is a function of its seed: the engine's settings, the clients' requests and how they read,
//! the operator's orders, and the faults ([`workload`], [`faults`]). It uses a current-thread
//! runtime with a paused clock. So waiting costs nothing, and every run of a seed is the same run.
//! The model is fake, but strict ([`device`]): its next token depends on the whole history, and it
//! reads all KV that attention would read.
//!
//! The seed also says which processes there are ([`world`]). In three runs of four, all actors are
//! in one process. In the others, one to three engines have [`processes`] of their own, behind
//! links in memory that carry the real frames. In one run of twelve there is a journal, the whole
//! system dies once or twice, and the next one starts from the journal's disk.
//!
//! [`checker`] checks invariants after each step, [`client`] compares streams with an [`oracle`],
//! and [`run()`] looks for leaks at the end. After the faults of most runs have ended, each request
//! must end within a bound that the checker computes. [`crate::fault::Bug`] lists bugs that the
//! simulator must find. `playhouse-sim --seed N --trace` shows a run.

pub mod adapter;
mod blocks;
pub mod checker;
pub mod client;
pub mod device;
pub mod faults;
pub mod grammar;
mod liveness;
mod lives;
pub mod media;
pub mod memory;
pub mod model;
pub mod oracle;
pub mod outcome;
pub mod processes;
pub mod record;
pub mod regressions;
pub mod rng;
pub mod run;
pub mod sweep;
pub mod vocabulary;
pub mod workload;
pub mod world;

pub use self::{
    regressions::REGRESSIONS,
    run::{Options, Outcome, run},
    sweep::{Sweep, explain, replay_command, sweep},
};
