//! `<think>…</think>`, whose start is in the prompt: DeepSeek R1 and its distillates.
//!
//! A text without markers is a thought that was cut off.

use super::{
    parser::{ReasoningParser, ReasoningStart},
    tagged::{Place, TaggedFormat, TaggedReasoning},
};

const FORMAT: TaggedFormat = TaggedFormat {
    markers: &["<think>", "</think>"],
    num_starts: 1,
    num_ends: 1,
    place: Place::Beginning,
    thinks_unless_told: true,
    thinks_unless_prompted: true,
    special_tokens: false,
};

pub(in super::super) fn deepseek_r1(start: &ReasoningStart<'_>) -> impl ReasoningParser + use<> {
    TaggedReasoning::new(&FORMAT, start)
}
