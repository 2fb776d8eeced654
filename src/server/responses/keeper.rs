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

/// Puts one response into the store, with what it was made of.
pub(super) struct Keeper {
    pub(super) store: Arc<ResponseStore>,
    pub(super) owner: Owner,
    /// The turns before it.
    pub(super) history: Vec<Arc<Turn>>,
    pub(super) input: Arc<Items>,
    pub(super) memory: RequestMemory,
    /// There for a response that goes on without its client.
    pub(super) weight: Option<Weight>,
}

impl Keeper {
    /// Takes the memory of events that tell what was asked for, and the store's room for a response
    /// that is kept from its beginning.
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
