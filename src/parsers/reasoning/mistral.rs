//! `[THINK]…[/THINK]`: Magistral and later reasoning models of Mistral.

use super::{
    parser::{ReasoningParser, ReasoningStart},
    tagged::{Place, TaggedFormat, TaggedReasoning},
};

const FORMAT: TaggedFormat = TaggedFormat {
    markers: &["[THINK]", "[/THINK]"],
    num_starts: 1,
    num_ends: 1,
    place: Place::Anywhere,
    thinks_unless_told: false,
    thinks_unless_prompted: false,
    special_tokens: true,
};

pub(in super::super) fn mistral(start: &ReasoningStart<'_>) -> impl ReasoningParser + use<> {
    TaggedReasoning::new(&FORMAT, start)
}
