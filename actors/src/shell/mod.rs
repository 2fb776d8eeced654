//! Actor shells, one file an actor: a message becomes a call into [`crate::logic`], its effects
//! become messages.

pub mod config;
pub mod context;
pub mod detokenizer;
mod device_thread;
pub mod directory;
pub mod input_processor;
pub mod kv_cache_manager;
pub mod ledger;
pub mod metrics;
pub mod output_streamer;
pub mod scheduler;
pub mod sink;
pub mod supervisor;
pub mod system;
mod tree;
pub mod worker;

pub use config::SystemConfig;
pub use directory::Role;
pub use sink::{ChoiceStream, OutputDelta};
pub use system::{Health, Status, Submission, System};
