//! Pure logic: deterministic, synchronous, free of clocks, I/O and unordered maps.

pub mod allocation;
pub mod block_hash;
pub mod block_pool;
pub mod encoder_cache;
pub mod ids;
pub mod kv_cache;
pub mod outputs;
pub mod request;
pub mod request_queue;
pub mod sampling_params;
pub mod scheduler;
pub mod scheduler_output;
pub mod stop;
