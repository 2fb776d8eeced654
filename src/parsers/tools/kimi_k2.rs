//! Kimi K2, whose calls have ids:
//! ```text
//! <|tool_calls_section_begin|><|tool_call_begin|>functions.now:0<|tool_call_argument_begin|>
//! {"utc": true}<|tool_call_end|><|tool_calls_section_end|>
//! ```

use serde_json::{Value, json};

use super::{
    block::BlockParser,
    parser::ToolParser,
    schema::Tools,
    section::{Head, ReadHead, Section, SectionFormat},
    strict::Frame,
};

const FORMAT: SectionFormat = SectionFormat {
    markers: ["<|tool_calls_section_begin|>", "<|tool_call_begin|>"],
    separator: "<|tool_call_argument_begin|>",
    after_arguments: &["<|tool_call_end|>"],
    call_end: 0,
    between: &["<|tool_call_begin|>", "<|tool_calls_section_end|>"],
    frames: &[Frame {
        trigger: "<|tool_calls_section_begin|>",
        open: "",
        separator: Some(""),
        close: "<|tool_calls_section_end|>",
    }],
};

/// `functions.NAME:COUNT`, which is also the id. A count alone if there is only one tool.
struct IdWithName {
    only_tool: Option<String>,
}

impl ReadHead for IdWithName {
    fn read(&self, text: &str) -> Option<Head> {
        let id = text.trim();
        let is_count = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
        let name = match id.rsplit_once(':') {
            Some((name, count)) if is_count(count) => {
                name.strip_prefix("functions.").unwrap_or(name).to_owned()
            }
            None if is_count(id) => self.only_tool.clone()?,
            _ => return None,
        };
        (!name.is_empty()).then(|| Head { name, id: Some(id.to_owned()) })
    }

    fn write(&self, name: &str, arguments: Value) -> Option<Value> {
        Some(json!({
            "type": "tag",
            "begin": format!("<|tool_call_begin|>functions.{name}:"),
            "content": {"type": "sequence", "elements": [
                {"type": "regex", "pattern": "[0-9]{1,4}"},
                {"type": "const_string", "value": "<|tool_call_argument_begin|>"},
                arguments,
            ]},
            "end": "<|tool_call_end|>",
        }))
    }
}

pub(in super::super) fn kimi_k2(tools: &Tools) -> impl ToolParser + use<> {
    let mut names = tools.names();
    let only_tool = names.next().filter(|_| names.next().is_none()).map(str::to_owned);
    BlockParser::new(Section::new(&FORMAT, IdWithName { only_tool }))
}
