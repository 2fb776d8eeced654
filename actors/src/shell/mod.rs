//! Actor shells, one file an actor: a message becomes a call into [`crate::logic`], its effects
//! become messages.

pub mod address;
mod canary;
#[cfg(feature = "chaos")]
pub mod chaos;
mod clients;
pub mod config;
pub mod context;
pub mod detokenizer;
mod device_thread;
pub mod directory;
mod door;
pub mod edges;
mod gate;
mod grammar_threads;
mod grammars;
mod ground_state;
mod hang_counts;
mod hold;
pub mod house;
pub mod input_processor;
pub mod kv_cache_manager;
pub mod ledger;
mod left_behind;
pub mod memory;
pub mod metrics;
mod monitored;
mod observers;
pub mod output_streamer;
mod pause;
mod profiled;
pub mod progress;
pub mod pulse;
pub mod scheduler;
pub mod sink;
pub mod slot;
mod spawn;
pub mod structured_output;
pub mod supervisor;
pub mod system;
pub mod text_jobs;
mod threads;
pub mod totals;
mod tree;
mod vault;
mod watchdog;
mod watched;
mod watched_steps;
pub mod worker;

pub use config::{DeviceMode, Supervision, SystemConfig};
pub use door::Submission;
pub use house::HouseView;
pub use memory::{ArrivingBody, Lease, MemoryBudget, MemoryError};
pub use pause::PauseMode;
pub use sink::{ChoiceStream, OutputDelta};
pub use system::{Health, Status, System, Unhealthy};
pub use text_jobs::{TextJobError, TextJobs};

pub use crate::message::Role;
