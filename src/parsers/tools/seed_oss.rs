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
    qwen3_coder::{self, FUNCTION, FUNCTION_END, PARAMETER},
    schema::Tools,
};

const CALL: &str = "<seed:tool_call>";
const CALL_END: &str = "</seed:tool_call>";

const TAGS: Tags = Tags {
    openings: &[CALL, FUNCTION],
    between: &[FUNCTION, CALL_END],
    in_function: &[PARAMETER, FUNCTION_END, CALL_END, FUNCTION],
    ..qwen3_coder::TAGS
};

pub(in super::super) fn seed_oss(tools: &Tools) -> impl ToolParser + use<> {
    FunctionBlock::parser(&TAGS, tools)
}
