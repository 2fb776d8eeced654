//! DeepSeek V3 and R1, which fence the arguments as Markdown, and V3.1, which does not:
//! ~~~text
//! <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>now
//! ```json
//! {"utc": true}
//! ```<｜tool▁call▁end｜><｜tool▁calls▁end｜>
//!
//! <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{"utc": true}<｜tool▁call▁end｜>…
//! ~~~

use super::{
    block::BlockParser,
    parser::ToolParser,
    section::{Head, ReadHead, Section, SectionFormat},
};

const SEPARATOR: &str = "<｜tool▁sep｜>";

const V3: SectionFormat = SectionFormat {
    markers: ["<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"],
    separator: "```json\n",
    after_arguments: &["```", "<｜tool▁call▁end｜>"],
    call_end: 1,
    between: &["<｜tool▁call▁begin｜>", "<｜tool▁calls▁end｜>"],
};

const V31: SectionFormat = SectionFormat {
    markers: V3.markers,
    separator: SEPARATOR,
    after_arguments: &["<｜tool▁call▁end｜>"],
    call_end: 0,
    between: V3.between,
};

/// The kind of the tool, a separator, its name.
struct KindAndName;

impl ReadHead for KindAndName {
    fn read(&self, text: &str) -> Option<Head> {
        let (_kind, name) = text.split_once(SEPARATOR)?;
        NameAlone.read(name)
    }
}

struct NameAlone;

impl ReadHead for NameAlone {
    fn read(&self, text: &str) -> Option<Head> {
        let name = text.trim();
        let is_name = !name.is_empty() && !name.contains(['\n', '<']);
        is_name.then(|| Head { name: name.to_owned(), id: None })
    }
}

pub(in super::super) fn deepseek_v3() -> impl ToolParser {
    BlockParser::new(Section::new(&V3, KindAndName))
}

pub(in super::super) fn deepseek_v31() -> impl ToolParser {
    BlockParser::new(Section::new(&V31, NameAlone))
}
