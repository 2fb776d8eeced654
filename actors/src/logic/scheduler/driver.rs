//! Joins the scheduler and the KV cache manager without actors, for tests and benches.

use super::{Scheduled, Scheduler};
use crate::{
    error::ActorError,
    logic::{kv_cache::KvCacheManager, request::ids::Micros},
};

/// Plans one step and returns it.
///
/// # Errors
/// [`ActorError::Invariant`] if the two disagree, or if the last step is still in flight.
pub fn schedule(
    scheduler: &mut Scheduler,
    kv_cache: &mut KvCacheManager,
    now: Micros,
) -> Result<Scheduled, ActorError> {
    scheduler.begin_step(now)?;
    while let Some(plan) = scheduler.next_plan() {
        let allocation = kv_cache.execute(&plan);
        scheduler.apply(allocation.map_err(|error| ActorError::Invariant(error.to_string()))?)?;
    }
    scheduler.finish_step()
}
