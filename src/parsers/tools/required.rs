//! The answer to a required `tool_choice`: only a list of calls, whatever the model is.
//!
//! `[{"name": "now", "parameters": {"utc": true}}]`

use super::{
    block::{Block, BlockParser, Step},
    calls::Calls,
    json::FORMAT,
    json_block::JsonBlock,
    parser::ToolParser,
};

/// A list that the text is constrained to. A list that is cut off ends with an incomplete call, or
/// with none.
struct RequiredCalls(JsonBlock<false>);

impl Block for RequiredCalls {
    const SPECIAL_TOKENS: bool = false;

    fn markers(&self) -> &'static [&'static str] {
        self.0.markers()
    }

    fn is_anywhere(&self) -> bool {
        self.0.is_anywhere()
    }

    fn open(&mut self, marker: usize) {
        self.0.open(marker);
    }

    fn step(&mut self, c: char, calls: &mut Calls) -> Step {
        self.0.step(c, calls)
    }

    fn cut(&mut self, calls: &mut Calls) {
        self.0.cut_call(calls);
        if !calls.is_open() {
            calls.forget();
        }
    }

    fn is_done(&self) -> bool {
        self.0.is_done()
    }
}

/// Returns the parser of required calls for all models, because their text is constrained to this
/// form.
pub fn required_call_parser() -> impl ToolParser {
    BlockParser::new(RequiredCalls(JsonBlock::new(&FORMAT)))
}

#[cfg(test)]
mod tests {
    use super::{super::super::event::ToolEvent, *};

    fn read(text: &str) -> Vec<ToolEvent> {
        let mut parser = required_call_parser();
        let mut events = parser.push(text);
        events.extend(parser.finish());
        events
    }

    #[test]
    fn incomplete_calls_do_not_become_text() {
        let text =
            r#"[{"name": "now", "parameters": {"a": "]"}}, {"name": "b", "parameters": {}}]"#;
        let named = text.find(", \"param").unwrap();
        for end in 0..text.len() {
            let events = read(&text[..end]);
            let is_text = |event: &ToolEvent| matches!(event, ToolEvent::Content(_));
            assert!(!events.iter().any(is_text), "{end}: {events:?}");
            let start = ToolEvent::CallStart { index: 0, name: "now".to_owned(), id: None };
            assert_eq!(events.first() == Some(&start), end >= named, "{end}: {events:?}");
        }
        let cut = read(&text[..text.rfind('}').unwrap() - 1]);
        assert_eq!(cut.last(), Some(&ToolEvent::CallBroken { index: 1 }));
    }
}
