//! Conversations without HTTP: messages and tools in, thoughts, text and tool calls out.
//!
//! [`Engine::chat`] renders the model's chat template, and reads the answer with the parsers that
//! the template suggests. The chat routes of the server run the same code.

mod error;
mod message;
mod request;
mod stream;
#[cfg(test)]
mod tests;
mod tool;

pub use self::{
    error::ChatError,
    message::{ContentPart, Message},
    request::ChatRequest,
    stream::{ChatAnswer, ChatStream, ChatUsage},
    tool::Tool,
};
pub use crate::{
    config::ParserChoice,
    turn::{ToolCall, ToolChoice, Turn, TurnError, TurnEvent},
};
use crate::{engine::Engine, turn::ParserChoices};

/// The name under which ids of tool calls are derived. With the prompt, it makes them unique.
const ANSWER_ID: &str = "chat";

impl Engine {
    /// Submits the next turn of a conversation. Returns the stream of the answer's parts. Dropping
    /// the stream aborts the request.
    ///
    /// # Errors
    /// - [`ChatError::Turn`] if the model cannot take the turn that the request asks for.
    /// - [`ChatError::Request`] as [`Engine::submit`].
    pub async fn chat(&self, request: ChatRequest) -> Result<ChatStream, ChatError> {
        let choices = ParserChoices {
            tools: request.tool_call_parser.clone(),
            reasoning: request.reasoning_parser.clone(),
        };
        let parsers = self.turn_parsers(&choices)?;
        let (request, style) =
            request.plan(&parsers, self.codec().clone(), self.default_sampling())?;
        let submission = self.submit(request).await?;
        let reader = style.reader(ANSWER_ID, 0, &submission.prompt_token_ids);
        ChatStream::new(submission, reader)
    }
}
