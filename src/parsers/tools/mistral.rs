//! Mistral. Before the tokenizer's version 11: `[TOOL_CALLS][{"name": "now", "arguments": {}}]`.
//! Since then: `[TOOL_CALLS]now{"utc": true}`. Versions that have these tokens write `[ARGS]`
//! before the arguments, and `[CALL_ID]abcdefghi` before that.

use serde_json::{Value, json};

use super::{
    block::{Block, BlockParser, Step},
    call_object::Rigour,
    calls::Calls,
    json_block::{JsonCalls, Shape},
    parser::{CallIdFormat, ToolParser},
    schema::Tools,
    section::JsonArguments,
    strict::{Frame, is_plain, object_call, structural_tag},
};

const MARKER: &str = "[TOOL_CALLS]";
const CALL_ID: &str = "[CALL_ID]";
const ARGS: &str = "[ARGS]";

/// Bytes of the longest head.
const MAX_HEAD_LEN: usize = 512;

struct MistralBlock {
    state: State,
}

enum State {
    /// White space, then a list or a head.
    Open,
    Objects(JsonCalls),
    /// All text before the arguments.
    Head(String),
    Arguments {
        name: String,
        id: Option<String>,
        arguments: JsonArguments,
    },
}

impl Block for MistralBlock {
    const SPECIAL_TOKENS: bool = true;
    const CALL_IDS: CallIdFormat = CallIdFormat::NineAlphanumerics;

    fn markers(&self) -> &'static [&'static str] {
        &[MARKER]
    }

    fn open(&mut self, _marker: usize) {
        self.state = State::Open;
    }

    fn step(&mut self, c: char, calls: &mut Calls) -> Step {
        match &mut self.state {
            State::Open if c.is_whitespace() => Step::More,
            State::Open if matches!(c, '[' | '{') => {
                let mut objects = JsonCalls::new(Shape::ObjectOrList, Rigour::Loose);
                let step = objects.step(c, calls);
                self.state = State::Objects(objects);
                step
            }
            State::Open => {
                self.state = State::Head(c.to_string());
                Step::More
            }
            State::Objects(objects) => objects.step(c, calls),
            State::Head(text) if c == '{' => {
                let Some((name, id)) = read_head(text) else { return Step::Refused };
                let mut arguments = JsonArguments::default();
                let step = arguments.step(c, &name, id.as_deref(), calls);
                self.state = State::Arguments { name, id, arguments };
                step
            }
            State::Head(text) => {
                text.push(c);
                if text.len() > MAX_HEAD_LEN { Step::Refused } else { check_head(text) }
            }
            State::Arguments { name, id, arguments } => {
                arguments.step(c, name, id.as_deref(), calls)
            }
        }
    }

    /// Allows objects in a list, and a name with its arguments. The model knows which of them its
    /// version writes.
    fn strict_calls(&self, tools: &Tools, parallel_tool_calls: bool) -> Option<Value> {
        const LIST: Frame = Frame { trigger: MARKER, open: "[", separator: Some(", "), close: "]" };
        const NAMED: Frame = Frame { trigger: MARKER, open: "", separator: None, close: "" };
        let parallel = parallel_tool_calls;
        let mut tag = structural_tag(&[LIST], None, tools, parallel, object_call)?;
        for args in ["", ARGS] {
            let named = structural_tag(&[NAMED], None, tools, parallel, |name, arguments| {
                let begin = [name, args].concat();
                let call = json!({"type": "tag", "begin": begin, "content": arguments, "end": ""});
                is_plain(name).then_some(call)
            })?;
            let tags = tag["format"]["tags"].as_array_mut()?;
            tags.extend(named["format"]["tags"].as_array().cloned()?);
        }
        Some(tag)
    }

    fn is_done(&self) -> bool {
        false
    }
}

/// Accepts only one word as a name, so that text after a stray marker soon becomes content.
fn check_head(text: &str) -> Step {
    let name = text.split('[').next().unwrap_or_default();
    let is_word = !name.trim_end().contains(char::is_whitespace);
    if is_word { Step::More } else { Step::Refused }
}

fn read_head(text: &str) -> Option<(String, Option<String>)> {
    let text = text.trim_end();
    let text = text.strip_suffix(ARGS).unwrap_or(text);
    let (name, id) = match text.split_once(CALL_ID) {
        Some((name, id)) => (name, Some(id.trim().to_owned())),
        None => (text, None),
    };
    let name = name.trim();
    let is_name = !name.is_empty() && !name.contains(['[', ']']);
    is_name.then(|| (name.to_owned(), id.filter(|id| !id.is_empty())))
}

pub(in super::super) fn mistral() -> impl ToolParser {
    BlockParser::new(MistralBlock { state: State::Open })
}
