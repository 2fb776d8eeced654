//! The fields of the assistant's turn that all chat protocols share, over [`crate::turn`].

mod allowed_tools;
mod readings;
mod tool_choice;

pub(super) use allowed_tools::{AllowedForm, allow};
pub(super) use readings::readings;
pub(super) use tool_choice::{check_tools, shown_tool};

pub(super) use crate::turn::{
    ToolCall, ToolChoice, Turn, TurnEvent, TurnParsers, TurnReader, TurnRequest, TurnStyle,
};
#[cfg(test)]
pub(super) use crate::turn::{outputs, tests};
use crate::{
    api::{OutputDelta, RawRequest},
    config::{ParserChoice, ServerSettings},
    engine::Engine,
    parsers::{ConstraintError, UnknownParser},
    server::{generate::choices::FinishedChoice, http::error::ApiError, state::AppState},
    turn::{ParserChoices, TurnError},
};

/// Returns the parsers that the operator chose, from those that the engine has.
///
/// # Errors
/// If no parser has that name.
pub(super) fn parsers(
    settings: &ServerSettings,
    engine: &Engine,
) -> Result<TurnParsers, UnknownParser> {
    let tools = match settings.enable_auto_tool_choice {
        true => settings.tool_call_parser.clone(),
        false => ParserChoice::None,
    };
    let choices = ParserChoices { tools, reasoning: settings.reasoning_parser.clone() };
    engine.turn_parsers(&choices)
}

impl TurnRequest {
    /// Returns the request for the engine, without the facts about its client, and the style that
    /// reads its answers.
    ///
    /// # Errors
    /// As [`TurnRequest::plan_with`].
    pub(in crate::server) fn plan(
        mut self,
        state: &AppState,
    ) -> Result<(RawRequest, TurnStyle), ApiError> {
        if state.config.exclude_tools_when_tool_choice_none && self.tool_choice == ToolChoice::None
        {
            self.chat.tools = None;
        }
        Ok(self.plan_with(&state.parsers, state.engine.codec().clone())?)
    }
}

impl Turn {
    /// Reads a complete choice.
    pub(in crate::server) fn read(mut reader: TurnReader, done: &FinishedChoice) -> Self {
        let events = reader.push(&OutputDelta {
            text: done.text.clone(),
            tokens: done.tokens.clone(),
            finish: Some(done.finish.clone()),
            ..OutputDelta::default()
        });
        let finish_reason = reader.finish_reason(&done.finish);
        Self::of(events, finish_reason, reader.num_reasoning_tokens())
    }
}

impl From<TurnError> for ApiError {
    fn from(error: TurnError) -> Self {
        match error {
            TurnError::NoToolParser => {
                let message = "\"auto\" tool choice requires --enable-auto-tool-choice and \
                               --tool-call-parser to be set";
                Self::invalid("tool_choice", message)
            }
            TurnError::Constraint(error) => {
                let param = match error {
                    ConstraintError::UnknownTool { .. } => "tool_choice",
                    ConstraintError::NoTools | ConstraintError::Definition { .. } => "tools",
                };
                Self::invalid(param, error.to_string())
            }
            TurnError::UnmarkedThoughts => {
                let message = "thinking_token_budget needs a model whose thoughts are marked: set \
                               --reasoning-parser";
                Self::invalid("thinking_token_budget", message)
            }
        }
    }
}
