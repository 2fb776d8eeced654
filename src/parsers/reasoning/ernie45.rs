//! `…</think>` and `<response>…</response>` of ERNIE 4.5 Thinking, whose text begins with thoughts.
//! The answer may come without its tags.

use super::{
    framed::{Frame, FramedReasoning},
    parser::{ReasoningParser, ReasoningStart},
    tagged::{Place, TaggedFormat},
};

const FORMAT: TaggedFormat = TaggedFormat {
    markers: &["<think>", "</think>"],
    num_starts: 1,
    num_ends: 1,
    place: Place::Beginning,
    thinks_unless_told: true,
    thinks_unless_prompted: true,
    special_tokens: true,
};

const FRAME: Frame = Frame { opens: &["<response>"], closes: &["</response>", "\n</response>"] };

pub(in super::super) fn ernie45(start: &ReasoningStart<'_>) -> impl ReasoningParser + use<> {
    FramedReasoning::new(&FRAME, &FORMAT, start)
}
