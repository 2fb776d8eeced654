//! Builds an engine with the embedding program's own parts.

use std::{error::Error, fmt};

use super::{Engine, StartError, StartProgress};
use crate::{
    config::EngineConfig,
    model::{ModelFamily, ModelRegistry},
    parsers::{
        DuplicateParser, ParserKind, ReasoningParser, ReasoningStart, Registry, ToolParser, Tools,
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
    progress: Box<dyn FnMut(StartProgress) + Send>,
    /// The first name that was registered twice.
    refused: Option<StartError>,
}

impl EngineBuilder {
    pub(super) fn new(config: EngineConfig) -> Self {
        let (registries, progress) = (Registries::default(), Box::new(|_| ()));
        Self { config, registries, progress, refused: None }
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
        let (name, parsers) = (name.into(), &mut self.registries.parsers);
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
        let (name, parsers) = (name.into(), &mut self.registries.parsers);
        let registered = match parsers.reasoning_parser(&name) {
            Ok(_) => Err(DuplicateParser { kind: ParserKind::Reasoning, name }),
            Err(_) => {
                parsers.register_reasoning_parser(name, make);
                Ok(())
            }
        };
        self.note(registered)
    }

    /// Replaces all parsers: those of this crate, and those added before this call.
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
    /// [`StartError`] names a part that was registered twice, or a token rule that could not be
    /// made. It may also name the fault of the model's folder, the settings or the machine.
    pub async fn start(self) -> Result<Engine, StartError> {
        match self.refused {
            Some(refused) => Err(refused),
            None => Engine::launch(self.config, self.registries, self.progress, |_| ()).await,
        }
    }

    fn note<E: Into<StartError>>(mut self, registered: Result<(), E>) -> Self {
        self.refused = self.refused.or(registered.err().map(Into::into));
        self
    }
}

impl fmt::Debug for EngineBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineBuilder")
            .field("config", &self.config)
            .field("registries", &self.registries)
            .finish_non_exhaustive()
    }
}
