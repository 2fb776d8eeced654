//! `<|content_invoke_tool_json|>{"name": "now", "args": {}}<|end_message|>`: Inkling. The reasoning
//! parser `inkling` reads its other blocks.

use super::{
    block::BlockParser,
    call_object::Rigour,
    json_block::{JsonBlock, JsonFormat, Shape, Tail},
    parser::ToolParser,
};

const FORMAT: JsonFormat = JsonFormat {
    markers: &["<|content_invoke_tool_json|>"],
    is_anywhere: true,
    shape: Shape::Object,
    rigour: Rigour::Loose,
    tail: Tail::Tag(&["<|end_message|>", "<|content_model_end_sampling|>"]),
    frames: &[],
};

/// Returns a parser of this format. The markers are special tokens.
pub(in super::super) fn inkling() -> impl ToolParser {
    BlockParser::new(JsonBlock::<true>::new(&FORMAT))
}
