//! `POST /v1/chat/completions/batch`: several conversations in one request, and one choice for
//! each.

use axum::{
    Json,
    body::to_bytes,
    extract::State,
    http::HeaderMap,
    response::{IntoResponse, Response},
};
use futures_util::future::try_join_all;
use indexmap::IndexMap;
use serde::Serialize;
use serde_json::{
    Map, Value,
    value::{RawValue, to_raw_value},
};

use super::protocol::ChatRequest;
use crate::{
    config::LimitSettings,
    server::{
        generate::handler::generate,
        http::{
            caller::Caller,
            error::ApiError,
            extract::{JsonBody, JsonRequest, parse_object},
            parts::{FromParts, Parts},
        },
        memory::{RequestMemory, TEXT_FACTOR, json::value_bytes},
        resume::Ticket,
        state::AppState,
        traces::TraceParent,
    },
};

/// Most conversations in one request.
const MAX_CONVERSATIONS: usize = 1024;
/// Most bytes of the shared fields, all copies together.
const MAX_SHARED_BYTES: usize = 32 << 20;

/// A chat request whose `messages` is a list of conversations. It becomes one request for each.
pub(in crate::server) struct BatchRequest(Vec<ChatRequest>);

impl JsonRequest for BatchRequest {
    fn from_json(text: &str) -> Result<Self, ApiError> {
        let mut fields: Map<String, Value> = parse_object(text)?;
        refuse(&fields)?;
        let conversations = match fields.remove("messages") {
            Some(Value::Array(conversations)) => conversations,
            _ => return Err(ApiError::validation("body.messages", "a list of conversations")),
        };
        if !(1..=MAX_CONVERSATIONS).contains(&conversations.len()) {
            let count = conversations.len();
            let message = format!("messages must be 1 to {MAX_CONVERSATIONS} lists, got {count}");
            return Err(ApiError::invalid("messages", message));
        }
        // Each conversation gets a copy of the shared fields.
        let shared = Value::Object(fields.clone()).to_string().len();
        if shared.saturating_mul(conversations.len()) > MAX_SHARED_BYTES {
            let count = conversations.len();
            let message = format!(
                "the fields beside `messages` have {shared} bytes, for each of {count} \
                 conversations; that must be at most {MAX_SHARED_BYTES} bytes together"
            );
            return Err(ApiError::invalid("messages", message));
        }
        let request = |(index, messages): (usize, Value)| {
            if !messages.is_array() {
                let place = format!("body.messages.{index}");
                return Err(ApiError::validation(&place, "a list of messages"));
            }
            fields.insert("messages".to_owned(), messages);
            ChatRequest::from_json(&Value::Object(fields.clone()).to_string())
        };
        conversations.into_iter().enumerate().map(request).collect::<Result<_, _>>().map(Self)
    }

    fn copied_bytes(body: &[u8]) -> usize {
        // A body that is no object is rejected when it is read.
        let fields = serde_json::from_slice::<Map<String, Value>>(body);
        let Ok(mut fields) = fields else { return 0 };
        let conversations = fields.remove("messages");
        let count = conversations.as_ref().and_then(Value::as_array).map_or(0, Vec::len);
        let shared = Value::Object(fields).to_string();
        // A larger batch is rejected before its fields are copied.
        let is_copied = shared.len().saturating_mul(count) <= MAX_SHARED_BYTES;
        let copy = TEXT_FACTOR * shared.len() + value_bytes(shared.as_bytes());
        if is_copied { copy.saturating_mul(count) } else { 0 }
    }

    fn fields(&self) -> Vec<&'static str> {
        <ChatRequest as FromParts>::Parts::fields()
    }

    fn check_limits(&self, limits: &LimitSettings) -> Result<(), ApiError> {
        self.0.iter().try_for_each(|request| JsonRequest::check_limits(request, limits))
    }
}

/// Rejects the fields that vLLM's batches do not have.
fn refuse(fields: &Map<String, Value>) -> Result<(), ApiError> {
    let is_set = |name: &str| fields.get(name).is_some_and(|value| *value == true);
    let refused = [
        ("stream", is_set("stream")),
        ("use_beam_search", is_set("use_beam_search")),
        ("tools", fields.get("tools").is_some_and(|tools| !tools.is_null())),
        ("n", fields.get("n").is_some_and(|n| !n.is_null() && *n != 1)),
    ];
    match refused.iter().find(|(_, given)| *given) {
        Some((name, _)) => {
            Err(ApiError::invalid(name, format!("`{name}` is not supported in a batch")))
        }
        None => Ok(()),
    }
}

/// Runs all conversations at once. If one fails, the batch fails, and the others end.
pub(in crate::server) async fn create_batch(
    State(state): State<AppState>,
    caller: Caller,
    headers: HeaderMap,
    memory: RequestMemory,
    JsonBody(BatchRequest(requests)): JsonBody<BatchRequest>,
) -> Result<Response, ApiError> {
    let answers = requests.into_iter().map(async |request| {
        let response = generate(
            State(state.clone()),
            caller,
            headers.clone(),
            Ticket::plain(),
            memory.another(),
            TraceParent::of(&headers),
            JsonBody(request),
        )
        .await?;
        let body = to_bytes(response.into_body(), usize::MAX).await;
        let body = body.map_err(|error| ApiError::internal(error.to_string()))?;
        memory.lease().add(2 * body.len() + value_bytes(&body))?;
        serde_json::from_slice::<Answer>(&body).map_err(internal)
    });
    let merged = merged(try_join_all(answers).await?).map_err(internal)?;
    Ok(Json(merged).into_response())
}

fn internal(error: serde_json::Error) -> ApiError {
    ApiError::internal(error.to_string())
}

/// An answer's fields as they were written: reading a number could change its last digit.
type Answer = IndexMap<String, Box<RawValue>>;

/// Returns one answer: the first one's head, a choice for each conversation, and the sum of the
/// usage.
fn merged(answers: Vec<Answer>) -> Result<Answer, serde_json::Error> {
    let (mut choices, mut usage) = (Vec::new(), Value::Null);
    let mut head = answers.first().cloned().unwrap_or_default();
    for (index, mut answer) in answers.into_iter().enumerate() {
        if let Some(more) = answer.get("usage") {
            add(&mut usage, serde_json::from_str(more.get())?);
        }
        let of_answer: Vec<Answer> = match answer.get("choices") {
            Some(choices) => serde_json::from_str(choices.get())?,
            None => Vec::new(),
        };
        let mut choice = of_answer.into_iter().next().unwrap_or_default();
        set(&mut choice, "index", &index)?;
        // In an answer to one conversation, these fields stand beside the choices.
        for own in ["prompt_logprobs", "prompt_token_ids", "prompt_text"] {
            set(&mut choice, own, &answer.swap_remove(own))?;
        }
        choices.push(choice);
    }
    for own in ["prompt_logprobs", "prompt_token_ids", "prompt_text", "metrics"] {
        set(&mut head, own, &Value::Null)?;
    }
    set(&mut head, "usage", &usage)?;
    set(&mut head, "choices", &choices)?;
    Ok(head)
}

fn set(fields: &mut Answer, name: &str, value: &impl Serialize) -> Result<(), serde_json::Error> {
    fields.insert(name.to_owned(), to_raw_value(value)?);
    Ok(())
}

/// Adds numbers to numbers, key by key.
fn add(sum: &mut Value, more: Value) {
    match (sum, more) {
        (Value::Object(sum), Value::Object(more)) => {
            for (key, value) in more {
                add(sum.entry(key).or_insert(Value::Null), value);
            }
        }
        (sum @ Value::Number(_), Value::Number(more)) => {
            *sum = (sum.as_u64().unwrap_or(0) + more.as_u64().unwrap_or(0)).into();
        }
        (sum @ Value::Null, more) => *sum = more,
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn param(body: Value) -> Option<String> {
        BatchRequest::from_json(&body.to_string()).err().map(|error| error.param.unwrap())
    }

    #[test]
    fn messages_are_conversations() {
        let message = json!({"role": "user", "content": "hi"});
        assert_eq!(param(json!({"messages": [[message], [message]], "n": 1})), None);
        assert_eq!(param(json!({})).as_deref(), Some("body.messages"));
        assert_eq!(param(json!({"messages": [message]})).as_deref(), Some("body.messages.0"));
        assert_eq!(param(json!({"messages": []})).as_deref(), Some("messages"));
    }

    #[test]
    fn shared_fields_are_copied_up_to_a_limit() {
        let message = json!([{"role": "user", "content": "hi"}]);
        let body = |count, len| json!({"messages": vec![&message; count], "user": "x".repeat(len)});
        assert_eq!(param(body(10, 1 << 20)), None);
        assert_eq!(param(body(40, 1 << 20)).as_deref(), Some("messages"));
    }

    #[test]
    fn copies_of_shared_fields_are_counted_before_they_are_made() {
        let message = json!([{"role": "user", "content": "hi"}]);
        let copied = |count, shared: &str| {
            let body = json!({"messages": vec![&message; count], "user": shared});
            BatchRequest::copied_bytes(body.to_string().as_bytes())
        };
        let text = "x".repeat(1 << 20);
        let (one, ten) = (copied(1, &text), copied(10, &text));
        assert!(one >= TEXT_FACTOR << 20 && ten == 10 * one, "{one}, {ten}");
        assert_eq!(copied(40, &text), 0, "it is refused");
        assert_eq!(BatchRequest::copied_bytes(b"[1"), 0);
        let values = json!({"messages": vec![&message; 10], "kwargs": vec![0; 10_000]});
        let copied = BatchRequest::copied_bytes(values.to_string().as_bytes());
        assert!(copied > 10 * 10_000 * size_of::<Value>(), "{copied}");
    }

    #[test]
    fn unsupported_fields_of_a_batch_are_rejected_by_name() {
        for field in [json!({"stream": true}), json!({"n": 2}), json!({"tools": []})] {
            let name = field.as_object().unwrap().keys().next().unwrap().clone();
            assert_eq!(param(field), Some(name));
        }
    }

    #[test]
    fn numbers_stay_as_they_were_written() {
        let written = r#"{"choices":[{"logprobs":[-1.7402300045432643e-8]}]}"#;
        let merged = merged(vec![serde_json::from_str(written).unwrap()]).unwrap();
        let merged = serde_json::to_string(&merged).unwrap();
        assert!(merged.contains("[-1.7402300045432643e-8]"), "{merged}");
    }

    #[test]
    fn answers_are_merged_by_choice_and_usage_added_up() {
        let answer = |text: &str, tokens: u64| {
            let answer = json!({
                "id": "chatcmpl-1",
                "choices": [{"index": 0, "message": {"content": text}}],
                "usage": {"total_tokens": tokens, "prompt_tokens_details": null},
                "prompt_token_ids": [tokens],
            });
            serde_json::from_str(&answer.to_string()).unwrap()
        };
        let merged = merged(vec![answer("a", 3), answer("b", 4)]).unwrap();
        let merged = serde_json::to_value(merged).unwrap();
        assert_eq!(merged["usage"], json!({"total_tokens": 7, "prompt_tokens_details": null}));
        assert_eq!(merged["choices"][1]["index"], 1);
        assert_eq!(merged["choices"][1]["message"]["content"], "b");
        assert_eq!(merged["choices"][1]["prompt_token_ids"], json!([4]));
        assert_eq!(merged["id"], "chatcmpl-1");
    }
}
