//! Qwen3-Coder and later models. Every value is a text between tags:
//! ```text
//! <tool_call>
//! <function=now>
//! <parameter=utc>
//! true
//! </parameter>
//! </function>
//! </tool_call>
//! ```
//! Models may leave out the outer tag and closing tags.

use super::{
    function_block::{FunctionBlock, Names, Tags},
    parser::ToolParser,
    schema::Tools,
};

const CALL: &str = "<tool_call>";
pub(super) const FUNCTION: &str = "<function=";
pub(super) const PARAMETER: &str = "<parameter=";
pub(super) const FUNCTION_END: &str = "</function>";
const CALL_END: &str = "</tool_call>";

pub(super) const TAGS: Tags = Tags {
    openings: &[CALL, FUNCTION],
    first: &[FUNCTION],
    between: &[FUNCTION, CALL_END],
    in_function: &[PARAMETER, FUNCTION_END, CALL_END, FUNCTION],
    value_ends: &["</parameter>", FUNCTION_END, PARAMETER],
    name_end: ">",
    names: Names::Bare,
    has_framed_values: true,
};

pub(in super::super) fn qwen3_coder(tools: &Tools) -> impl ToolParser + use<> {
    FunctionBlock::parser(&TAGS, tools)
}
