//! Command R7B, Command A and later models of Cohere:
//! ```text
//! <|START_ACTION|>[
//!     {"tool_call_id": "0", "tool_name": "now", "parameters": {"utc": true}}
//! ]<|END_ACTION|>
//! ```
//! The model's ids count from 0 in each turn, so calls get ids of their own.

use super::{
    block::BlockParser,
    call_object::Rigour,
    json_block::{JsonBlock, JsonFormat, Shape, Tail},
    parser::ToolParser,
};

const FORMAT: JsonFormat = JsonFormat {
    markers: &["<|START_ACTION|>"],
    is_anywhere: true,
    shape: Shape::List,
    rigour: Rigour::Strict,
    tail: Tail::Tag(&["<|END_ACTION|>"]),
    frames: &[],
};

/// Returns a parser of this format. The markers are special tokens.
pub(in super::super) fn cohere_command() -> impl ToolParser {
    BlockParser::new(JsonBlock::<true>::new(&FORMAT))
}
