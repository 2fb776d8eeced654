//! `<tool_calls>[{"name": "now", "arguments": {}}]</tool_calls>`: Jamba and Hunyuan A13B.

use super::{
    block::BlockParser,
    call_object::Rigour,
    json_block::{JsonBlock, JsonFormat, Shape, Tail},
    parser::ToolParser,
};

const FORMAT: JsonFormat = JsonFormat {
    markers: &["<tool_calls>"],
    is_anywhere: true,
    shape: Shape::List,
    rigour: Rigour::Strict,
    tail: Tail::Tag(&["</tool_calls>"]),
    frames: &[],
};

/// Returns a parser of this format. The tags are special tokens of Jamba.
pub(in super::super) fn jamba() -> impl ToolParser {
    BlockParser::new(JsonBlock::<true>::new(&FORMAT))
}
