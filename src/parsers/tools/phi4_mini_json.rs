//! `functools[{"name": "now", "arguments": {}}]`: Phi-4 mini.

use super::{
    block::BlockParser,
    call_object::Rigour,
    json_block::{JsonBlock, JsonFormat, Shape, Tail},
    parser::ToolParser,
    strict::Frame,
};

const FORMAT: JsonFormat = JsonFormat {
    markers: &["functools["],
    is_anywhere: true,
    shape: Shape::List,
    rigour: Rigour::Strict,
    tail: Tail::None,
    frames: &[Frame { trigger: "functools[", open: "", separator: Some(", "), close: "]" }],
};

pub(in super::super) fn phi4_mini_json() -> impl ToolParser {
    BlockParser::new(JsonBlock::<false>::new(&FORMAT))
}
