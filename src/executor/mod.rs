//! Runs the scheduler's steps on a model: the engine's side of
//! [`ModelExecutor`](playhouse_actors::ports::ModelExecutor).
//!
//! [`batch`] keeps what a request's steps have in common, [`runner`] computes a step, [`constraint`]
//! says which tokens may come, [`sampler`] makes tokens of logits, and [`factory`] holds what outlives every runner: weights and KV cache,
//! which [`kv_arena`] leases to one runner at a time.

mod batch;
mod constraint;
#[cfg(test)]
mod constraint_tests;
mod factory;
mod kv_arena;
#[cfg(test)]
mod many_requests_tests;
mod runner;
mod sampler;
#[cfg(test)]
mod supersede_tests;
#[cfg(test)]
mod tests;
mod threads;

pub(crate) use factory::RunnerFactory;
