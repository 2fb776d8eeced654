//! `<longcat_tool_call>{"name": "now", "arguments": {}}</longcat_tool_call>`: LongCat, which writes
//! the objects of `hermes` between tags of its own.

use super::{
    block::BlockParser,
    call_object::Rigour,
    json_block::{JsonBlock, JsonFormat, Shape, Tail},
    parser::ToolParser,
};

const FORMAT: JsonFormat = JsonFormat {
    markers: &["<longcat_tool_call>"],
    is_anywhere: true,
    shape: Shape::ObjectOrList,
    rigour: Rigour::Loose,
    tail: Tail::Tag(&["</longcat_tool_call>", "{"]),
    frames: &[],
};

/// Returns a parser of this format. The tags are special tokens.
pub(in super::super) fn longcat() -> impl ToolParser {
    BlockParser::new(JsonBlock::<true>::new(&FORMAT))
}
