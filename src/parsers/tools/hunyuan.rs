//! Hunyuan 3 and 4. Every value is a text between tags, as in GLM 4.5, and calls are in a section:
//! ```text
//! <tool_calls>
//! <tool_call>now<tool_sep>
//! <arg_key>utc</arg_key>
//! <arg_value>true</arg_value>
//! </tool_call>
//! </tool_calls>
//! ```
//! In some models all tags have a suffix, as in `<tool_calls:6124c78e>`. That of the section's tag
//! is the suffix of the others. Hunyuan 4 leaves out `<tool_sep>`.

use super::{
    argument_block::{ArgumentBlock, ArgumentFormat},
    parser::ToolParser,
    schema::{Tools, Types},
};

const FORMAT: ArgumentFormat = ArgumentFormat {
    openings: &["<tool_calls>", "<tool_calls:"],
    prefix: "",
    has_section: true,
    has_separator: true,
    unknown: Types::STRING,
};

pub(in super::super) fn hunyuan(tools: &Tools) -> impl ToolParser + use<> {
    ArgumentBlock::parser(&FORMAT, tools)
}
