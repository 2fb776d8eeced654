//! dots, which writes functions as MiniMax-M2 does, in a block of its own:
//! ```text
//! <dots_function_call>
//! <invoke name="now">
//! <parameter name="utc">true</parameter>
//! </invoke>
//! </dots_function_call>
//! ```
//! vLLM also reads a JSON object in the block. Here it is content, because no template writes it.

use super::{
    function_block::{FunctionBlock, Tags},
    minimax_m2::{self, FUNCTION, FUNCTION_END, PARAMETER},
    parser::ToolParser,
    schema::Tools,
};

const CALL_END: &str = "</dots_function_call>";

const TAGS: Tags = Tags {
    openings: &["<dots_function_call>"],
    between: &[FUNCTION, CALL_END],
    in_function: &[PARAMETER, FUNCTION_END, CALL_END, FUNCTION],
    has_framed_values: true,
    ..minimax_m2::TAGS
};

pub(in super::super) fn dots(tools: &Tools) -> impl ToolParser + use<> {
    FunctionBlock::parser(&TAGS, tools)
}
