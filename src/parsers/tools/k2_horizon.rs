//! K2 Horizon. Every value is a text between tags, as in GLM 4.5, and calls are in a section. The
//! template may have the model write the type of a value before it:
//! ```text
//! <ifm|tool_calls>
//! <ifm|tool_call>now
//! <ifm|arg_key>utc</ifm|arg_key>
//! <ifm|arg_type>boolean</ifm|arg_type>
//! <ifm|arg_value>true</ifm|arg_value>
//! </ifm|tool_call>
//! </ifm|tool_calls>
//! ```
//! vLLM also reads calls as JSON, where the request's `tool_call_format` says so. Here they are
//! content.

use super::{
    argument_block::{ArgumentBlock, ArgumentFormat},
    parser::ToolParser,
    schema::{Tools, Types},
};

const FORMAT: ArgumentFormat = ArgumentFormat {
    openings: &["<ifm|tool_calls>"],
    prefix: "ifm|",
    has_section: true,
    has_separator: false,
    unknown: Types::STRING,
};

pub(in super::super) fn k2_horizon(tools: &Tools) -> impl ToolParser + use<> {
    ArgumentBlock::parser(&FORMAT, tools)
}
