//! GigaChat 3, whose call is a message of another role, and GigaChat 3.1, whose call has a token:
//! ```text
//! I look.<|message_sep|>
//!
//! function call<|role_sep|>
//! {"name": "now", "arguments": {"utc": true}}
//! ```
//! `I look.<|function_call|>{"name": "now", "arguments": {"utc": true}}`

use super::{
    block::BlockParser,
    call_object::Rigour,
    json_block::{JsonBlock, JsonFormat, Shape, Tail},
    parser::ToolParser,
};

const FORMAT: JsonFormat = JsonFormat {
    markers: &[
        // The end of the message before the call is not content.
        "<|message_sep|>\n\nfunction call<|role_sep|>\n",
        "function call<|role_sep|>\n",
        "<|function_call|>",
    ],
    is_anywhere: true,
    shape: Shape::Object,
    rigour: Rigour::Strict,
    tail: Tail::None,
    frames: &[],
};

/// Returns a parser of this format. The markers are special tokens.
pub(in super::super) fn gigachat3() -> impl ToolParser {
    BlockParser::new(JsonBlock::<true>::new(&FORMAT))
}
