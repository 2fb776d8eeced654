//! MiniMax-M2. Every value is a text between tags:
//! ```text
//! <minimax:tool_call>
//! <invoke name="now">
//! <parameter name="utc">true</parameter>
//! </invoke>
//! </minimax:tool_call>
//! ```

use super::{
    function_block::{FunctionBlock, Names, Tags},
    parser::ToolParser,
    schema::Tools,
};

const CALL: &str = "<minimax:tool_call>";
pub(super) const FUNCTION: &str = "<invoke name=";
pub(super) const PARAMETER: &str = "<parameter name=";
pub(super) const FUNCTION_END: &str = "</invoke>";
const CALL_END: &str = "</minimax:tool_call>";

pub(super) const TAGS: Tags = Tags {
    openings: &[CALL],
    first: &[FUNCTION],
    between: &[FUNCTION, CALL_END],
    in_function: &[PARAMETER, FUNCTION_END, CALL_END, FUNCTION],
    value_ends: &["</parameter>", FUNCTION_END, PARAMETER],
    name_end: ">",
    names: Names::Quoted,
    // As in vLLM, and as the model's template writes them.
    has_framed_values: false,
};

pub(in super::super) fn minimax_m2(tools: &Tools) -> impl ToolParser + use<> {
    FunctionBlock::parser(&TAGS, tools)
}
