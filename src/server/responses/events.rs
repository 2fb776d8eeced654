//! The events of a streamed response.

use axum::body::Bytes;
use serde::Serialize;

use super::{
    items::{Item, Part},
    response::{Response, Status},
};
use crate::server::{generate::logprobs::ChatLogprob, http::sse};

/// An event and its name.
#[derive(Debug, Serialize)]
pub(super) struct Event {
    r#type: &'static str,
    #[serde(flatten)]
    what: What,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum What {
    Response {
        response: Box<Response>,
    },
    Item {
        output_index: usize,
        item: Item,
    },
    Part {
        #[serde(flatten)]
        at: Place,
        part: Part,
    },
    Delta {
        #[serde(flatten)]
        at: Place,
        delta: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        logprobs: Option<Vec<ChatLogprob>>,
    },
    Text {
        #[serde(flatten)]
        at: Place,
        text: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        logprobs: Option<Vec<ChatLogprob>>,
    },
    Arguments {
        #[serde(flatten)]
        at: Place,
        name: String,
        arguments: String,
    },
    Input {
        #[serde(flatten)]
        at: Place,
        input: String,
    },
}

/// A place in the output.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Place {
    pub(super) item_id: String,
    pub(super) output_index: usize,
    /// Index of the part. `None` for calls, which have no parts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) content_index: Option<usize>,
}

impl Event {
    pub(super) fn created(response: &Response) -> Self {
        Self::response("response.created", response)
    }

    pub(super) fn queued(response: &Response) -> Self {
        Self::response("response.queued", response)
    }

    pub(super) fn in_progress(response: &Response) -> Self {
        Self::response("response.in_progress", response)
    }

    /// Returns the last event. As in vLLM, a response that was cut off has the event of a complete
    /// one, and its status shows the end.
    pub(super) fn over(response: &Response) -> Self {
        let is_failed = response.status == Status::Failed;
        let kind = if is_failed { "response.failed" } else { "response.completed" };
        Self::response(kind, response)
    }

    pub(super) fn item_added(output_index: usize, item: Item) -> Self {
        Self { r#type: "response.output_item.added", what: What::Item { output_index, item } }
    }

    pub(super) fn item_done(output_index: usize, item: Item) -> Self {
        Self { r#type: "response.output_item.done", what: What::Item { output_index, item } }
    }

    pub(super) fn part_added(at: Place, part: Part) -> Self {
        Self { r#type: "response.content_part.added", what: What::Part { at, part } }
    }

    pub(super) fn part_done(at: Place, part: Part) -> Self {
        Self { r#type: "response.content_part.done", what: What::Part { at, part } }
    }

    pub(super) fn text_delta(at: Place, delta: String, logprobs: Vec<ChatLogprob>) -> Self {
        let what = What::Delta { at, delta, logprobs: Some(logprobs) };
        Self { r#type: "response.output_text.delta", what }
    }

    pub(super) fn text_done(at: Place, text: String, logprobs: Vec<ChatLogprob>) -> Self {
        let what = What::Text { at, text, logprobs: Some(logprobs) };
        Self { r#type: "response.output_text.done", what }
    }

    pub(super) fn reasoning_delta(at: Place, delta: String) -> Self {
        let what = What::Delta { at, delta, logprobs: None };
        Self { r#type: "response.reasoning_text.delta", what }
    }

    pub(super) fn reasoning_done(at: Place, text: String) -> Self {
        let what = What::Text { at, text, logprobs: None };
        Self { r#type: "response.reasoning_text.done", what }
    }

    pub(super) fn arguments_delta(at: Place, delta: String) -> Self {
        let what = What::Delta { at, delta, logprobs: None };
        Self { r#type: "response.function_call_arguments.delta", what }
    }

    pub(super) fn arguments_done(at: Place, name: String, arguments: String) -> Self {
        let what = What::Arguments { at, name, arguments };
        Self { r#type: "response.function_call_arguments.done", what }
    }

    pub(super) fn input_delta(at: Place, delta: String) -> Self {
        let what = What::Delta { at, delta, logprobs: None };
        Self { r#type: "response.custom_tool_call_input.delta", what }
    }

    pub(super) fn input_done(at: Place, input: String) -> Self {
        Self { r#type: "response.custom_tool_call_input.done", what: What::Input { at, input } }
    }

    fn response(kind: &'static str, response: &Response) -> Self {
        Self { r#type: kind, what: What::Response { response: Box::new(response.clone()) } }
    }
}

/// Numbers events and writes them as a stream sends them. The first number is 0.
#[derive(Debug, Default)]
pub(super) struct Frames {
    next: usize,
}

#[derive(Serialize)]
struct Numbered<'a> {
    #[serde(flatten)]
    event: &'a Event,
    sequence_number: usize,
}

impl Frames {
    /// Gives the next event this number.
    pub(super) fn go_on_at(&mut self, number: u64) {
        self.next = usize::try_from(number).unwrap_or(usize::MAX);
    }

    pub(super) fn write_all(&mut self, events: &[Event]) -> Vec<Bytes> {
        events.iter().map(|event| self.write(event)).collect()
    }

    pub(super) fn write(&mut self, event: &Event) -> Bytes {
        let sequence_number = self.next;
        self.next += 1;
        sse::named_event(event.r#type, &Numbered { event, sequence_number })
    }
}
