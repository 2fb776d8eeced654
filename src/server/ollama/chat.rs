//! `POST /api/chat`: the next message of a conversation.

use axum::http::HeaderMap;
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::{
    Generating,
    answer::{OllamaAnswer, Shape},
    common::CommonFields,
    line::{Line, LineMessage},
    messages::Conversation,
};
use crate::{
    api::{ChatPrompt, RawRequest},
    config::LimitSettings,
    server::{
        generate::handler::{Exchange, Plan, Protocol, RequestNames},
        http::{error::ApiError, fields::or_default, limits::at_most, parts::FromParts},
        state::AppState,
        turn::check_tools,
    },
};

/// The body of `POST /api/chat`.
pub(in crate::server) struct OllamaChatRequest {
    common: CommonFields,
    fields: ChatFields,
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default)]
pub(in crate::server) struct ChatFields {
    #[serde(deserialize_with = "or_default")]
    messages: Vec<Value>,
    tools: Option<Vec<Value>>,
}

impl FromParts for OllamaChatRequest {
    type Parts = (CommonFields, ChatFields);

    fn from_parts((common, fields): Self::Parts) -> Result<Self, ApiError> {
        Ok(Self { common, fields })
    }

    fn check_limits(&self, limits: &LimitSettings) -> Result<(), ApiError> {
        self.common.check_limits(limits)?;
        at_most("messages", self.fields.messages.len(), limits.max_messages)?;
        at_most("tools", self.fields.tools.as_ref().map_or(0, Vec::len), limits.max_tools)
    }
}

impl Generating for OllamaChatRequest {
    const VERB: &'static str = "chat";

    fn resolve(&mut self, state: &AppState) {
        self.common.resolve(state);
    }

    fn loading(&self, state: &AppState) -> Result<Option<Line>, ApiError> {
        if !self.fields.messages.is_empty() {
            return Ok(None);
        }
        let message = Some(LineMessage { role: "assistant", ..LineMessage::default() });
        Ok(Some(Line { message, ..self.common.loading(state)? }))
    }
}

impl Protocol for OllamaChatRequest {
    const ROUTE: &'static str = "/api/chat";
    type Naming = HeaderMap;
    type Answer = OllamaAnswer;

    fn asked_model(&self) -> Option<&str> {
        self.common.model.as_deref()
    }

    async fn plan(self, exchange: &Exchange<HeaderMap>) -> Result<Plan<Self::Answer>, ApiError> {
        let state = &exchange.state;
        let model = exchange.model_name(self.asked_model())?;
        let mut media = state.media_parts(&model);
        let conversation = Conversation::read(&self.fields.messages, &mut media)?;
        let tools = self.fields.tools.clone().filter(|tools| !tools.is_empty());
        check_tools(tools.as_deref())?;
        let goes_on = conversation.goes_on();
        let chat = ChatPrompt {
            messages: conversation.messages,
            tools,
            add_generation_prompt: !goes_on,
            continue_final_message: goes_on,
            ..ChatPrompt::default()
        };
        let (request, style) = self.common.turn(state, &model, chat)?.plan(state)?;
        let media = media.load(&state.media, &exchange.memory).await?;
        let max_tokens_default = state.engine.default_sampling().max_tokens;
        let request = RawRequest { media, max_tokens_default, ..request };
        let id = exchange.response_id("chat", None);
        let names = RequestNames::of(&id);
        let answer = self.common.answer(state, id, model, Shape::Chat, Some(style))?;
        Ok(Plan { names, requests: vec![request], beam_search: None, answer })
    }
}
