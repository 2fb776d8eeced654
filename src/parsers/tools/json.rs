//! A bare call or a list of calls, `[{"name": "now", "parameters": {}}]`.
//!
//! The answer must begin with it, because JSON within a text is usually an example.

use super::{
    block::BlockParser,
    call_object::Rigour,
    json_block::{JsonBlock, JsonFormat, Shape, Tail},
    parser::ToolParser,
};

pub(super) const FORMAT: JsonFormat = JsonFormat {
    markers: &["{", "["],
    is_anywhere: false,
    shape: Shape::ObjectOrList,
    rigour: Rigour::Bare,
    tail: Tail::None,
    // Any brace at the start may begin a call.
    frames: &[],
};

pub(in super::super) fn json() -> impl ToolParser {
    BlockParser::new(JsonBlock::<false>::new(&FORMAT))
}
