//! Gathers the parts of a turn for one line.

use serde_json::{Map, Value};

use super::line::{LineCall, LineFunction};
use crate::{
    api::{FinishReason, OutputDelta},
    server::turn::{TurnEvent, TurnReader},
};

/// Reads the output of one answer.
pub(super) enum Reader {
    /// Thoughts and calls stand out.
    Turn(Box<TurnReader>),
    /// All output is content.
    Plain,
}

impl Reader {
    pub(super) fn push(&mut self, delta: &OutputDelta) -> Vec<TurnEvent> {
        match self {
            Self::Turn(reader) => reader.push(delta),
            Self::Plain if delta.text.is_empty() => Vec::new(),
            Self::Plain => vec![TurnEvent::Content(delta.text.clone())],
        }
    }
}

/// The call whose arguments are being written.
struct OpenCall {
    index: usize,
    id: String,
    name: String,
    arguments: String,
}

/// The output since the last line. A call is shown once it is complete. One that is cut off is not
/// shown: this API has no form for it.
#[derive(Default)]
pub(super) struct Gathered {
    pub(super) content: String,
    pub(super) thinking: String,
    pub(super) calls: Vec<LineCall>,
    open: Option<OpenCall>,
}

impl Gathered {
    pub(super) fn push(&mut self, event: TurnEvent) {
        match event {
            TurnEvent::Reasoning(text) => self.thinking.push_str(&text),
            TurnEvent::Content(text) => self.content.push_str(&text),
            TurnEvent::ToolCallStart { index, id, name } => {
                self.open = Some(OpenCall { index, id, name, arguments: String::new() });
            }
            TurnEvent::ToolCallArguments { delta, .. } => {
                if let Some(call) = &mut self.open {
                    call.arguments.push_str(&delta);
                }
            }
            TurnEvent::ToolCallEnd { .. } => self.calls.extend(self.open.take().map(complete)),
            TurnEvent::ToolCallBroken { .. } => self.open = None,
        }
    }

    /// Returns whether there is nothing to show.
    pub(super) fn is_empty(&self) -> bool {
        self.content.is_empty() && self.thinking.is_empty() && self.calls.is_empty()
    }

    /// Takes what was gathered.
    pub(super) fn take(&mut self) -> Self {
        let open = self.open.take();
        let taken = std::mem::take(self);
        self.open = open;
        taken
    }
}

fn complete(call: OpenCall) -> LineCall {
    let OpenCall { index, id, name, arguments } = call;
    let arguments = match serde_json::from_str(&arguments) {
        Ok(Value::Object(arguments)) => arguments,
        // The parsers end only calls whose arguments are an object, or missing.
        _ => Map::new(),
    };
    LineCall { id, function: LineFunction { index, name, arguments } }
}

/// Returns the API's word for the end of an answer.
pub(super) fn done_reason(finish: &FinishReason) -> &'static str {
    match finish {
        FinishReason::Stop(_) => "stop",
        other => other.as_str(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn start(index: usize) -> TurnEvent {
        TurnEvent::ToolCallStart { index, id: format!("call_{index}"), name: "now".to_owned() }
    }

    fn arguments(index: usize, delta: &str) -> TurnEvent {
        TurnEvent::ToolCallArguments { index, delta: delta.to_owned() }
    }

    #[test]
    fn a_call_is_shown_when_it_is_complete() {
        let mut gathered = Gathered::default();
        gathered.push(TurnEvent::Reasoning("hm".to_owned()));
        gathered.push(start(0));
        gathered.push(arguments(0, "{\"utc\":"));
        let line = gathered.take();
        assert_eq!((line.thinking.as_str(), line.calls.len()), ("hm", 0));
        assert!(gathered.is_empty());
        gathered.push(arguments(0, " true}"));
        gathered.push(TurnEvent::ToolCallEnd { index: 0 });
        let call = &gathered.take().calls[0];
        assert_eq!((call.id.as_str(), call.function.name.as_str()), ("call_0", "now"));
        assert_eq!(Value::from(call.function.arguments.clone()), json!({"utc": true}));
    }

    #[test]
    fn a_call_that_is_cut_off_is_not_shown() {
        let mut gathered = Gathered::default();
        for event in [start(0), arguments(0, "{\"u"), TurnEvent::ToolCallBroken { index: 0 }] {
            gathered.push(event);
        }
        assert!(gathered.is_empty());
    }
}
