//! The journal's entry of one answer, as long as a client may ask for the answer.

use std::sync::Arc;

use super::exchange::{Exchange, WholeAnswer};
use crate::{
    api::{Journal, Record},
    server::http::error::ApiError,
};

/// An answer's entry in the journal, if there is a journal. A drop removes it.
pub(in crate::server) struct Keeping {
    journal: Option<Arc<Journal>>,
    name: Arc<str>,
    exchange: Exchange,
}

impl Keeping {
    /// Enters an answer that begins.
    pub(super) fn begin(
        journal: Option<Arc<Journal>>,
        exchange: Exchange,
    ) -> Result<Self, ApiError> {
        let keeping = Self::of(journal, exchange);
        keeping.record(true)?;
        if let (Some(journal), None) = (&keeping.journal, keeping.exchange.num_prompts) {
            // No acceptance says that the engine computes it.
            journal.record(Record::Tried { names: vec![Arc::clone(&keeping.name)] });
        }
        Ok(keeping)
    }

    /// Returns the entry of an answer that the journal already has.
    pub(super) fn of(journal: Option<Arc<Journal>>, exchange: Exchange) -> Self {
        let name = exchange.draws.name.as_str().into();
        Self { journal, name, exchange }
    }

    /// Returns the name by which requests belong to it.
    pub(super) fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(super) fn exchange(&self) -> &Exchange {
        &self.exchange
    }

    /// Enters the whole answer. Its requests are not needed for it any longer.
    pub(super) fn answered(&mut self, answer: WholeAnswer) -> Result<(), ApiError> {
        self.exchange.answer = Some(answer);
        self.record(false)
    }

    fn record(&self, needs_requests: bool) -> Result<(), ApiError> {
        let Some(journal) = &self.journal else { return Ok(()) };
        let data = self.exchange.to_bytes();
        let data = data.map_err(|error| ApiError::internal(error.to_string()))?.into();
        journal.record(Record::Answer { name: Arc::clone(&self.name), data, needs_requests });
        Ok(())
    }
}

impl Drop for Keeping {
    fn drop(&mut self) {
        if let Some(journal) = &self.journal {
            journal.record(Record::Dropped { name: Arc::clone(&self.name) });
        }
    }
}
