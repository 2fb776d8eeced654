//! GLM 4.5 to 4.7. Every value is a text between tags: strings as they are, and all other values as
//! JSON:
//! ```text
//! <tool_call>now
//! <arg_key>utc</arg_key>
//! <arg_value>true</arg_value>
//! </tool_call>
//! ```

use super::{
    argument_block::{ArgumentBlock, ArgumentFormat},
    parser::ToolParser,
    schema::{Tools, Types},
};

const FORMAT: ArgumentFormat = ArgumentFormat {
    openings: &["<tool_call>"],
    prefix: "",
    has_section: false,
    has_separator: false,
    unknown: Types::ANY,
};

pub(in super::super) fn glm45(tools: &Tools) -> impl ToolParser + use<> {
    ArgumentBlock::parser(&FORMAT, tools)
}
