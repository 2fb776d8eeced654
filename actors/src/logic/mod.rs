//! Pure logic: deterministic, synchronous, free of clocks, I/O and unordered maps.

pub mod admission;
pub mod allocation;
pub mod block_hash;
pub mod block_pool;
pub mod breaker;
pub mod encoder_cache;
pub mod ids;
pub mod input;
pub mod kv_cache;
pub mod ledger;
pub mod outputs;
pub mod poison;
pub mod quarantine;
pub mod request;
pub mod request_queue;
pub mod restart;
pub mod sampling_params;
pub mod scheduler;
pub mod scheduler_output;
pub mod seed;
pub mod sequence;
pub mod step_budget;
pub mod step_time;
pub mod stop;
pub mod text_stream;
