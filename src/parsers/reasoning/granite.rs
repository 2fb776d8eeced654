//! `Here is my thought process: … Here is my response: …`: Granite 3.2 and 3.3.

use super::{
    parser::{ReasoningParser, ReasoningStart},
    tagged::{Place, TaggedFormat, TaggedReasoning},
};

/// Quantized models are known to shorten the markers.
const FORMAT: TaggedFormat = TaggedFormat {
    markers: &[
        "Here is my thought process:",
        "Here's my thought process:",
        "Here is my response:",
        "Here's my response:",
    ],
    num_starts: 2,
    num_ends: 2,
    place: Place::Beginning,
    thinks_unless_told: false,
    thinks_unless_prompted: false,
    special_tokens: false,
};

pub(in super::super) fn granite(start: &ReasoningStart<'_>) -> impl ReasoningParser + use<> {
    TaggedReasoning::new(&FORMAT, start)
}
