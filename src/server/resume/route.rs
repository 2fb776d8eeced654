//! `GET /v1/streams/{id}`: the answer with this id, from the event after `after` on.

use axum::{extract::State, http::HeaderMap, response::Response};
use serde::Deserialize;

use super::{
    answer,
    position::{Position, escaped, split},
    ticket::LAST_EVENT_ID,
};
use crate::server::{
    http::{
        caller::Caller,
        error::ApiError,
        extract::{PathOf, QueryOf},
    },
    state::AppState,
};

#[derive(Debug, Deserialize)]
pub(in crate::server) struct Continue {
    /// The id of an event, or its part after the colon.
    after: Option<String>,
}

/// Returns the rest of a stream, or an answer in one piece. `Last-Event-ID` goes before `after`: a
/// browser's EventSource asks the same address again, with the header for its last event.
pub(in crate::server) async fn continue_stream(
    State(state): State<AppState>,
    caller: Caller,
    headers: HeaderMap,
    PathOf(id): PathOf<String>,
    QueryOf(Continue { after }): QueryOf<Continue>,
) -> Result<Response, ApiError> {
    let id = escaped(&id);
    let last_event = headers.get(&LAST_EVENT_ID).map(|last| last.to_str().unwrap_or_default());
    let last_event = last_event.map(str::trim).filter(|last| !last.is_empty());
    let after = last_event.or(after.as_deref());
    let after = after.map(|after| place(&id, after)).transpose()?;
    let kept = state.kept.get(caller.tenant, &id)?;
    answer(kept, after).await
}

fn place(id: &str, after: &str) -> Result<Position, ApiError> {
    let position = match after.contains(':') {
        true => split(after).and_then(|(stream, position)| match stream == id {
            true => Ok(position),
            false => Err(super::position::InvalidPosition),
        }),
        false => after.parse(),
    };
    position.map_err(|_| {
        let message = format!("after must be the id of an event of this stream, got {after:?}");
        ApiError::invalid("after", message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_events_id_is_taken_whole_or_without_its_stream() {
        assert_eq!(place("s", "s:4.0.e"), place("s", "4.0.e"));
        assert!(place("s", "4.0.e").is_ok());
        let error = place("s", "t:4.0.e").unwrap_err();
        assert_eq!(
            error.message,
            "after must be the id of an event of this stream, got \"t:4.0.e\""
        );
    }
}
