//! DeepSeek V3 and R1, which fence the arguments as Markdown, and V3.1, which does not:
//! ~~~text
//! <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>now
//! ```json
//! {"utc": true}
//! ```<｜tool▁call▁end｜><｜tool▁calls▁end｜>
//!
//! <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{"utc": true}<｜tool▁call▁end｜>…
//! ~~~

use serde_json::{Value, json};

use super::{
    block::BlockParser,
    parser::ToolParser,
    section::{Head, ReadHead, Section, SectionFormat},
    strict::Frame,
};

const SEPARATOR: &str = "<｜tool▁sep｜>";

const V3: SectionFormat = SectionFormat {
    markers: ["<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"],
    separator: "```json\n",
    after_arguments: &["```", "<｜tool▁call▁end｜>"],
    call_end: 1,
    between: &["<｜tool▁call▁begin｜>", "<｜tool▁calls▁end｜>"],
    frames: &[Frame {
        trigger: "<｜tool▁calls▁begin｜>",
        open: "",
        separator: Some("\n"),
        close: "<｜tool▁calls▁end｜>",
    }],
};

const V31: SectionFormat = SectionFormat {
    markers: V3.markers,
    separator: SEPARATOR,
    after_arguments: &["<｜tool▁call▁end｜>"],
    call_end: 0,
    between: V3.between,
    frames: &[Frame {
        trigger: V3.markers[0],
        open: "",
        separator: Some(""),
        close: V3.between[1],
    }],
};

/// The kind of the tool, a separator, and its name.
struct KindAndName;

impl ReadHead for KindAndName {
    fn read(&self, text: &str) -> Option<Head> {
        let (_kind, name) = text.split_once(SEPARATOR)?;
        NameAlone.read(name)
    }

    fn write(&self, name: &str, arguments: Value) -> Option<Value> {
        Some(json!({
            "type": "tag",
            "begin": format!("<｜tool▁call▁begin｜>function{SEPARATOR}{name}\n```json\n"),
            "content": arguments,
            "end": "\n```<｜tool▁call▁end｜>",
        }))
    }
}

struct NameAlone;

impl ReadHead for NameAlone {
    fn read(&self, text: &str) -> Option<Head> {
        let name = text.trim();
        let is_name = !name.is_empty() && !name.contains(['\n', '<']);
        is_name.then(|| Head { name: name.to_owned(), id: None })
    }

    fn write(&self, name: &str, arguments: Value) -> Option<Value> {
        Some(json!({
            "type": "tag",
            "begin": format!("<｜tool▁call▁begin｜>{name}{SEPARATOR}"),
            "content": arguments,
            "end": "<｜tool▁call▁end｜>",
        }))
    }
}

pub(in super::super) fn deepseek_v3() -> impl ToolParser {
    BlockParser::new(Section::new(&V3, KindAndName))
}

pub(in super::super) fn deepseek_v31() -> impl ToolParser {
    BlockParser::new(Section::new(&V31, NameAlone))
}
