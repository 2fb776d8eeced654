//! `<mm:think>…</mm:think>` of MiniMax-M3, which may follow a part of the answer.

use super::{
    parser::{ReasoningParser, ReasoningStart},
    tagged::{Place, TaggedFormat, TaggedReasoning},
};

const FORMAT: TaggedFormat = TaggedFormat {
    markers: &["<mm:think>", "</mm:think>"],
    num_starts: 1,
    num_ends: 1,
    place: Place::Anywhere,
    thinks_unless_told: false,
    thinks_unless_prompted: false,
    special_tokens: false,
};

pub(in super::super) fn minimax_m3(start: &ReasoningStart<'_>) -> impl ReasoningParser + use<> {
    TaggedReasoning::new(&FORMAT, start)
}
