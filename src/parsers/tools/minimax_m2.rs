//! MiniMax-M2. Every value is a text between tags:
//! ```text
//! <minimax:tool_call>
//! <invoke name="now">
//! <parameter name="utc">true</parameter>
//! </invoke>
//! </minimax:tool_call>
//! ```

use super::{
    function_block::{FunctionBlock, Tags},
    parser::ToolParser,
    schema::Tools,
};

const CALL: &str = "<minimax:tool_call>";
const FUNCTION: &str = "<invoke name=";
const PARAMETER: &str = "<parameter name=";
const FUNCTION_END: &str = "</invoke>";
const CALL_END: &str = "</minimax:tool_call>";

const TAGS: Tags = Tags {
    openings: &[CALL],
    first: &[FUNCTION],
    between: &[FUNCTION, CALL_END],
    in_function: &[PARAMETER, FUNCTION_END, CALL_END, FUNCTION],
    value_ends: &["</parameter>", PARAMETER, FUNCTION_END],
    has_quotes: true,
    // As in vLLM, and as the model's template writes them.
    has_framed_values: false,
};

pub(in super::super) fn minimax_m2(tools: &Tools) -> impl ToolParser + use<> {
    FunctionBlock::parser(&TAGS, tools)
}
