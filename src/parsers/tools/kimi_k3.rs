//! Kimi K3. Its calls are elements of a channel, and an attribute of an argument tells the type:
//! ```text
//! <|open|>tools<|sep|><|open|>call tool="now" index="1"<|sep|>
//! <|open|>argument key="utc" type="boolean"<|sep|>true<|close|>argument<|sep|>
//! <|close|>call<|sep|><|close|>tools<|sep|>
//! ```
//! The channel of the answer is that of the reasoning parser `kimi_k3`, which unwraps it.

use super::{
    function_block::{Attributes, FunctionBlock, Names, Tags},
    parser::ToolParser,
    schema::Tools,
};

const CALL: &str = "<|open|>call ";
const CALL_END: &str = "<|close|>call<|sep|>";
const ARGUMENT: &str = "<|open|>argument ";
const TOOLS_END: &str = "<|close|>tools<|sep|>";

const TAGS: Tags = Tags {
    openings: &["<|open|>tools<|sep|>"],
    first: &[CALL],
    between: &[CALL, TOOLS_END],
    in_function: &[ARGUMENT, CALL_END, TOOLS_END, CALL],
    value_ends: &["<|close|>argument<|sep|>"],
    name_end: "<|sep|>",
    names: Names::Attributes(Attributes {
        function: "tool",
        parameter: "key",
        kind: ["type", "string"],
        is_text: true,
    }),
    has_framed_values: false,
};

pub(in super::super) fn kimi_k3(tools: &Tools) -> impl ToolParser + use<> {
    FunctionBlock::parser(&TAGS, tools)
}
