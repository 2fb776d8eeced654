//! The parsers that a server reads its model's answers with.

use std::sync::Arc;

use serde_json::json;

use crate::api::{ChatPrompt, TextCodec, Thinking};
use crate::{
    config::{ParserChoice, ServerSettings},
    engine::Engine,
    parsers::{
        ReasoningParserFactory, ReasoningStart, ToolParserFactory, UnknownParser,
        guess_reasoning_parser, guess_tool_parser,
    },
};

/// What the operator chose, or what the model's chat templates suggest.
#[derive(Clone, Default)]
pub(in crate::server) struct TurnParsers {
    /// For calls that the model makes as it likes; none where that is turned off.
    pub(super) tools: Option<ToolParserFactory>,
    pub(super) reasoning: Option<Reasoning>,
}

/// How thoughts are told apart.
#[derive(Clone)]
pub(super) struct Reasoning {
    pub(super) factory: ReasoningParserFactory,
    /// The parser's markers as tokens, where it has markers; no budget.
    pub(super) markers: Option<Arc<Thinking>>,
    /// Whether answers have thoughts that what is structured about them follows: so the operator
    /// says who names the parser, and so do prompts that open thoughts. A guess is no reason to let
    /// everything through until thoughts end that may never begin.
    pub(super) precedes_structure: bool,
}

impl Reasoning {
    pub(super) fn new(
        factory: ReasoningParserFactory,
        codec: &dyn TextCodec,
        is_guessed: bool,
    ) -> Self {
        let markers = factory(&ReasoningStart::default()).markers();
        let markers = markers.and_then(|markers| {
            let begin = codec.encode(&markers.begin, false).ok()?;
            let end = codec.encode(&markers.end, false).ok()?;
            let is_usable = !begin.is_empty() && !end.is_empty();
            is_usable.then(|| Arc::new(Thinking { begin, end, budget: None }))
        });
        let precedes_structure = !is_guessed || prompts_open_thoughts(&factory, codec);
        Self { factory, markers, precedes_structure }
    }
}

/// Whether the prompt of a conversation ends with the beginning of thoughts.
fn prompts_open_thoughts(factory: &ReasoningParserFactory, codec: &dyn TextCodec) -> bool {
    let chat = ChatPrompt {
        messages: vec![json!({"role": "user", "content": "Hi"})],
        add_generation_prompt: true,
        ..ChatPrompt::default()
    };
    let prompt = codec.render_chat(&chat).ok();
    prompt.is_some_and(|prompt| {
        let start = ReasoningStart { prompt: Some(&prompt), thinking: None };
        factory(&start).starts_in_reasoning()
    })
}

impl TurnParsers {
    /// The parsers for the model of `engine`, of those that the engine has.
    ///
    /// # Errors
    /// When a parser is not known by its name.
    pub(in crate::server) fn new(
        settings: &ServerSettings,
        engine: &Engine,
    ) -> Result<Self, UnknownParser> {
        let (registry, model) = (engine.parsers(), engine.loaded());
        let templates = &model.chat_templates;
        let tools = choose(&settings.tool_call_parser, templates, guess_tool_parser, |name| {
            registry.tool_parser(name)
        })?;
        let tools = tools.filter(|_| settings.enable_auto_tool_choice);
        let reasoning =
            choose(&settings.reasoning_parser, templates, guess_reasoning_parser, |name| {
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
                let is_guessed = settings.reasoning_parser == ParserChoice::Auto;
                Reasoning::new(factory, &*model.codec, is_guessed)
            }),
        })
    }
}

/// The parser that is chosen, with its name. One that is only guessed may be unknown.
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
