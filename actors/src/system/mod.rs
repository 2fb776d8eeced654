//! One actor system: the state that its actors share, its supervision tree, and the calls of its
//! owner: submit, pause, look, drain.

pub mod adapters;
mod canary;
pub(crate) mod carriers;
pub mod chaos;
pub mod clients;
pub mod config;
pub mod context;
mod draft_metrics;
pub mod edges;
mod engine_end;
pub(crate) mod engine_process;
pub mod gate;
pub mod grammars;
pub mod ground_state;
pub mod hold;
pub mod journal;
mod linked;
pub mod memory;
pub mod metrics;
pub mod observers;
mod part;
mod pause;
pub mod profiled;
mod running;
pub mod sink;
mod status;
mod submit;
pub mod text_jobs;
pub mod totals;
mod tree;
mod uplink;
pub mod vault;
mod view;
pub mod watched_steps;

pub use config::{DeviceMode, Supervision, SystemConfig};
pub use engine_end::{Core, EngineEnd, EngineOver};
pub use engine_process::EngineProcessView;
pub use journal::{Journal, JournalConfig, JournalError};
pub use memory::{ArrivingBody, Lease, MemoryBudget, MemoryError};
pub use pause::PauseMode;
pub use running::{Health, Status, System, Unhealthy};
pub use sink::{ChoiceStream, OutputDelta};
pub use submit::Submission;
pub use text_jobs::{TextJobError, TextJobs};
pub use view::SystemView;
