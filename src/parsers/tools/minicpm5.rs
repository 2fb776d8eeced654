//! MiniCPM5, whose calls are XML:
//! ```text
//! <function name="now"><param name="utc">true</param></function>
//! ```
//! A call comes all at once. Only its end shows whether it is one, and whether it is XML, in which
//! characters may be escaped.

use indexmap::IndexMap;
use serde_json::{Value, value::RawValue};

use super::{
    super::scan::{MarkerFinder, python_to_json, quote_json},
    block::{Block, BlockParser, Step},
    calls::Calls,
    params::{Params, params},
    parser::ToolParser,
    schema::{Tools, Types},
    tagged_values::convert,
};

/// The beginning of a function's tag. Some texts lack the space, or have the tokenizer's mark of
/// one.
const FUNCTION: &[&str] = &[
    "<functionname=",
    "<function ",
    "<function\n",
    "<function\r",
    "<function\t",
    "<function\u{120}",
    "<function\u{10a}",
];
/// The place of the beginning that has the attribute's name, too.
const WITH_NAME: usize = 0;
const NAME: &str = "name=";
const FUNCTION_END: &str = "</function>";

/// Names of a parameter that holds all others.
const WRAPPERS: [&str; 2] = ["properties", "arguments"];

/// Bytes of the longest tag of a function.
const MAX_TAG_LEN: usize = 256;

struct XmlBlock {
    tools: Tools,
    state: State,
}

enum State {
    /// The rest of the function's tag.
    Tag(String),
    Body {
        name: String,
        /// The attributes after the name.
        attributes: String,
        text: String,
        end: MarkerFinder,
    },
}

impl Block for XmlBlock {
    const SPECIAL_TOKENS: bool = true;

    fn markers(&self) -> &'static [&'static str] {
        FUNCTION
    }

    fn open(&mut self, marker: usize) {
        let text = if marker == WITH_NAME { NAME } else { "" };
        self.state = State::Tag(text.to_owned());
    }

    fn step(&mut self, c: char, calls: &mut Calls) -> Step {
        match &mut self.state {
            State::Tag(text) if c == '>' => {
                let Some((name, attributes)) = name(text) else { return Step::Refused };
                self.state = State::Body {
                    name: name.to_owned(),
                    attributes: attributes.to_owned(),
                    text: String::new(),
                    end: MarkerFinder::new(&[FUNCTION_END]),
                };
            }
            State::Tag(text) => {
                text.push(c);
                let begin = text.trim_start_matches(is_space);
                let may_have_name = begin.starts_with(NAME) || NAME.starts_with(begin);
                if text.len() > MAX_TAG_LEN || c == '<' || !may_have_name {
                    return Step::Refused;
                }
            }
            State::Body { name, attributes, text, end } => {
                if end.push(c, text).is_none() {
                    return Step::More;
                }
                match params(attributes, &plain(text)).and_then(|p| arguments(p, name, &self.tools))
                {
                    Some(json) => {
                        calls.start(std::mem::take(name), None);
                        calls.arguments(&json);
                        calls.end();
                    }
                    // It is no call.
                    None => calls.refuse(),
                }
                return Step::Done;
            }
        }
        Step::More
    }

    fn is_done(&self) -> bool {
        false
    }
}

/// Returns the name of a function and the text after it, from the text after the beginning of its
/// tag.
fn name(text: &str) -> Option<(&str, &str)> {
    let is_quote = |c: char| matches!(c, '"' | '\'');
    let quoted = text.trim_start_matches(is_space).strip_prefix(NAME)?;
    let (name, attributes) = quoted.strip_prefix(is_quote)?.split_once(is_quote)?;
    (!name.trim().is_empty()).then_some((name.trim(), attributes))
}

/// Returns whether a character is white space, or the tokenizer's mark of it.
fn is_space(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\u{120}' | '\u{10a}')
}

/// Returns text with the tokenizer's marks of white space replaced.
fn plain(text: &str) -> String {
    let text = text.replace('\u{120}', " ").replace('\u{10a}', "\n");
    text.replace("<paramname=", "<param name=")
}

/// Returns the arguments of a call as JSON. Parameters that the tool does not have are left out.
/// `None` if a name is repeated, or if a parameter that should hold all others does not.
fn arguments(params: Params, tool: &str, tools: &Tools) -> Option<String> {
    let properties = tools.parameters(tool).and_then(|schema| schema.get("properties"));
    let properties = properties.and_then(Value::as_object).filter(|names| !names.is_empty());
    let has = |name: &str| properties.is_none_or(|properties| properties.contains_key(name));
    let types = |name: &str| tools.types(tool, name).unwrap_or(Types::ANY);
    let mut values: IndexMap<String, String> = IndexMap::new();
    for (name, text) in params {
        if !has(&name) && WRAPPERS.contains(&&*name) {
            let fields = object(&text)?.into_iter().filter(|(name, _)| has(name));
            let num_values = values.len();
            for (name, value) in fields {
                let json = match serde_json::from_str::<String>(value.get()) {
                    Ok(text) => convert(&text, types(&name)),
                    Err(_) if types(&name) == Types::STRING => quote_json(value.get()),
                    Err(_) => value.get().to_owned(),
                };
                if values.insert(name, json).is_some() {
                    return None;
                }
            }
            if values.len() == num_values {
                return None;
            }
        } else if has(&name) {
            let json = convert(&text, types(&name));
            if values.insert(name, json).is_some() {
                return None;
            }
        }
    }
    let fields = values.iter().map(|(name, value)| format!("{}: {value}", quote_json(name)));
    Some(format!("{{{}}}", fields.collect::<Vec<_>>().join(", ")))
}

/// Returns the fields of the object that `text` is, as JSON or as Python writes it. Values are as
/// written, because numbers may have any length.
fn object(text: &str) -> Option<IndexMap<String, Box<RawValue>>> {
    let read = |json: &str| {
        // Raw values may be numbers beyond all bounds.
        serde_json::from_str::<Value>(json).ok().filter(Value::is_object)?;
        serde_json::from_str(json).ok()
    };
    read(text).or_else(|| read(&python_to_json(text)?))
}

/// Returns a parser of this format. The tags are special tokens.
pub(in super::super) fn minicpm5(tools: &Tools) -> impl ToolParser + use<> {
    let (tools, state) = (tools.clone(), State::Tag(String::new()));
    BlockParser::new(XmlBlock { tools, state })
}
