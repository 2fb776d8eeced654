//! Pure logic: deterministic, synchronous, free of clocks, I/O and unordered maps.

pub mod ids;
pub mod input;
pub mod ledger;
pub mod outputs;
pub mod request;
pub mod restart;
pub mod sampling_params;
pub mod scheduler_output;
pub mod seed;
pub mod stop;
pub mod text_stream;
