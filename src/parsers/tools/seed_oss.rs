//! Seed-OSS, which writes functions as Qwen3 Coder does, in a block of its own:
//! ```text
//! <seed:tool_call>
//! <function=now>
//! <parameter=utc>true</parameter>
//! </function>
//! </seed:tool_call>
//! ```

use super::{
    function_block::{FunctionBlock, Tags},
    parser::ToolParser,
    schema::Tools,
};

const CALL: &str = "<seed:tool_call>";
const FUNCTION: &str = "<function=";
const PARAMETER: &str = "<parameter=";
const FUNCTION_END: &str = "</function>";
const CALL_END: &str = "</seed:tool_call>";

const TAGS: Tags = Tags {
    openings: &[CALL, FUNCTION],
    first: &[FUNCTION],
    between: &[FUNCTION, CALL_END],
    in_function: &[PARAMETER, FUNCTION_END, CALL_END, FUNCTION],
    value_ends: &["</parameter>", PARAMETER, FUNCTION_END],
    has_quotes: false,
    has_framed_values: true,
};

pub(in super::super) fn seed_oss(tools: &Tools) -> impl ToolParser + use<> {
    FunctionBlock::parser(&TAGS, tools)
}
