//! The earlier processes of one engine. The next process adopts the KV cache that they left only
//! when they have ended: until then they may write there.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::timeout;

use crate::{
    fault::{Bug, planted},
    link::Process,
    logic::kv_cache::Adoption,
};

/// Longest wait for the end of a process that was killed.
const END_LIMIT: Duration = Duration::from_secs(2);

/// The earlier processes of one engine.
#[derive(Debug, Default)]
pub(super) struct Predecessors(Mutex<Past>);

#[derive(Debug, Default)]
struct Past {
    /// Those that may live.
    living: Vec<Arc<dyn Process>>,
    /// Whether the last one had a KV cache of its own, so that the tails in the other are old.
    was_apart: bool,
}

impl Predecessors {
    /// Waits for the end of all, for some time. Returns whether one of them ended because memory
    /// was used up, and all have ended.
    pub(super) async fn end(&self) -> bool {
        let processes = self.0.lock().living.clone();
        let mut is_out_of_memory = false;
        for process in processes {
            // A caller that stops waiting must not make one count as dead.
            if let Ok(exit) = timeout(END_LIMIT, process.ended()).await {
                is_out_of_memory |= exit.is_out_of_memory;
                self.0.lock().living.retain(|living| !Arc::ptr_eq(living, &process));
            }
        }
        is_out_of_memory && self.0.lock().living.is_empty()
    }

    /// Returns whether the last process has a KV cache of its own.
    pub(super) fn is_apart(&self) -> bool {
        self.0.lock().was_apart
    }

    /// Adds the process that is about to serve. Returns the part of their KV cache that it adopts.
    pub(super) fn succeed(&self, process: &Arc<dyn Process>) -> Adoption {
        let past = &mut *self.0.lock();
        let are_dead = past.living.is_empty() || planted(Bug::AdoptFromLiving);
        let adoption = match are_dead {
            false => Adoption::Nothing,
            true if past.was_apart => Adoption::Sealed,
            true => Adoption::All,
        };
        past.was_apart = !are_dead;
        past.living.push(Arc::clone(process));
        adoption
    }
}
