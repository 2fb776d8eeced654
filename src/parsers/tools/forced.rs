//! The answer to a named `tool_choice`: only the arguments.

use super::{
    super::{
        event::ToolEvent,
        scan::{JsonScanner, JsonStep, escape_json_char},
    },
    calls::Calls,
    parser::ToolParser,
};

/// Reads the text as the arguments of a call to one function. The request named the function, and
/// the text is constrained to its parameters. This parser is not in the registry, because the
/// request chooses it, whatever the model is.
pub struct NamedCallParser {
    name: String,
    calls: Calls,
    scanner: JsonScanner,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Before,
    Arguments,
    After,
}

impl NamedCallParser {
    /// Returns a parser of a call to `name`.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            calls: Calls::new(),
            scanner: JsonScanner::default(),
            state: State::Before,
        }
    }

    fn step(&mut self, c: char) {
        if self.state == State::After || self.state == State::Before && c.is_whitespace() {
            return self.calls.content(c.encode_utf8(&mut [0; 4]));
        }
        let mut text = String::new();
        let step = self.scanner.step(c);
        match step {
            JsonStep::Control => escape_json_char(c, &mut text),
            JsonStep::More | JsonStep::Done => text.push(c),
            JsonStep::DoneBefore | JsonStep::Bad => {}
        }
        if self.state == State::Before && step != JsonStep::Bad {
            self.calls.start(self.name.clone(), None);
            self.state = State::Arguments;
        }
        self.calls.arguments(&text);
        match step {
            JsonStep::More | JsonStep::Control => {
                return self.calls.hold(c.encode_utf8(&mut [0; 4]));
            }
            JsonStep::Bad => self.calls.refuse(),
            JsonStep::Done | JsonStep::DoneBefore => self.calls.end(),
        }
        self.state = State::After;
        if step != JsonStep::Done {
            self.step(c);
        }
    }
}

impl ToolParser for NamedCallParser {
    fn push(&mut self, text: &str) -> Vec<ToolEvent> {
        text.chars().for_each(|c| self.step(c));
        self.calls.take()
    }

    fn finish(&mut self) -> Vec<ToolEvent> {
        if self.state == State::Arguments {
            // White space ends a number, and nothing else.
            match self.scanner.step('\n') {
                JsonStep::DoneBefore => self.calls.end(),
                _ => self.calls.refuse(),
            }
            self.state = State::After;
        }
        self.calls.finish();
        self.calls.take()
    }
}
