//! `<think>…</think>`, written by the model: GLM 4.5 to 4.7. A tool call ends thoughts as well.

use super::{
    parser::{ReasoningParser, ReasoningStart},
    tagged::{Place, TaggedFormat, TaggedReasoning},
};

const FORMAT: TaggedFormat = TaggedFormat {
    markers: &["<think>", "</think>", "<tool_call>"],
    num_starts: 1,
    num_ends: 1,
    place: Place::Beginning,
    thinks_unless_told: false,
    thinks_unless_prompted: false,
    special_tokens: false,
};

pub(in super::super) fn glm45(start: &ReasoningStart<'_>) -> impl ReasoningParser + use<> {
    TaggedReasoning::new(&FORMAT, start)
}
