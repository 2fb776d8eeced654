//! Pure logic: deterministic, synchronous, free of clocks, I/O and unordered maps.

pub mod adapter_slots;
pub mod admission;
pub mod drafts;
pub mod encoder_cache;
pub mod grammar_jobs;
pub mod input;
pub mod journal;
pub mod kv_cache;
pub mod ledger;
pub mod load_balancer;
pub mod memory;
pub mod observe;
pub mod planted;
pub mod recording;
pub mod recovery;
pub mod request;
pub mod scheduler;
pub mod text;
