//! The messages between actors: plain enums, one file for each receiver. Reading this folder is the
//! quickest way to learn the system.

pub mod detokenizer;
pub mod edge;
pub mod encoder_cache_manager;
pub mod encoder_worker;
pub mod input_processor;
pub mod kv_cache_manager;
pub mod ledger;
pub mod output_streamer;
pub mod role;
pub mod scheduler;
pub mod structured_output;
pub mod supervisor;
pub mod worker;

pub use detokenizer::DetokenizerMessage;
pub use edge::{Edge, Letter};
pub use encoder_cache_manager::EncoderCacheManagerMessage;
pub use encoder_worker::{EncoderOutcome, EncoderWorkerMessage};
pub use input_processor::InputProcessorMessage;
pub use kv_cache_manager::KvCacheManagerMessage;
pub use ledger::{LedgerMessage, StepFailure};
pub use output_streamer::OutputStreamerMessage;
pub use role::{Role, UnknownRole};
pub use scheduler::{CompiledGrammar, SchedulerMessage, SchedulerOrder};
pub use structured_output::StructuredOutputMessage;
pub use supervisor::SupervisorMessage;
pub use worker::{StepOutcome, WorkerMessage};
