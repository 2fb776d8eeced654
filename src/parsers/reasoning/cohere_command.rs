//! `<|START_THINKING|>…<|END_THINKING|>` of Cohere's Command models. Their answers are between
//! `<|START_RESPONSE|>` or `<|START_TEXT|>` and its end. Calls follow the thoughts without them.

use super::{
    framed::{Frame, FramedReasoning},
    parser::{ReasoningParser, ReasoningStart},
    tagged::{Place, TaggedFormat},
};

const FORMAT: TaggedFormat = TaggedFormat {
    markers: &["<|START_THINKING|>", "<|END_THINKING|>"],
    num_starts: 1,
    num_ends: 1,
    place: Place::Beginning,
    thinks_unless_told: false,
    thinks_unless_prompted: false,
    special_tokens: true,
};

const FRAME: Frame = Frame {
    opens: &["<|START_RESPONSE|>", "<|START_TEXT|>"],
    closes: &["<|END_RESPONSE|>", "\n<|END_RESPONSE|>", "<|END_TEXT|>", "\n<|END_TEXT|>"],
};

pub(in super::super) fn cohere_command(start: &ReasoningStart<'_>) -> impl ReasoningParser + use<> {
    FramedReasoning::new(&FRAME, &FORMAT, start)
}
