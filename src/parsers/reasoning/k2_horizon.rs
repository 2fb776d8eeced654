//! `<ifm|think>…</ifm|think>` of K2 Horizon, whose text begins with thoughts. Two further pairs of
//! tags are those of lower efforts. Calls end thoughts, too.

use super::{
    parser::{ReasoningParser, ReasoningStart},
    tagged::{Place, TaggedFormat, TaggedReasoning},
};

const FORMAT: TaggedFormat = TaggedFormat {
    markers: &[
        "<ifm|think>",
        "<ifm|think_fast>",
        "<ifm|think_faster>",
        "</ifm|think>",
        "</ifm|think_fast>",
        "</ifm|think_faster>",
        "<ifm|tool_calls>",
    ],
    num_starts: 3,
    num_ends: 3,
    place: Place::Beginning,
    thinks_unless_told: true,
    thinks_unless_prompted: true,
    special_tokens: true,
};

pub(in super::super) fn k2_horizon(start: &ReasoningStart<'_>) -> impl ReasoningParser + use<> {
    TaggedReasoning::new(&FORMAT, start)
}
