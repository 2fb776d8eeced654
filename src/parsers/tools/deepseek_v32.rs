//! DeepSeek V3.2 and V4, whose calls are functions between tags. An attribute of a parameter tells
//! whether its value is text or JSON:
//! ```text
//! <｜DSML｜function_calls>
//! <｜DSML｜invoke name="now">
//! <｜DSML｜parameter name="utc" string="false">true</｜DSML｜parameter>
//! </｜DSML｜invoke>
//! </｜DSML｜function_calls>
//! ```
//! V4 names the block `tool_calls`, and V4.1 writes a space after the namespace. A model that puts
//! all arguments into one parameter `arguments` gets them passed on as that parameter.

use super::{
    function_block::{Attributes, FunctionBlock, Names, Tags},
    parser::ToolParser,
    schema::Tools,
};

const FUNCTION: &str = "<｜DSML｜invoke ";
const PARAMETER: &str = "<｜DSML｜parameter ";
const PARAMETER_END: &str = "</｜DSML｜parameter>";
const FUNCTION_END: &str = "</｜DSML｜invoke>";

const V32_END: &str = "</｜DSML｜function_calls>";
const V4_END: &str = "</｜DSML｜tool_calls>";

const V32: Tags = Tags {
    openings: &["<｜DSML｜function_calls>", FUNCTION],
    first: &[FUNCTION],
    between: &[FUNCTION, V32_END],
    in_function: &[PARAMETER, FUNCTION_END, V32_END, FUNCTION],
    value_ends: &[PARAMETER_END, FUNCTION_END, PARAMETER],
    name_end: ">",
    names: Names::Attributes(Attributes {
        function: "name",
        parameter: "name",
        kind: ["string", "true"],
        is_text: false,
    }),
    has_framed_values: false,
};

const V4: Tags = Tags {
    // Models are known to misspell the first one.
    openings: &["<｜DSML｜tool_calls>", "<｜DSML｜toolcalls>", "<｜DSML｜tool>", FUNCTION],
    between: &[FUNCTION, V4_END],
    in_function: &[PARAMETER, FUNCTION_END, V4_END, FUNCTION],
    ..V32
};

const V41_FUNCTION: &str = "<｜DSML｜ invoke ";
const V41_PARAMETER: &str = "<｜DSML｜ parameter ";
const V41_FUNCTION_END: &str = "</｜DSML｜ invoke>";
const V41_END: &str = "</｜DSML｜ calls>";

const V41: Tags = Tags {
    openings: &["<｜DSML｜ calls>", V41_FUNCTION],
    first: &[V41_FUNCTION],
    between: &[V41_FUNCTION, V41_END],
    in_function: &[V41_PARAMETER, V41_FUNCTION_END, V41_END, V41_FUNCTION],
    value_ends: &["</｜DSML｜ parameter>", V41_FUNCTION_END, V41_PARAMETER],
    ..V32
};

pub(in super::super) fn deepseek_v32(tools: &Tools) -> impl ToolParser + use<> {
    FunctionBlock::parser(&V32, tools)
}

pub(in super::super) fn deepseek_v4(tools: &Tools) -> impl ToolParser + use<> {
    FunctionBlock::parser(&V4, tools)
}

pub(in super::super) fn deepseek_v41(tools: &Tools) -> impl ToolParser + use<> {
    FunctionBlock::parser(&V41, tools)
}
