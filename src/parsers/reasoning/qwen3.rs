//! `<think>…</think>`. Its start is written by the model (Qwen3) or by the prompt (Qwen3 Thinking,
//! Qwen3.5). A tool call ends thoughts as well.

use super::{
    parser::{ReasoningParser, ReasoningStart},
    tagged::{Place, TaggedFormat, TaggedReasoning},
};

pub(super) const FORMAT: TaggedFormat = TaggedFormat {
    markers: &["<think>", "</think>", "<tool_call>"],
    num_starts: 1,
    num_ends: 1,
    place: Place::Beginning,
    thinks_unless_told: true,
    thinks_unless_prompted: false,
    special_tokens: false,
};

pub(in super::super) fn qwen3(start: &ReasoningStart<'_>) -> impl ReasoningParser + use<> {
    TaggedReasoning::new(&FORMAT, start)
}
