//! Actor shells, one file an actor, and the threads that actors own. A message becomes a call into
//! [`crate::logic`], and its effects become messages.

mod adapter_threads;
pub mod detokenizer;
mod device_thread;
pub mod encoder_cache_manager;
mod encoder_thread;
pub mod encoder_worker;
pub mod engine_process;
mod grammar_threads;
pub mod input_processor;
pub mod kv_cache_manager;
pub mod ledger;
pub mod output_streamer;
mod recorded_scheduler;
pub mod scheduler;
pub mod structured_output;
mod thread_ends;
pub mod worker;
