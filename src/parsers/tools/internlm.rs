//! `<|action_start|><|plugin|>{"name": "now", "parameters": {}}<|action_end|>`: InternLM 2 and 3.

use super::{
    block::BlockParser,
    call_object::Rigour,
    json_block::{JsonBlock, JsonFormat, Shape, Tail},
    parser::ToolParser,
};

const FORMAT: JsonFormat = JsonFormat {
    markers: &["<|action_start|><|plugin|>"],
    is_anywhere: true,
    shape: Shape::Object,
    rigour: Rigour::Strict,
    tail: Tail::Tag(&["<|action_end|>"]),
    frames: &[],
};

/// Returns a parser of this format. The markers are special tokens.
pub(in super::super) fn internlm() -> impl ToolParser {
    BlockParser::new(JsonBlock::<true>::new(&FORMAT))
}
