//! Puts responses into the store.

use std::sync::Arc;

use super::{
    items::Items,
    response::{Asked, Response},
    store::{Owner, ResponseStore},
    stored::{Stored, Turn, stored_bytes},
    weight::Weight,
};
use crate::server::{
    http::error::ApiError,
    memory::{RequestMemory, json::json_bytes},
};

/// Events of one response that show it in full.
const EVENTS_IN_FULL: usize = 3;

/// Puts one response into the store, with the items that it answers.
pub(super) struct Keeper {
    pub(super) store: Arc<ResponseStore>,
    pub(super) owner: Owner,
    /// The turns before the response.
    pub(super) history: Vec<Arc<Turn>>,
    pub(super) input: Arc<Items>,
    pub(super) memory: RequestMemory,
    /// Present for a response in the background.
    pub(super) weight: Option<Weight>,
}

impl Keeper {
    /// Leases memory for events that repeat the request. Reserves room in the store for a response
    /// in the background.
    pub(super) async fn reserve(
        &mut self,
        asked: &Asked,
        is_streamed: bool,
    ) -> Result<(), ApiError> {
        if is_streamed {
            self.memory.grow(json_bytes(asked).saturating_mul(EVENTS_IN_FULL)).await?;
        }
        if asked.background {
            let bytes = stored_bytes(asked, &self.history, &self.input);
            self.weight = Some(self.store.reserve(bytes, self.memory.lease())?);
        }
        Ok(())
    }

    /// Stores `response`, with its events if they can be asked for again.
    pub(super) fn keep(self, response: &Response, with_events: bool) -> Arc<Stored> {
        let Self { store, owner, history, input, memory, weight } = self;
        let weight = weight.unwrap_or_else(|| store.weight());
        let (response, request) = (response.clone(), Some(memory.lease()));
        let stored = Arc::new(Stored::new(response, with_events, history, input, weight, request));
        store.insert(owner, stored.clone());
        stored
    }
}
