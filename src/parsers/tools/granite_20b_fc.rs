//! `<function_call> {"name": "now", "arguments": {}}`: Granite 20B Function Calling. Each call has
//! its own tag, and nothing ends it.

use super::{
    block::BlockParser,
    call_object::Rigour,
    json_block::{JsonBlock, JsonFormat, Shape, Tail},
    parser::ToolParser,
};

const FORMAT: JsonFormat = JsonFormat {
    markers: &["<function_call>"],
    is_anywhere: true,
    shape: Shape::Object,
    rigour: Rigour::Strict,
    tail: Tail::None,
    frames: &[],
};

pub(in super::super) fn granite_20b_fc() -> impl ToolParser {
    BlockParser::new(JsonBlock::<false>::new(&FORMAT))
}
