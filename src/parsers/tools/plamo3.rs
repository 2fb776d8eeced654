//! PLaMo 3. Its calls are names and JSON objects between markers:
//! ```text
//! <|plamo:begin_tool_requests:plamo|><|plamo:begin_tool_request:plamo|>
//! <|plamo:begin_tool_name:plamo|>now<|plamo:end_tool_name:plamo|>
//! <|plamo:begin_tool_arguments:plamo|><|plamo:constrain|>json<|plamo:msg|>
//! {"utc": true}<|plamo:end_tool_arguments:plamo|>
//! <|plamo:end_tool_request:plamo|><|plamo:end_tool_requests:plamo|>
//! ```

use serde_json::{Value, json};

use super::{
    block::BlockParser,
    parser::ToolParser,
    section::{Head, ReadHead, Section, SectionFormat},
    strict::Frame,
};

const REQUESTS: &str = "<|plamo:begin_tool_requests:plamo|>";
const REQUESTS_END: &str = "<|plamo:end_tool_requests:plamo|>";
const REQUEST: &str = "<|plamo:begin_tool_request:plamo|>";
const REQUEST_END: &str = "<|plamo:end_tool_request:plamo|>";
const NAME: &str = "<|plamo:begin_tool_name:plamo|>";
const NAME_END: &str = "<|plamo:end_tool_name:plamo|>";
const ARGUMENTS: &str = "<|plamo:begin_tool_arguments:plamo|><|plamo:constrain|>json<|plamo:msg|>";
const ARGUMENTS_END: &str = "<|plamo:end_tool_arguments:plamo|>";

const FORMAT: SectionFormat = SectionFormat {
    markers: [REQUESTS, REQUEST],
    separator: ARGUMENTS,
    after_arguments: &[ARGUMENTS_END, REQUEST_END],
    call_end: 1,
    between: &[REQUEST, REQUESTS_END],
    frames: &[Frame { trigger: REQUESTS, open: "", separator: Some(""), close: REQUESTS_END }],
};

/// A name between its markers.
struct MarkedName;

impl ReadHead for MarkedName {
    fn read(&self, text: &str) -> Option<Head> {
        let name = text.trim().strip_prefix(NAME)?.strip_suffix(NAME_END)?.trim();
        let is_name = !name.is_empty() && !name.contains(['\n', '<']);
        is_name.then(|| Head { name: name.to_owned(), id: None })
    }

    fn write(&self, name: &str, arguments: Value) -> Option<Value> {
        Some(json!({
            "type": "tag",
            "begin": format!("{REQUEST}{NAME}{name}{NAME_END}{ARGUMENTS}"),
            "content": arguments,
            "end": format!("{ARGUMENTS_END}{REQUEST_END}"),
        }))
    }
}

pub(in super::super) fn plamo3() -> impl ToolParser {
    BlockParser::new(Section::new(&FORMAT, MarkedName))
}
