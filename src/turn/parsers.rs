//! The parsers of a model's answers.

use std::{fmt, sync::Arc};

use serde_json::json;

use crate::api::{ChatPrompt, TextCodec, Thinking};
use crate::{
    config::ParserChoice,
    parsers::{
        ReasoningParserFactory, ReasoningStart, Registry, ToolParserFactory, UnknownParser,
        guess_reasoning_parser, guess_tool_parser,
    },
};

/// The parsers that the operator or the program chose, or that the model's chat templates suggest.
#[derive(Clone, Default)]
pub(crate) struct TurnParsers {
    /// The parser of calls that the model may make. `None` if such calls are turned off.
    pub(super) tools: Option<ToolParserFactory>,
    pub(super) reasoning: Option<Reasoning>,
}

impl fmt::Debug for TurnParsers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TurnParsers")
            .field("finds_calls", &self.tools.is_some())
            .field("finds_thoughts", &self.reasoning.is_some())
            .finish()
    }
}

/// How the parsers of a model's answers are chosen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ParserChoices {
    pub(crate) tools: ParserChoice,
    pub(crate) reasoning: ParserChoice,
}

impl TurnParsers {
    /// Returns whether the model may call tools.
    pub(crate) fn finds_calls(&self) -> bool {
        self.tools.is_some()
    }

    /// Returns whether thoughts are distinguished from the answer.
    pub(crate) fn finds_thoughts(&self) -> bool {
        self.reasoning.is_some()
    }
}

/// The way that thoughts are distinguished.
#[derive(Clone)]
pub(super) struct Reasoning {
    pub(super) factory: ReasoningParserFactory,
    /// The parser's markers as tokens, without a budget. `None` if it has no markers.
    pub(super) markers: Option<Arc<Thinking>>,
    /// Whether structured output begins only after thoughts. This holds if the operator names the
    /// parser, or if prompts open thoughts. It does not hold for a guess: the thoughts might never
    /// begin, and then all output would be free of the structure.
    pub(super) precedes_structure: bool,
}

impl Reasoning {
    pub(super) fn new(
        factory: ReasoningParserFactory,
        codec: &dyn TextCodec,
        is_guessed: bool,
    ) -> Self {
        // In some models, only a prompt shows the markers.
        let prompt = prompt_of_chat(codec);
        let parser = factory(&ReasoningStart { prompt: prompt.as_deref(), thinking: None });
        let markers = parser.markers().and_then(|markers| {
            let begin = codec.encode(&markers.begin, false).ok()?;
            let end = codec.encode(&markers.end, false).ok()?;
            let is_usable = !begin.is_empty() && !end.is_empty();
            is_usable.then(|| Arc::new(Thinking { begin, end, budget: None }))
        });
        let opens_thoughts = prompt.is_some() && parser.starts_in_reasoning();
        let precedes_structure = !is_guessed || opens_thoughts;
        Self { factory, markers, precedes_structure }
    }
}

/// Returns the prompt of a conversation, if there is a template for it.
fn prompt_of_chat(codec: &dyn TextCodec) -> Option<String> {
    let chat = ChatPrompt {
        messages: vec![json!({"role": "user", "content": "Hi"})],
        add_generation_prompt: true,
        ..ChatPrompt::default()
    };
    codec.render_chat(&chat).ok()
}

impl TurnParsers {
    /// Returns the chosen parsers of `registry` for a model with these chat templates.
    ///
    /// # Errors
    /// If no parser has that name.
    pub(crate) fn new(
        choice: &ParserChoices,
        registry: &Registry,
        templates: &[String],
        codec: &dyn TextCodec,
    ) -> Result<Self, UnknownParser> {
        let tools =
            choose(&choice.tools, templates, guess_tool_parser, |name| registry.tool_parser(name))?;
        let reasoning = choose(&choice.reasoning, templates, guess_reasoning_parser, |name| {
            registry.reasoning_parser(name)
        })?;
        tracing::info!(
            tool_call_parser = tools.as_ref().map_or("none", |(name, _)| name),
            reasoning_parser = reasoning.as_ref().map_or("none", |(name, _)| name),
            "reading answers"
        );
        Ok(Self {
            tools: tools.map(|(_, factory)| factory),
            reasoning: reasoning.map(|(_, factory)| {
                let is_guessed = choice.reasoning == ParserChoice::Auto;
                Reasoning::new(factory, codec, is_guessed)
            }),
        })
    }
}

/// Returns the chosen parser, with its name. A guessed one may be unknown.
fn choose<F>(
    choice: &ParserChoice,
    templates: &[String],
    guess: fn(&str) -> Option<&'static str>,
    find: impl Fn(&str) -> Result<F, UnknownParser>,
) -> Result<Option<(String, F)>, UnknownParser> {
    match choice {
        ParserChoice::None => Ok(None),
        ParserChoice::Named(name) => Ok(Some((name.clone(), find(name)?))),
        ParserChoice::Auto => {
            let guessed = templates.iter().find_map(|template| guess(template));
            Ok(guessed.and_then(|name| Some((name.to_owned(), find(name).ok()?))))
        }
    }
}
