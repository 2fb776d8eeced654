//! The count of readings by parsers of calls, under vLLM's name.

use std::sync::Arc;

use metrics::counter;

use crate::{server::state::AppState, turn::NoteReading};

/// Returns a function that counts a reading by its outcome. As in vLLM, a stream has one for each
/// delta, and an answer in one piece one for each choice.
pub(in crate::server) fn readings(
    state: &AppState,
    is_streamed: bool,
    request_type: &'static str,
) -> NoteReading {
    let model = state.engine.served_model_names().first().cloned().unwrap_or_default();
    let mode = if is_streamed { "streaming" } else { "non_streaming" };
    let of = |outcome: &'static str| {
        counter!(
            "playhouse:tool_call_parser_invocations_total",
            "model_name" => model.clone(),
            "mode" => mode,
            "outcome" => outcome,
            "request_type" => request_type,
        )
    };
    let (found, none) = (of("tool_call"), of("no_tool_call"));
    Arc::new(move |has_call| {
        let counter = if has_call { &found } else { &none };
        counter.increment(1);
    })
}
