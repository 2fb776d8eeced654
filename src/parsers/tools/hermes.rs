//! `<tool_call>{"name": "now", "arguments": {"utc": true}}</tool_call>`: Hermes 2 Pro, Qwen 2.5,
//! Qwen 3, Granite 4 and many models that learned the format from them.

use super::{
    block::BlockParser,
    call_object::Rigour,
    json_block::{JsonBlock, JsonFormat, Shape, Tail},
    parser::ToolParser,
    strict::Frame,
};

const FORMAT: JsonFormat = JsonFormat {
    markers: &["<tool_call>"],
    is_anywhere: true,
    shape: Shape::ObjectOrList,
    rigour: Rigour::Loose,
    tail: Tail::Tag(&["</tool_call>", "{"]),
    frames: &[Frame {
        trigger: "<tool_call>",
        open: "\n",
        separator: None,
        close: "\n</tool_call>",
    }],
};

/// Returns a parser of this format. In some models of the family the tags are special tokens.
pub(in super::super) fn hermes() -> impl ToolParser {
    BlockParser::new(JsonBlock::<true>::new(&FORMAT))
}
