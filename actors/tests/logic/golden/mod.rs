//! Behaviour of vLLM's scheduler in the same situations, one file for each of its test files.

mod adapters;
mod cohort;
mod drafts;
mod encoder_budget;
mod hybrid;
mod pause;
mod preemption;
mod prefix_caching;
mod priority;
mod reset_prefix_cache;
mod scheduler;
mod shares;
mod stop;
mod structured_output;
mod token_budget;
