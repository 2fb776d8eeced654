//! The request, and what it means.

use axum::Extension;
use serde::Deserialize;
use utoipa::ToSchema;

use super::{
    answer::MessageAnswer,
    error::RequestId,
    prompt::PromptFields,
    unsupported::{Hints, UnsupportedFields},
};
use crate::api::{RawRequest, SamplingParams};
use crate::{
    config::LimitSettings,
    engine::DefaultSampling,
    server::{
        generate::{
            handler::{Exchange, Plan, Protocol, RequestNames},
            sampling::output_tokens,
        },
        http::{
            error::ApiError,
            fields::{Float, Int, flag},
            limits::{at_most, cache_salt},
            parts::FromParts,
        },
        turn::{TurnStyle, readings},
    },
};

/// The body of `POST /v1/messages`.
pub(in crate::server) struct MessagesRequest {
    prompt: PromptFields,
    fields: MessagesFields,
    unsupported: UnsupportedFields,
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default)]
pub(in crate::server) struct MessagesFields {
    max_tokens: Option<Int>,
    stop_sequences: Option<Vec<String>>,
    #[serde(deserialize_with = "flag")]
    stream: Option<bool>,
    temperature: Option<Float>,
    top_p: Option<Float>,
    top_k: Option<Int>,
    /// vLLM's salt of the prefix cache.
    cache_salt: Option<String>,
}

/// The form of a message.
pub(super) struct Style {
    /// The parsers for the model's output.
    pub(super) turn: TurnStyle,
    /// Whether the client sees the thoughts. Otherwise it sees only that there are some.
    pub(super) shows_thinking: bool,
    /// Whether usage shows the tokens that came from the prefix cache.
    pub(super) shows_cached: bool,
}

impl FromParts for MessagesRequest {
    type Parts = (PromptFields, MessagesFields, UnsupportedFields, Hints);

    fn from_parts((prompt, fields, unsupported, _): Self::Parts) -> Result<Self, ApiError> {
        Ok(Self { prompt, fields, unsupported })
    }

    fn check_limits(&self, limits: &LimitSettings) -> Result<(), ApiError> {
        self.prompt.check_limits(limits)?;
        let stop = self.fields.stop_sequences.as_ref().map_or(0, Vec::len);
        at_most("stop_sequences", stop, limits.max_stop_strings)
    }
}

impl Protocol for MessagesRequest {
    const ROUTE: &'static str = "/v1/messages";
    type Naming = Extension<RequestId>;
    type Answer = MessageAnswer;

    fn asked_model(&self) -> Option<&str> {
        self.prompt.asked_model()
    }

    async fn plan(
        self,
        exchange: &Exchange<Extension<RequestId>>,
    ) -> Result<Plan<Self::Answer>, ApiError> {
        let state = &exchange.state;
        let Extension(request_id) = &exchange.naming;
        let model = match &exchange.model {
            Some(model) => model.clone(),
            None => self.prompt.model(state)?,
        };
        self.unsupported.refuse()?;
        cache_salt(self.fields.cache_salt.as_deref())?;
        let params = self.fields.params(state.engine.default_sampling())?;
        let max_tokens = self.fields.max_tokens()?;
        let (request, turn) =
            self.prompt.plan(state, &exchange.memory, params, Some(max_tokens)).await?;
        let request = RawRequest { cache_salt: self.fields.cache_salt, ..request };
        let is_streamed = self.fields.stream.unwrap_or(false);
        let style = Style {
            turn: turn.noted_by(readings(state, is_streamed, "chat_completions")),
            shows_thinking: self.prompt.shows_thinking()?,
            shows_cached: state.config.enable_prompt_tokens_details,
        };
        let request_id = request_id.clone();
        let id = format!("msg_{}", exchange.draws.name);
        let abort = [id.clone(), request_id.0.clone()];
        let names = RequestNames { log: request_id.0.clone(), abort };
        let answer = MessageAnswer { id, request_id, model, style, is_streamed };
        Ok(Plan { names, requests: vec![request], beam_search: None, answer })
    }
}

impl MessagesFields {
    fn max_tokens(&self) -> Result<u32, ApiError> {
        let given = output_tokens("max_tokens", self.max_tokens)?;
        given.ok_or_else(|| ApiError::validation("body.max_tokens", "Field required"))
    }

    fn params(&self, defaults: &DefaultSampling) -> Result<SamplingParams, ApiError> {
        let mut params = SamplingParams::default();
        defaults.apply(&mut params);
        if let Some(Float(temperature)) = self.temperature {
            if !(0.0..=1.0).contains(&temperature) {
                let message = format!("temperature must be in 0..=1, got {temperature}");
                return Err(ApiError::invalid("temperature", message));
            }
            params.temperature = temperature;
        }
        if let Some(Float(top_p)) = self.top_p {
            params.top_p = top_p;
        }
        if let Some(top_k) = self.top_k {
            params.top_k = top_k.cast("top_k", "at least 0 (off)")?;
        }
        let stop = self.stop_sequences.clone().unwrap_or_default();
        if stop.iter().any(String::is_empty) {
            let message = "stop_sequences must not hold the empty string";
            return Err(ApiError::invalid("stop_sequences", message));
        }
        Ok(SamplingParams { stop, ..params })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::server::http::extract::parse_object;

    fn fields(body: Value) -> MessagesFields {
        parse_object(&body.to_string()).unwrap()
    }

    #[test]
    fn the_client_goes_before_the_model() {
        let defaults = DefaultSampling {
            temperature: Some(0.6),
            top_p: Some(0.9),
            top_k: Some(20),
            min_p: Some(0.1),
            ..Default::default()
        };
        let given = fields(json!({"temperature": 0, "top_k": 5, "stop_sequences": ["a"]}));
        let params = given.params(&defaults).unwrap();
        assert_eq!((params.temperature, params.top_p, params.top_k), (0.0, 0.9, 5));
        assert_eq!((params.min_p, params.stop), (0.1, vec!["a".to_owned()]));
    }

    #[test]
    fn a_wrong_field_is_named() {
        let wrong = [
            json!({"temperature": 1.5}),
            json!({"temperature": -0.1}),
            json!({"top_k": -1}),
            json!({"stop_sequences": ["a", ""]}),
        ];
        for body in &wrong {
            let error = fields(body.clone()).params(&DefaultSampling::default()).unwrap_err();
            assert_eq!(error.param.as_ref(), body.as_object().unwrap().keys().next(), "{body}");
        }
    }

    #[test]
    fn max_tokens_is_required() {
        let tokens = |body| fields(body).max_tokens().map_err(|error| error.param.unwrap());
        assert_eq!(tokens(json!({"max_tokens": 5})), Ok(5));
        assert_eq!(tokens(json!({})), Err("body.max_tokens".to_owned()));
        for wrong in [json!(0), json!(-1)] {
            assert_eq!(tokens(json!({ "max_tokens": wrong })), Err("max_tokens".to_owned()));
        }
    }
}
