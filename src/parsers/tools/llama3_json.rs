//! `{"name": "now", "parameters": {}}`: Llama 3.1 to 3.3, anywhere in the text, with or without
//! `<|python_tag|>` before it. Several calls have `; ` or a line break between them.

use super::{
    block::BlockParser,
    call_object::Rigour,
    json_block::{JsonBlock, JsonFormat, Shape, Tail},
    parser::ToolParser,
};

const FORMAT: JsonFormat = JsonFormat {
    markers: &["<|python_tag|>", "{"],
    is_anywhere: true,
    shape: Shape::Object,
    rigour: Rigour::Strict,
    tail: Tail::Another,
    // Any brace may begin a call, and most do not.
    frames: &[],
};

/// Returns the parser. The tag adds nothing to the object.
pub(in super::super) fn llama3_json() -> impl ToolParser {
    BlockParser::new(JsonBlock::<false>::new(&FORMAT))
}
