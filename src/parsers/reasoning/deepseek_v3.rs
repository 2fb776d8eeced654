//! DeepSeek V3.1 and later, which think if the request asks for it. The template then opens the
//! thoughts in the prompt.

use super::{
    parser::{ReasoningParser, ReasoningStart},
    tagged::{Place, TaggedFormat, TaggedReasoning},
};

const FORMAT: TaggedFormat = TaggedFormat {
    markers: &["<think>", "</think>"],
    num_starts: 1,
    num_ends: 1,
    place: Place::Beginning,
    thinks_unless_told: false,
    thinks_unless_prompted: false,
    special_tokens: false,
};

pub(in super::super) fn deepseek_v3(start: &ReasoningStart<'_>) -> impl ReasoningParser + use<> {
    TaggedReasoning::new(&FORMAT, start)
}
