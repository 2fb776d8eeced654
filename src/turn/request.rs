//! Turns a client's wishes for a turn into the request for the engine and the reader of its answer.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{
    call_id::CallIds,
    error::TurnError,
    parsers::{Reasoning, TurnParsers},
    reader::{NoteReading, TurnReader},
    reasoning_tokens::ReasoningTokens,
    tool_choice::ToolChoice,
};
use crate::api::{
    ChatPrompt, OutputFormat, Prompt, RawRequest, SamplingParams, StructuredOutput, TextCodec,
    Thinking,
};
use crate::parsers::{
    ForcedCall, MessageParser, NamedCallParser, ReasoningStart, ToolParser, ToolParserFactory,
    Tools, constraint_schema, required_call_parser,
};

/// Tokens at a prompt's end that show whether it opens thoughts.
const PROMPT_TAIL: usize = 64;

/// A client's wishes for the next turn. `params` are the client's own. This module adds the
/// parameters that the turn needs.
pub(crate) struct TurnRequest {
    /// The conversation, with the tools in the form of chat completions.
    pub(crate) chat: ChatPrompt,
    /// Whether the model may or must call them.
    pub(crate) tool_choice: ToolChoice,
    /// Whether one turn may hold several calls.
    pub(crate) parallel_tool_calls: bool,
    /// The structure of the answer. A call that must be made has a structure of its own.
    pub(crate) format: Option<StructuredOutput>,
    /// Most tokens of thought.
    pub(crate) thinking_token_budget: Option<u32>,
    /// Whether the client wants to see thoughts.
    pub(crate) include_reasoning: bool,
    /// The sampling parameters.
    pub(crate) params: SamplingParams,
    /// Most output tokens. `None`: as many as the context leaves.
    pub(crate) max_tokens: Option<u32>,
}

/// The way to read the answers to one request.
#[derive(Clone)]
pub(crate) struct TurnStyle {
    calls: Calls,
    tools: Tools,
    max_calls: Option<usize>,
    reasoning: Option<Reasoning>,
    thinking: Option<bool>,
    /// The answer continues a message at the prompt's end.
    goes_on: bool,
    include_reasoning: bool,
    holds_strict: bool,
    codec: Arc<dyn TextCodec>,
    note: Option<NoteReading>,
}

/// The way to find calls.
#[derive(Clone)]
enum Calls {
    None,
    Auto(ToolParserFactory),
    Required,
    Named(String),
}

impl TurnRequest {
    /// Returns the request for the engine, without the facts about its client, and the style that
    /// reads its answers.
    ///
    /// # Errors
    /// - If tools are to be called and there is no parser for that.
    /// - If a call cannot be forced, or if thoughts cannot be bounded.
    pub(crate) fn plan_with(
        self,
        parsers: &TurnParsers,
        codec: Arc<dyn TextCodec>,
    ) -> Result<(RawRequest, TurnStyle), TurnError> {
        let mut tools = Tools::from_request(self.chat.tools.as_deref().unwrap_or_default());
        let (calls, forced) = match self.tool_choice {
            ToolChoice::None => (Calls::None, None),
            ToolChoice::Auto => (Calls::Auto(auto(parsers)?), None),
            ToolChoice::Allowed => {
                tools = tools.limited();
                (Calls::Auto(auto(parsers)?), None)
            }
            ToolChoice::Required => (Calls::Required, Some(ForcedCall::Required)),
            ToolChoice::Named(name) => (Calls::Named(name.clone()), Some(ForcedCall::Named(name))),
        };
        let schema = forced.map(|call| constraint_schema(&tools, &call, self.parallel_tool_calls));
        let is_guess = parsers.reasoning.as_ref().is_some_and(|found| !found.precedes_structure);
        let bounds_guessed_thoughts = is_guess && self.thinking_token_budget.is_some();
        let strict = match &calls {
            // Guessed thoughts are bounded only if the text needs no structure.
            Calls::Auto(factory) if self.format.is_none() && !bounds_guessed_thoughts => {
                factory(&tools).strict_calls(&tools, self.parallel_tool_calls)
            }
            _ => None,
        };
        let holds_strict = strict.is_some();
        let structured_output = match (schema.transpose()?, strict) {
            (Some(schema), _) => Some(OutputFormat::JsonSchema(schema.to_string()).into()),
            (None, Some(tag)) => Some(OutputFormat::StructuralTag(tag.to_string()).into()),
            (None, None) => self.format,
        };
        let structured_output = structured_output.map(Arc::new);
        let style = TurnStyle {
            calls,
            tools,
            max_calls: (!self.parallel_tool_calls).then_some(1),
            reasoning: parsers.reasoning.clone(),
            thinking: thinking_switch(&self.chat.chat_template_kwargs),
            goes_on: self.chat.continue_final_message,
            include_reasoning: self.include_reasoning,
            holds_strict,
            codec,
            note: None,
        };
        let shows_special = style.parser(None).needs_special_tokens();
        let params = SamplingParams {
            thinking: style.thinking(self.thinking_token_budget, structured_output.is_some())?,
            structured_output,
            skip_special_tokens: self.params.skip_special_tokens && !shows_special,
            ..self.params
        };
        let max_tokens = self.max_tokens;
        let prompt = Prompt::Chat(Arc::new(self.chat));
        Ok((RawRequest { params, max_tokens, ..RawRequest::new(prompt) }, style))
    }
}

/// Returns the parser of calls that the model may make.
fn auto(parsers: &TurnParsers) -> Result<ToolParserFactory, TurnError> {
    parsers.tools.clone().ok_or(TurnError::NoToolParser)
}

/// Returns whether the request turns thinking on or off, under one of the names that templates
/// know.
fn thinking_switch(kwargs: &Map<String, Value>) -> Option<bool> {
    ["enable_thinking", "thinking"].iter().find_map(|name| kwargs.get(*name)?.as_bool())
}

/// Returns the end of the last marker of thoughts in `prompt`. A message that the answer continues
/// may be long and follow the marker. The marker still decides, as it does for the engine
/// ([`Thoughts`](crate::api::Thoughts)).
fn last_marker_end(markers: &Thinking, prompt: &[u32]) -> Option<usize> {
    let end = |marker: &[u32]| {
        let places = prompt.windows(marker.len().max(1));
        places.rev().position(|place| place == marker).map(|behind| prompt.len() - behind)
    };
    end(&markers.begin).max(end(&markers.end))
}

impl TurnStyle {
    /// Returns a reader for one choice of the answer `response_id`, which continues `prompt`.
    pub(crate) fn reader(&self, response_id: &str, choice: usize, prompt: &[u32]) -> TurnReader {
        let markers = self.reasoning.as_ref().and_then(|reasoning| reasoning.markers.clone());
        let end = markers.as_deref().filter(|_| self.goes_on);
        let end = end.and_then(|markers| last_marker_end(markers, prompt)).unwrap_or(prompt.len());
        let tail = &prompt[end.saturating_sub(PROMPT_TAIL)..end];
        let tail = self.reasoning.as_ref().and_then(|_| self.codec.decode(tail, false).ok());
        let parser = self.parser(tail.as_deref());
        let starts = parser.starts_in_reasoning();
        TurnReader {
            ids: CallIds::new(response_id, prompt, choice, parser.call_id_format()),
            is_named: matches!(self.calls, Calls::Named(_)),
            include_reasoning: self.include_reasoning,
            reasoning_tokens: markers.map(|markers| ReasoningTokens::new(markers, starts)),
            has_reasoned: false,
            num_calls: 0,
            note: self.note.clone(),
            parser,
        }
    }

    /// Returns the same style, whose readers call `note` after each reading, if the model decides
    /// itself when to call.
    pub(crate) fn noted_by(self, note: NoteReading) -> Self {
        Self { note: matches!(self.calls, Calls::Auto(_)).then_some(note), ..self }
    }

    /// Returns whether optional calls are constrained to the schemas of strict tools. This is not
    /// possible in every format of calls, nor beside an answer that has a structure itself.
    pub(crate) fn holds_strict_calls(&self) -> bool {
        self.holds_strict
    }

    /// Returns whether all output is content, so that the text needs no parser.
    pub(crate) fn is_plain(&self) -> bool {
        self.reasoning.is_none() && matches!(self.calls, Calls::None)
    }

    /// Returns whether all output is calls, because the request asks for one.
    pub(crate) fn forces_calls(&self) -> bool {
        matches!(self.calls, Calls::Required | Calls::Named(_))
    }

    fn parser(&self, prompt: Option<&str>) -> MessageParser {
        let start = ReasoningStart { prompt, thinking: self.thinking };
        let reasoning = self.reasoning.as_ref().map(|reasoning| (reasoning.factory)(&start));
        let tools: Option<Box<dyn ToolParser>> = match &self.calls {
            Calls::None => None,
            Calls::Auto(factory) => Some(factory(&self.tools)),
            Calls::Required => Some(Box::new(required_call_parser())),
            Calls::Named(name) => Some(Box::new(NamedCallParser::new(name.as_str()))),
        };
        let mut parser = MessageParser::new(reasoning, tools);
        if self.tools.is_limited() {
            parser = parser.with_allowed(self.tools.names().map(str::to_owned).collect());
        }
        match self.max_calls {
            Some(max_calls) => parser.with_max_calls(max_calls),
            None => parser,
        }
    }

    /// Returns the markers and the budget that the engine uses for thoughts.
    fn thinking(
        &self,
        budget: Option<u32>,
        is_structured: bool,
    ) -> Result<Option<Arc<Thinking>>, TurnError> {
        let markers = self.reasoning.as_ref().and_then(|reasoning| reasoning.markers.as_ref());
        let has_thoughts = |reasoning: &Reasoning| reasoning.precedes_structure || !is_structured;
        match (markers, budget) {
            (Some(_), _) if !self.reasoning.as_ref().is_some_and(has_thoughts) => Ok(None),
            (Some(markers), None) => Ok(Some(markers.clone())),
            (Some(markers), budget) => {
                Ok(Some(Arc::new(Thinking { budget, ..Thinking::clone(markers) })))
            }
            (None, None) => Ok(None),
            (None, Some(_)) => Err(TurnError::UnmarkedThoughts),
        }
    }
}
