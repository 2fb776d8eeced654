//! Pure logic: deterministic, synchronous, free of clocks, I/O and unordered maps.

pub mod block_hash;
pub mod ids;
pub mod outputs;
pub mod request;
pub mod sampling_params;
pub mod scheduler_output;
pub mod stop;
