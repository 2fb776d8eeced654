//! `<think>…</think>` and `<answer>…</answer>` of Hunyuan A13B. Both may be missing.

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
    thinks_unless_told: false,
    thinks_unless_prompted: false,
    special_tokens: false,
};

const FRAME: Frame = Frame { opens: &["<answer>"], closes: &["</answer>", "\n</answer>"] };

pub(in super::super) fn hunyuan_a13b(start: &ReasoningStart<'_>) -> impl ReasoningParser + use<> {
    FramedReasoning::new(&FRAME, &FORMAT, start)
}
