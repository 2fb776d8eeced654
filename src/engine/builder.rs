//! Builds an engine with the embedding program's own parts.

use std::{error::Error, fmt};

use super::{Engine, JournalSharing, StartError, StartProgress};
use crate::{
    config::{EngineConfig, ParserChoice},
    model::{ModelFamily, ModelRegistry},
    parsers::{
        DuplicateParser, ParserKind, ReasoningParser, ReasoningStart, Registry, ReservedParser,
        ToolParser, Tools,
    },
    token_rules::{TokenRule, TokenRuleRegistry, Vocabulary},
};

/// The parts that each engine has a set of. The default set is this crate's.
#[derive(Debug, Clone, Default)]
pub(super) struct Registries {
    pub(super) families: ModelRegistry,
    pub(super) parsers: Registry,
    pub(super) token_rules: TokenRuleRegistry,
}

/// Builds an [`Engine`] with the program's own parts beside those of this crate. Each engine has
/// its own set. A name that is registered twice makes [`EngineBuilder::start`] fail.
#[must_use = "an engine starts by `start`"]
pub struct EngineBuilder {
    config: EngineConfig,
    registries: Registries,
    /// The parsers that are added to those of the registry.
    added_parsers: Registry,
    progress: Box<dyn FnMut(StartProgress) + Send>,
    /// The first name that was registered twice.
    refused: Option<StartError>,
}

impl EngineBuilder {
    pub(super) fn new(config: EngineConfig) -> Self {
        let (registries, progress) = (Registries::default(), Box::new(|_| ()));
        Self { config, registries, added_parsers: Registry::empty(), progress, refused: None }
    }

    /// Calls `progress` from a blocking thread while the engine starts.
    pub fn on_progress(mut self, progress: impl FnMut(StartProgress) + Send + 'static) -> Self {
        self.progress = Box::new(progress);
        self
    }

    /// Adds the family of the models whose `architectures` in `config.json` is `architecture`.
    pub fn model_family(
        mut self,
        architecture: impl Into<String>,
        family: impl ModelFamily + 'static,
    ) -> Self {
        let registered = self.registries.families.register(architecture, family);
        self.note(registered)
    }

    /// Adds a tool parser, which the server's setting `tool_call_parser` may name. For each answer,
    /// `make` makes a parser from the request's tools.
    pub fn tool_parser(
        mut self,
        name: impl Into<String>,
        make: impl Fn(&Tools) -> Box<dyn ToolParser> + Send + Sync + 'static,
    ) -> Self {
        let (name, parsers) = (name.into(), &mut self.added_parsers);
        let registered = match parsers.tool_parser(&name) {
            Ok(_) => Err(DuplicateParser { kind: ParserKind::Tool, name }),
            Err(_) => {
                parsers.register_tool_parser(name, make);
                Ok(())
            }
        };
        self.note(registered)
    }

    /// Adds a reasoning parser, which the server's setting `reasoning_parser` may name. For each
    /// answer, `make` makes a parser from the facts that show whether the answer begins with
    /// thoughts.
    pub fn reasoning_parser(
        mut self,
        name: impl Into<String>,
        make: impl Fn(&ReasoningStart<'_>) -> Box<dyn ReasoningParser> + Send + Sync + 'static,
    ) -> Self {
        let (name, parsers) = (name.into(), &mut self.added_parsers);
        let registered = match parsers.reasoning_parser(&name) {
            Ok(_) => Err(DuplicateParser { kind: ParserKind::Reasoning, name }),
            Err(_) => {
                parsers.register_reasoning_parser(name, make);
                Ok(())
            }
        };
        self.note(registered)
    }

    /// Replaces this crate's parsers. Those added by [`EngineBuilder::tool_parser`] and
    /// [`EngineBuilder::reasoning_parser`] stay, whether they come before or after this call.
    pub fn parsers(mut self, parsers: Registry) -> Self {
        self.registries.parsers = parsers;
        self
    }

    /// Adds a token rule, which requests may ask for by `name`. `make` makes it after the model is
    /// loaded.
    pub fn token_rule(
        mut self,
        name: impl Into<String>,
        make: impl Fn(&Vocabulary<'_>) -> Result<Box<dyn TokenRule>, Box<dyn Error + Send + Sync>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        let registered = self.registries.token_rules.register(name, make);
        self.note(registered)
    }

    /// Loads the model and starts the actors. It must be called within a tokio runtime with several
    /// threads.
    ///
    /// # Errors
    /// [`StartError`] names a part that was registered twice, a parser that no setting can name, or
    /// a token rule that could not be made. It may also name the fault of the model's folder, the
    /// settings or the machine.
    pub async fn start(self) -> Result<Engine, StartError> {
        let Self { config, mut registries, added_parsers, progress, refused } = self;
        if let Some(refused) = refused {
            return Err(refused);
        }
        registries.parsers.append(added_parsers)?;
        check_parser_names(&registries.parsers)?;
        Engine::launch(config, registries, progress, |_| (), JournalSharing::Alone).await
    }

    fn note<E: Into<StartError>>(mut self, registered: Result<(), E>) -> Self {
        self.refused = self.refused.or(registered.err().map(Into::into));
        self
    }
}

/// Checks that settings can choose each parser by its name.
fn check_parser_names(parsers: &Registry) -> Result<(), ReservedParser> {
    let tool = parsers.tool_parser_names().map(|name| (ParserKind::Tool, name));
    let reasoning = parsers.reasoning_parser_names().map(|name| (ParserKind::Reasoning, name));
    let is_reserved = |name| !matches!(ParserChoice::of(name), ParserChoice::Named(_));
    match tool.chain(reasoning).find(|(_, name)| is_reserved(name)) {
        Some((kind, name)) => Err(ReservedParser { kind, name: name.to_owned() }),
        None => Ok(()),
    }
}

impl fmt::Debug for EngineBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineBuilder")
            .field("config", &self.config)
            .field("registries", &self.registries)
            .field("added_parsers", &self.added_parsers)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parsers::{ReasoningEvent, ToolEvent};

    struct Plain;

    impl ToolParser for Plain {
        fn push(&mut self, _: &str) -> Vec<ToolEvent> {
            Vec::new()
        }

        fn finish(&mut self) -> Vec<ToolEvent> {
            Vec::new()
        }
    }

    impl ReasoningParser for Plain {
        fn push(&mut self, _: &str) -> Vec<ReasoningEvent> {
            Vec::new()
        }

        fn finish(&mut self) -> Vec<ReasoningEvent> {
            Vec::new()
        }
    }

    fn builder() -> EngineBuilder {
        let config = EngineConfig { model: "no such folder".into(), ..EngineConfig::default() };
        EngineBuilder::new(config)
    }

    /// Returns the error of a start. The model does not exist, so a start always fails.
    async fn refused(builder: EngineBuilder) -> String {
        builder.start().await.unwrap_err().to_string()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_parser_has_a_name_that_settings_can_choose() {
        let tool = builder().tool_parser("auto", |_| Box::new(Plain));
        let expected = "a tool parser cannot have the name 'auto': settings give it a meaning";
        assert_eq!(refused(tool).await, expected);
        let mut registry = Registry::default();
        registry.register_reasoning_parser("none", |_| Box::new(Plain));
        let expected = "a reasoning parser cannot have the name 'none': settings give it a meaning";
        assert_eq!(refused(builder().parsers(registry)).await, expected);
        let good = builder().tool_parser("automatic", |_| Box::new(Plain));
        assert!(refused(good).await.starts_with("no model at"));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_order_of_calls_does_not_decide_which_parsers_there_are() {
        let with_hermes =
            |builder: EngineBuilder| builder.tool_parser("hermes", |_| Box::new(Plain));
        let taken = "there is a tool parser 'hermes' already";
        assert_eq!(refused(with_hermes(builder())).await, taken);
        assert_eq!(refused(with_hermes(with_hermes(builder()))).await, taken);
        assert_eq!(refused(with_hermes(builder().parsers(Registry::default()))).await, taken);
        assert_eq!(refused(with_hermes(builder()).parsers(Registry::default())).await, taken);
        let before = with_hermes(builder()).parsers(Registry::empty());
        let after = with_hermes(builder().parsers(Registry::empty()));
        for builder in [before, after] {
            assert!(builder.added_parsers.tool_parser("hermes").is_ok());
            assert!(refused(builder).await.starts_with("no model at"));
        }
    }
}
