//! Thoughts, content and calls of one answer.

use super::{
    event::{MessageEvent, ReasoningEvent, ToolEvent},
    reasoning::ReasoningParser,
    tools::{CallIdFormat, ToolParser},
};

/// Reads one answer: first its thoughts, then the calls in the remaining text. Without parsers, all
/// text is content.
#[derive(Default)]
pub struct MessageParser {
    reasoning: Option<Box<dyn ReasoningParser>>,
    tools: Option<Box<dyn ToolParser>>,
    max_calls: Option<usize>,
    allowed: Option<Vec<String>>,
    /// Calls that were passed on.
    num_calls: usize,
    /// Whether the current call is left out.
    is_left_out: bool,
    /// Whether a call has begun, and neither ended nor broken.
    is_in_call: bool,
    /// Thoughts since the begin of the call. They are reported behind it.
    held: String,
}

impl MessageParser {
    /// Returns a parser of messages over these parsers.
    pub fn new(
        reasoning: Option<Box<dyn ReasoningParser>>,
        tools: Option<Box<dyn ToolParser>>,
    ) -> Self {
        Self { reasoning, tools, ..Self::default() }
    }

    /// Leaves out the calls after the first `max_calls`. `parallel_tool_calls: false` means a limit
    /// of one.
    #[must_use]
    pub fn with_max_calls(self, max_calls: usize) -> Self {
        Self { max_calls: Some(max_calls), ..self }
    }

    /// Leaves out the calls of all other functions, for a `tool_choice` of `allowed_tools`.
    #[must_use]
    pub fn with_allowed(self, names: Vec<String>) -> Self {
        Self { allowed: Some(names), ..self }
    }

    /// Takes the next piece of text.
    pub fn push(&mut self, text: &str) -> Vec<MessageEvent> {
        let mut events = Vec::new();
        match &mut self.reasoning {
            Some(reasoning) => {
                let parts = reasoning.push(text);
                self.answer(parts, &mut events);
            }
            None => self.content(text, &mut events),
        }
        events
    }

    /// Ends the text. Nothing may be pushed afterwards.
    pub fn finish(&mut self) -> Vec<MessageEvent> {
        self.end(|tools| tools.finish())
    }

    /// As [`finish`](Self::finish), for a text that the model ended and that was not cut off.
    pub fn finish_stopped(&mut self) -> Vec<MessageEvent> {
        self.end(|tools| tools.finish_stopped())
    }

    fn end(&mut self, finish: fn(&mut dyn ToolParser) -> Vec<ToolEvent>) -> Vec<MessageEvent> {
        let mut events = Vec::new();
        if let Some(reasoning) = &mut self.reasoning {
            let parts = reasoning.finish();
            self.answer(parts, &mut events);
        }
        if let Some(tools) = &mut self.tools {
            let parts = finish(&mut **tools);
            self.keep(parts, &mut events);
        }
        events
    }

    /// Returns whether the text begins with thoughts, before any marker.
    pub fn starts_in_reasoning(&self) -> bool {
        self.reasoning.as_ref().is_some_and(|parser| parser.starts_in_reasoning())
    }

    /// Returns whether the text must show special tokens.
    pub fn needs_special_tokens(&self) -> bool {
        self.reasoning.as_ref().is_some_and(|parser| parser.needs_special_tokens())
            || self.tools.as_ref().is_some_and(|parser| parser.needs_special_tokens())
    }

    /// Returns the required format of calls' ids.
    pub fn call_id_format(&self) -> CallIdFormat {
        self.tools.as_ref().map_or(CallIdFormat::Any, |parser| parser.call_id_format())
    }

    fn answer(&mut self, parts: Vec<ReasoningEvent>, events: &mut Vec<MessageEvent>) {
        for part in parts {
            match part {
                ReasoningEvent::Reasoning(text) if self.is_in_call => self.held.push_str(&text),
                ReasoningEvent::Reasoning(text) => events.push(MessageEvent::Reasoning(text)),
                ReasoningEvent::Content(text) => self.content(&text, events),
            }
        }
    }

    fn content(&mut self, text: &str, events: &mut Vec<MessageEvent>) {
        let parts = match &mut self.tools {
            Some(tools) => tools.push(text),
            None if text.is_empty() => return,
            None => vec![ToolEvent::Content(text.to_owned())],
        };
        self.keep(parts, events);
    }

    fn keep(&mut self, parts: Vec<ToolEvent>, events: &mut Vec<MessageEvent>) {
        for mut part in parts {
            if let ToolEvent::CallStart { name, .. } = &part {
                self.is_left_out = self.leaves_out(name);
                self.num_calls += usize::from(!self.is_left_out);
                self.is_in_call = !self.is_left_out;
            }
            match &mut part {
                ToolEvent::Content(_) => {}
                _ if self.is_left_out => continue,
                ToolEvent::CallStart { index, .. } | ToolEvent::CallArguments { index, .. } => {
                    *index = self.num_calls - 1;
                }
                ToolEvent::CallEnd { index } | ToolEvent::CallBroken { index } => {
                    *index = self.num_calls - 1;
                    self.is_in_call = false;
                }
            }
            events.push(MessageEvent::Answer(part));
            if !self.is_in_call && !self.held.is_empty() {
                events.push(MessageEvent::Reasoning(std::mem::take(&mut self.held)));
            }
        }
    }

    fn leaves_out(&self, name: &str) -> bool {
        let is_allowed = |allowed: &Vec<String>| allowed.iter().any(|allowed| allowed == name);
        self.max_calls.is_some_and(|max| self.num_calls >= max)
            || !self.allowed.as_ref().is_none_or(is_allowed)
    }
}

/// A complete answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Message {
    /// The model's thoughts.
    pub reasoning: String,
    /// The content.
    pub content: String,
    /// The calls, including incomplete ones.
    pub calls: Vec<ParsedCall>,
}

/// A call of a complete answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsedCall {
    /// The id that the model gave it, in formats that have one.
    pub id: Option<String>,
    /// The function.
    pub name: String,
    /// The text of a JSON value, or its beginning if the call is incomplete.
    pub arguments: String,
    /// Whether the call was neither cut off nor malformed.
    pub is_complete: bool,
}

impl Message {
    /// Reads all of `text`.
    pub fn parse(mut parser: MessageParser, text: &str) -> Self {
        let mut message = Self::default();
        message.extend(parser.push(text));
        message.extend(parser.finish());
        message
    }
}

impl Extend<MessageEvent> for Message {
    fn extend<I: IntoIterator<Item = MessageEvent>>(&mut self, events: I) {
        for event in events {
            match event {
                MessageEvent::Reasoning(text) => self.reasoning.push_str(&text),
                MessageEvent::Answer(ToolEvent::Content(text)) => self.content.push_str(&text),
                MessageEvent::Answer(ToolEvent::CallStart { name, id, .. }) => {
                    let arguments = String::new();
                    self.calls.push(ParsedCall { id, name, arguments, is_complete: false });
                }
                MessageEvent::Answer(ToolEvent::CallArguments { delta, .. }) => {
                    if let Some(call) = self.calls.last_mut() {
                        call.arguments.push_str(&delta);
                    }
                }
                MessageEvent::Answer(ToolEvent::CallEnd { .. }) => {
                    if let Some(call) = self.calls.last_mut() {
                        call.is_complete = true;
                    }
                }
                MessageEvent::Answer(ToolEvent::CallBroken { .. }) => {}
            }
        }
    }
}
