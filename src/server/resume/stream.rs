//! The keeping of one stream: from its first event until its time is over.

use std::sync::Arc;

use axum::response::Response;
use futures_util::{Stream, StreamExt};

use super::{Event, Kept, KeptAnswers, Marks, Ticket, held::Held, position::escaped};
use crate::{
    api::{Lease, Tenant},
    server::{http::error::ApiError, state::AppState},
};

/// The place where a stream is kept.
pub(in crate::server) struct KeptStream {
    ticket: Ticket,
    table: Arc<KeptAnswers>,
    owner: Option<Tenant>,
    /// The answer's id, escaped.
    id: String,
    lease: Lease,
}

impl KeptStream {
    /// Returns the place for the answer of this ticket, if it is kept.
    pub(in crate::server) fn new(
        ticket: Ticket,
        state: &AppState,
        owner: Option<Tenant>,
        id: &str,
    ) -> Option<Self> {
        ticket.is_entered().then(|| Self {
            ticket,
            table: Arc::clone(&state.kept),
            owner,
            id: escaped(id),
            lease: state.engine.memory().lease(),
        })
    }

    /// Returns the marks for its events.
    pub(in crate::server) fn marks(&self, num_choices: usize) -> Marks {
        Marks::new(self.id.clone(), num_choices, self.ticket.after().cloned())
    }

    /// Keeps the stream, whose events come from `source`, and returns it to its client.
    ///
    /// # Errors
    /// 503 if there is no memory for it.
    pub(in crate::server) fn serve(
        self,
        source: impl Stream<Item = Vec<Event>> + Send + 'static,
    ) -> Result<Response, ApiError> {
        let Self { ticket, table, owner, id, lease } = self;
        let is_repeated = ticket.is_repeated();
        let bytes = ticket.exchange_bytes();
        // The exchange, its bytes in the journal's content, and the body itself. A restored answer
        // has this memory already, so it is never refused for it.
        lease.add(3 * bytes).or_else(|error| if is_repeated { Ok(()) } else { Err(error) })?;
        let keeping = ticket.take_keeping();
        let keeping = keeping.ok_or_else(|| ApiError::internal("the stream is kept already"))?;
        let hash = super::ticket::request_hash(&keeping.exchange().route, &keeping.exchange().body);
        let base = ticket.after().map(ToString::to_string);
        let held = Held::new(source.boxed(), keeping, hash, base.clone(), lease);
        if is_repeated {
            held.await_reader();
        }
        table.enter(owner, id, Kept::Stream(Arc::clone(&held)));
        held.follow(base.as_deref())
    }
}
