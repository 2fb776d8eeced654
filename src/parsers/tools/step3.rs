//! Step 3, whose calls are functions between tags of a namespace:
//! ```text
//! <｜tool_calls_begin｜>
//! <｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="now">
//! <steptml:parameter name="utc">true</steptml:parameter>
//! </steptml:invoke><｜tool_call_end｜>
//! <｜tool_calls_end｜>
//! ```
//! The markers within the section are layout, because models leave some out.

use super::{
    function_block::{FunctionBlock, Names, Tags},
    parser::ToolParser,
    schema::Tools,
};

const FUNCTION: &str = "<steptml:invoke name=";
const PARAMETER: &str = "<steptml:parameter name=";
const FUNCTION_END: &str = "</steptml:invoke>";
const CALLS_END: &str = "<｜tool_calls_end｜>";
const CALL: &str = "<｜tool_call_begin｜>";
const CALL_END: &str = "<｜tool_call_end｜>";
const KIND: &str = "function";
const SEPARATOR: &str = "<｜tool_sep｜>";

const TAGS: Tags = Tags {
    openings: &["<｜tool_calls_begin｜>"],
    first: &[FUNCTION, CALL, KIND, SEPARATOR],
    between: &[FUNCTION, CALLS_END, CALL, CALL_END, KIND, SEPARATOR],
    in_function: &[PARAMETER, FUNCTION_END, CALLS_END, FUNCTION],
    value_ends: &["</steptml:parameter>", FUNCTION_END, PARAMETER],
    name_end: ">",
    names: Names::Quoted,
    has_framed_values: true,
};

pub(in super::super) fn step3(tools: &Tools) -> impl ToolParser + use<> {
    FunctionBlock::parser(&TAGS, tools)
}
