//! `<think>…</think>` of DeepSeek V4 and V4.1, which think unless the request or the prompt says
//! otherwise. Calls end thoughts, too.

use super::{
    parser::{ReasoningParser, ReasoningStart},
    tagged::{Place, TaggedFormat, TaggedReasoning},
};

const V4: TaggedFormat = TaggedFormat {
    markers: &["<think>", "</think>", "<｜DSML｜tool_calls>"],
    num_starts: 1,
    num_ends: 1,
    place: Place::Beginning,
    thinks_unless_told: true,
    thinks_unless_prompted: true,
    special_tokens: true,
};

const V41: TaggedFormat =
    TaggedFormat { markers: &["<think>", "</think>", "<｜DSML｜ calls>"], ..V4 };

pub(in super::super) fn deepseek_v4(start: &ReasoningStart<'_>) -> impl ReasoningParser + use<> {
    TaggedReasoning::new(&V4, start)
}

pub(in super::super) fn deepseek_v41(start: &ReasoningStart<'_>) -> impl ReasoningParser + use<> {
    TaggedReasoning::new(&V41, start)
}
