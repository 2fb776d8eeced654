//! `<|tool_call|>[{"name": "now", "arguments": {}}]` (Granite 3.0), or the same after `<tool_call>`
//! (3.1).

use super::{
    block::BlockParser,
    call_object::Rigour,
    json_block::{JsonBlock, JsonFormat, Shape, Tail},
    parser::ToolParser,
    strict::Frame,
};

const FORMAT: JsonFormat = JsonFormat {
    markers: &["<|tool_call|>", "<tool_call>"],
    is_anywhere: true,
    shape: Shape::List,
    rigour: Rigour::Strict,
    tail: Tail::None,
    frames: &[
        Frame { trigger: "<|tool_call|>", open: "[", separator: Some(", "), close: "]" },
        Frame { trigger: "<tool_call>", open: "[", separator: Some(", "), close: "]" },
    ],
};

pub(in super::super) fn granite() -> impl ToolParser {
    BlockParser::new(JsonBlock::<true>::new(&FORMAT))
}
