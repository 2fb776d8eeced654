//! The prompts of a body: texts, token ids, or conversations.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::{
    api::{ChatPrompt, Prompt, RawMedia, TokenId},
    config::LimitSettings,
    server::{
        chat::{check_messages, request_template, template_kwargs},
        exchange::Exchange,
        http::{
            error::ApiError,
            fields::{Int, flag},
            limits::at_most,
        },
        media::{MediaParts, media_kwargs},
        state::AppState,
    },
};

/// The input, and how a conversation is rendered.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default)]
pub(in crate::server) struct InputFields {
    /// A text, token ids, messages, or a list of one of these.
    input: Option<Value>,
    /// Messages, or a list of conversations. They have precedence over `input`.
    messages: Option<Value>,
    #[serde(deserialize_with = "flag")]
    add_generation_prompt: Option<bool>,
    #[serde(deserialize_with = "flag")]
    continue_final_message: Option<bool>,
    #[serde(deserialize_with = "flag")]
    add_special_tokens: Option<bool>,
    chat_template: Option<String>,
    chat_template_kwargs: Option<Map<String, Value>>,
    mm_processor_kwargs: Option<Map<String, Value>>,
    media_io_kwargs: Option<Map<String, Value>>,
}

/// The prompts of a request.
#[derive(Debug)]
pub(in crate::server) struct Inputs {
    pub(in crate::server) prompts: Vec<Prompt>,
    /// The images, videos and sounds of each prompt. The list is empty if no prompt can have any.
    pub(in crate::server) media: Vec<Arc<[RawMedia]>>,
    /// Whether the tokenizer adds special tokens around texts.
    pub(in crate::server) adds_special_tokens: bool,
    /// The token behind each prompt, which a model expects behind a pair.
    pub(in crate::server) end_token: Option<TokenId>,
}

impl Inputs {
    /// Returns prompts without media.
    pub(in crate::server) fn of_texts(prompts: Vec<Prompt>, adds_special_tokens: bool) -> Self {
        Self { prompts, media: Vec::new(), adds_special_tokens, end_token: None }
    }

    /// Returns conversations with the content of their images, videos and sounds.
    ///
    /// # Errors
    /// 400 if the content of one is not allowed, or cannot be fetched.
    pub(super) async fn load(
        exchange: &Exchange,
        chats: Vec<(ChatPrompt, MediaParts<'_>)>,
        adds_special_tokens: bool,
    ) -> Result<Self, ApiError> {
        let (mut prompts, mut media) = (Vec::new(), Vec::new());
        for (chat, parts) in chats {
            prompts.push(Prompt::Chat(Arc::new(chat)));
            media.push(parts.load(&exchange.state.media, &exchange.memory).await?);
        }
        Ok(Self { prompts, media, adds_special_tokens, end_token: None })
    }
}

impl InputFields {
    /// Rejects more prompts or messages than one request may have.
    pub(super) fn check_limits(&self, limits: &LimitSettings) -> Result<(), ApiError> {
        let count =
            |value: &Option<Value>| value.as_ref().and_then(Value::as_array).map_or(0, Vec::len);
        // The ids of one prompt are no prompts.
        let is_ids =
            matches!(&self.input, Some(Value::Array(list)) if list.iter().all(Value::is_number));
        if !is_ids {
            at_most("input", count(&self.input), limits.max_pooling_prompts)?;
        }
        at_most("messages", count(&self.messages), limits.max_messages)
    }

    /// Returns the prompts. `batches` allows several conversations.
    pub(super) async fn inputs(
        &self,
        exchange: &Exchange,
        model: &str,
        batches: bool,
    ) -> Result<Inputs, ApiError> {
        let (state, special) = (&exchange.state, self.add_special_tokens);
        let (value, place) = match (&self.messages, &self.input) {
            (Some(messages), _) => (messages, "body.messages"),
            (None, Some(input)) => (input, "body.input"),
            (None, None) => return Err(ApiError::validation("body.input", "Field required")),
        };
        let list = value.as_array();
        let is_chat = self.messages.is_some()
            || list.is_some_and(|list| list.first().is_some_and(is_conversation));
        if !is_chat {
            let vocab_size = state.engine.model_info().vocab_size;
            let prompts = texts_or_tokens(value, vocab_size)?;
            return Ok(Inputs::of_texts(prompts, special.unwrap_or(true)));
        }
        let list =
            list.ok_or_else(|| ApiError::validation(place, "Input should be a valid list"))?;
        if list.is_empty() {
            let message = "Cannot apply chat template to an empty conversation. Provide at least \
                           one message.";
            return Err(ApiError::bad_request(message));
        }
        let chats: Result<Vec<_>, ApiError> = match list.iter().all(Value::is_array) {
            true if batches => {
                let conversations = list.iter().filter_map(Value::as_array);
                conversations.map(|messages| self.chat(messages, state, model)).collect()
            }
            _ => self.chat(list, state, model).map(|chat| vec![chat]),
        };
        Inputs::load(exchange, chats?, special.unwrap_or(false)).await
    }

    /// Returns a conversation with its images, videos and sounds.
    fn chat<'m>(
        &self,
        messages: &[Value],
        state: &AppState,
        model: &'m str,
    ) -> Result<(ChatPrompt, MediaParts<'m>), ApiError> {
        let add_generation_prompt = self.add_generation_prompt.unwrap_or(false);
        let continue_final_message = self.continue_final_message.unwrap_or(false);
        if add_generation_prompt && continue_final_message {
            return Err(ApiError::bad_request(
                "Cannot set both `continue_final_message` and `add_generation_prompt` to True.",
            ));
        }
        let (processor, io) = (self.mm_processor_kwargs.as_ref(), self.media_io_kwargs.as_ref());
        let mut media = state.media_parts(model).with_kwargs(media_kwargs(state, processor, io)?);
        let chat = ChatPrompt {
            messages: check_messages(messages, &mut media)?,
            add_generation_prompt,
            continue_final_message,
            chat_template: request_template(self.chat_template.as_ref(), state)?,
            chat_template_kwargs: template_kwargs(self.chat_template_kwargs.as_ref(), state)?,
            ..ChatPrompt::default()
        };
        Ok((chat, media))
    }
}

/// Returns whether an element of a list is a message, or a list of messages.
fn is_conversation(value: &Value) -> bool {
    match value {
        Value::Object(_) => true,
        Value::Array(list) => list.first().is_some_and(Value::is_object),
        _ => false,
    }
}

/// Reads a text, token ids, or a list of one of these.
fn texts_or_tokens(value: &Value, vocab_size: u32) -> Result<Vec<Prompt>, ApiError> {
    let wrong = |place: String| {
        let message = "Input should be a text, a list of texts, token ids, or lists of token ids";
        ApiError::validation(&place, message)
    };
    let list = match value {
        Value::String(text) => return Ok(vec![Prompt::Text(text.clone())]),
        Value::Array(list) => list,
        _ => return Err(wrong("body.input".to_owned())),
    };
    match list.first() {
        None => Err(ApiError::bad_request("You must pass at least one prompt")),
        Some(Value::Number(_)) => Ok(vec![tokens(list, vocab_size, "body.input")?]),
        Some(_) => {
            let prompts = list.iter().enumerate().map(|(index, prompt)| match prompt {
                Value::String(text) if list[0].is_string() => Ok(Prompt::Text(text.clone())),
                Value::Array(ids) if list[0].is_array() => {
                    tokens(ids, vocab_size, &format!("body.input.{index}"))
                }
                _ => Err(wrong(format!("body.input.{index}"))),
            });
            prompts.collect()
        }
    }
}

fn tokens(ids: &[Value], vocab_size: u32, place: &str) -> Result<Prompt, ApiError> {
    if ids.is_empty() {
        return Err(ApiError::bad_request("The decoder prompt cannot be empty"));
    }
    let ids = ids.iter().enumerate().map(|(index, id)| {
        let wrong = || {
            let message = "Input should be a valid integer";
            ApiError::validation(&format!("{place}.{index}"), message)
        };
        let Int(id) = Int::deserialize(id).map_err(|_| wrong())?;
        let known = u32::try_from(id).ok().filter(|id| *id < vocab_size);
        let unknown = || ApiError::bad_request(format!("Token id {id} is out of vocabulary"));
        known.ok_or_else(unknown)
    });
    Ok(Prompt::Tokens(ids.collect::<Result<_, _>>()?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(value: Value) -> Result<Vec<String>, ApiError> {
        let prompts = texts_or_tokens(&value, 100)?;
        Ok(prompts.into_iter().map(|prompt| format!("{prompt:?}")).collect())
    }

    #[test]
    fn texts_and_tokens_come_alone_or_in_lists() {
        assert_eq!(read(json!("a")).unwrap(), ["Text(\"a\")"]);
        assert_eq!(read(json!(["a", "b"])).unwrap().len(), 2);
        assert_eq!(read(json!([1, 2])).unwrap(), ["Tokens([1, 2])"]);
        assert_eq!(read(json!([1.0, 2])).unwrap(), ["Tokens([1, 2])"], "as in other fields");
        assert_eq!(read(json!([[1], [2]])).unwrap(), ["Tokens([1])", "Tokens([2])"]);
    }

    #[test]
    fn wrong_input_is_named_by_its_place() {
        let param = |value| read(value).unwrap_err().param;
        assert_eq!(param(json!(5)).as_deref(), Some("body.input"));
        assert_eq!(param(json!(["a", 5])).as_deref(), Some("body.input.1"));
        assert_eq!(param(json!([["a"]])).as_deref(), Some("body.input.0.0"));
        assert_eq!(param(json!([1, 1.5])).as_deref(), Some("body.input.1"));
        for empty in [json!([]), json!([[]])] {
            assert_eq!(read(empty).unwrap_err().status, 400);
        }
        for (ids, id) in [(json!([1, 100]), 100), (json!([-1]), -1)] {
            let message = read(ids).unwrap_err().message;
            assert_eq!(message, format!("Token id {id} is out of vocabulary"));
        }
    }
}
