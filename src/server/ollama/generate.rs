//! `POST /api/generate`: the answer to a prompt.

use std::sync::Arc;

use axum::http::HeaderMap;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::{
    Generating,
    answer::{OllamaAnswer, Shape},
    common::CommonFields,
    line::Line,
    messages::images,
};
use crate::{
    api::{ChatPrompt, Prompt, RawRequest, SamplingParams},
    config::LimitSettings,
    server::{
        generate::handler::{Exchange, Plan, Protocol, RequestNames},
        http::{error::ApiError, fields::or_default, parts::FromParts},
        media::MediaParts,
        state::AppState,
    },
};

/// The body of `POST /api/generate`.
pub(in crate::server) struct OllamaGenerateRequest {
    common: CommonFields,
    fields: GenerateFields,
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default)]
pub(in crate::server) struct GenerateFields {
    #[serde(deserialize_with = "or_default")]
    prompt: String,
    system: Option<String>,
    /// Pictures in base64.
    images: Option<Value>,
    /// Whether the prompt goes to the model as it is, without the chat template.
    raw: Option<bool>,
    suffix: Option<String>,
    template: Option<String>,
    context: Option<Vec<Value>>,
}

impl FromParts for OllamaGenerateRequest {
    type Parts = (CommonFields, GenerateFields);

    fn from_parts((common, fields): Self::Parts) -> Result<Self, ApiError> {
        Ok(Self { common, fields })
    }

    fn check_limits(&self, limits: &LimitSettings) -> Result<(), ApiError> {
        self.common.check_limits(limits)
    }
}

impl Generating for OllamaGenerateRequest {
    const VERB: &'static str = "generate";

    fn resolve(&mut self, state: &AppState) {
        self.common.resolve(state);
    }

    fn loading(&self, state: &AppState) -> Result<Option<Line>, ApiError> {
        if !self.fields.prompt.is_empty() {
            return Ok(None);
        }
        Ok(Some(Line { response: Some(String::new()), ..self.common.loading(state)? }))
    }
}

impl Protocol for OllamaGenerateRequest {
    const ROUTE: &'static str = "/api/generate";
    type Naming = HeaderMap;
    type Answer = OllamaAnswer;

    fn asked_model(&self) -> Option<&str> {
        self.common.model.as_deref()
    }

    async fn plan(self, exchange: &Exchange<HeaderMap>) -> Result<Plan<Self::Answer>, ApiError> {
        let state = &exchange.state;
        let model = exchange.model_name(self.asked_model())?;
        self.fields.refuse()?;
        let is_raw = self.fields.raw.unwrap_or(false);
        let has_template = !state.engine.loaded().chat_templates.is_empty();
        let mut media = state.media_parts(&model);
        let (request, style) = match is_raw || !has_template {
            true => {
                let (params, max_tokens) = self.common.params(state)?;
                let structured_output = self.common.format()?.map(Arc::new);
                let params = SamplingParams { structured_output, ..params };
                let prompt = Prompt::Text(self.fields.text(is_raw)?);
                (RawRequest { params, max_tokens, ..RawRequest::new(prompt) }, None)
            }
            false => {
                let chat = self.fields.chat(&mut media)?;
                let (request, style) = self.common.turn(state, &model, chat)?.plan(state)?;
                (request, Some(style))
            }
        };
        let media = media.load(&state.media, &exchange.memory).await?;
        let max_tokens_default = state.engine.default_sampling().max_tokens;
        let request = RawRequest { media, max_tokens_default, ..request };
        let id = exchange.response_id("generate", None);
        let names = RequestNames::of(&id);
        let answer = self.common.answer(state, id, model, Shape::Generate, style)?;
        Ok(Plan { names, requests: vec![request], beam_search: None, answer })
    }
}

impl GenerateFields {
    /// Rejects fields that would have to be ignored.
    fn refuse(&self) -> Result<(), ApiError> {
        let is_given = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
        let absent = [
            ("suffix", is_given(&self.suffix), "text between two texts is not generated here"),
            ("template", is_given(&self.template), "the server's --chat-template is the template"),
            (
                "context",
                self.context.as_ref().is_some_and(|context| !context.is_empty()),
                "send the earlier messages to /api/chat",
            ),
            (
                "system",
                self.raw == Some(true) && is_given(&self.system),
                "a raw prompt has no template that would show it",
            ),
        ];
        match absent.iter().find(|(_, is_set, _)| *is_set) {
            Some((field, _, why)) => {
                Err(ApiError::invalid(field, format!("{field} is not supported: {why}")))
            }
            None => Ok(()),
        }
    }

    /// Returns the text for a model without a chat template, or for a raw request.
    fn text(&self, is_raw: bool) -> Result<String, ApiError> {
        if self.images.as_ref().is_some_and(|images| !images.is_null()) {
            let message = "images need a chat template, and raw to be false";
            return Err(ApiError::invalid("images", message));
        }
        let system = self.system.as_deref().filter(|system| !is_raw && !system.is_empty());
        Ok(system
            .map_or_else(|| self.prompt.clone(), |system| format!("{system}\n{}", self.prompt)))
    }

    fn chat(&self, media: &mut MediaParts<'_>) -> Result<ChatPrompt, ApiError> {
        let given = self.images.clone().map(|images| ("images".to_owned(), images));
        let images = images("body", &Map::from_iter(given), media)?;
        let content = match images.is_empty() {
            true => Value::from(self.prompt.as_str()),
            false => {
                let text = json!({"type": "text", "text": self.prompt});
                Value::from(images.into_iter().chain([text]).collect::<Vec<_>>())
            }
        };
        let system = self.system.as_deref().filter(|system| !system.is_empty());
        let system = system.map(|system| json!({"role": "system", "content": system}));
        let user = json!({"role": "user", "content": content});
        let messages = system.into_iter().chain([user]).collect();
        Ok(ChatPrompt { messages, add_generation_prompt: true, ..ChatPrompt::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::http::extract::parse_object;

    fn fields(body: Value) -> GenerateFields {
        parse_object(&body.to_string()).unwrap()
    }

    #[test]
    fn a_field_that_would_be_ignored_is_refused() {
        let refused = |body| fields(body).refuse().err().map(|error| error.param.unwrap());
        assert_eq!(refused(json!({"suffix": "}"})).as_deref(), Some("suffix"));
        assert_eq!(refused(json!({"template": "{{ .Prompt }}"})).as_deref(), Some("template"));
        assert_eq!(refused(json!({"context": [1, 2]})).as_deref(), Some("context"));
        assert_eq!(refused(json!({"context": [], "suffix": "", "raw": true})), None);
        assert_eq!(refused(json!({"raw": true, "system": "s"})).as_deref(), Some("system"));
        assert_eq!(refused(json!({"raw": true, "system": ""})), None);
    }

    #[test]
    fn a_raw_prompt_is_used_as_it_is() {
        let given = fields(json!({"prompt": "Once", "system": "Be brief."}));
        assert_eq!(given.text(true).unwrap(), "Once");
        assert_eq!(given.text(false).unwrap(), "Be brief.\nOnce");
        let picture = fields(json!({"prompt": "a", "images": ["aGk="]}));
        assert_eq!(picture.text(true).unwrap_err().param.as_deref(), Some("images"));
    }
}
