//! `<|plamo:begin_think:plamo|>…<|plamo:end_think:plamo|>` of PLaMo 3, whose text begins with
//! thoughts. Calls end them, too.

use super::{
    parser::{ReasoningParser, ReasoningStart},
    tagged::{Place, TaggedFormat, TaggedReasoning},
};

const FORMAT: TaggedFormat = TaggedFormat {
    markers: &[
        "<|plamo:begin_think:plamo|>",
        "<|plamo:end_think:plamo|>",
        "<|plamo:begin_tool_requests:plamo|>",
    ],
    num_starts: 1,
    num_ends: 1,
    place: Place::Beginning,
    thinks_unless_told: true,
    thinks_unless_prompted: true,
    special_tokens: true,
};

pub(in super::super) fn plamo3(start: &ReasoningStart<'_>) -> impl ReasoningParser + use<> {
    TaggedReasoning::new(&FORMAT, start)
}
