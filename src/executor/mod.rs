//! Runs the scheduler's steps on a model: the engine's side of
//! [`ModelExecutor`](playhouse_actors::ports::ModelExecutor).
//!
//! [`batch`] keeps the state of requests between steps, and [`runner`] computes a step.
//! [`constraint`] limits the next tokens, and [`sampler`] turns logits into tokens. [`drafters`]
//! guess tokens that a step verifies. [`encoder`] encodes images and sounds, and [`media`] puts
//! them into steps. [`factory`] holds the state that outlives every runner:
//! weights and KV cache. [`kv_arena`] leases the cache to one runner at a time, and [`kept`]
//! lets it outlive an engine process. A GPU begins with
//! [`warm_up`], whose measurements [`tuned_products`] keeps.

mod adapters;
mod batch;
mod constraint;
#[cfg(test)]
mod constraint_tests;
mod drafters;
mod encoder;
mod encoder_connector;
mod factory;
mod kept;
mod kv_arena;
#[cfg(test)]
mod many_requests_tests;
mod media;
mod runner;
mod sampler;
mod short_context;
#[cfg(test)]
#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod step_graph_tests;
#[cfg(test)]
mod supersede_tests;
#[cfg(test)]
mod tests;
mod threads;
mod tuned_products;
mod warm_up;
mod whole_prompts;

pub(crate) use adapters::AdapterStore;
pub(crate) use drafters::{DraftMethod, DraftSettings, RecordedGuesses};
pub(crate) use encoder_connector::{DiskConnector, EncoderExchange};
pub(crate) use factory::{DraftWeights, RunnerFactory};
pub(crate) use kept::KeptFile;
pub(crate) use kv_arena::KvSettings;
pub(crate) use runner::{Constraints, cut_of_joined};
pub(crate) use threads::ComputeThreads;
pub(crate) use warm_up::warm_up;

use playhouse_actors::ports::ExecuteError;
use playhouse_kernels::KernelError;

/// Returns a kernel's error in the form that the actors receive.
fn execute_error(error: KernelError) -> ExecuteError {
    match error {
        KernelError::OutOfMemory { .. } | KernelError::Device { is_out_of_memory: true, .. } => {
            ExecuteError::OutOfMemory(error.to_string())
        }
        KernelError::Device { why, .. } => ExecuteError::Device(why),
        _ => ExecuteError::Device(error.to_string()),
    }
}

#[cfg(test)]
mod error_tests {
    use super::*;

    #[test]
    fn only_memory_that_ran_out_makes_a_step_smaller() {
        let device = |is_out_of_memory| KernelError::Device { why: "x".into(), is_out_of_memory };
        let host = KernelError::OutOfMemory { what: "KV cache", bytes: 1 };
        for error in [device(true), host] {
            assert!(matches!(execute_error(error), ExecuteError::OutOfMemory(_)));
        }
        assert_eq!(execute_error(device(false)), ExecuteError::Device("x".into()));
    }
}
