//! `POST /v2/embed`: vectors in the shape of Cohere's API.

use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::{
    encoding::base64,
    fields::{PoolingFields, choice},
    input::Inputs,
    run::{Results, json as answer},
};
use crate::{
    api::{ChatPrompt, Pooled, PoolingParams, PoolingTask, Prompt, TruncationSide},
    config::LimitSettings,
    server::{
        chat::check_part,
        exchange::Exchange,
        http::{
            error::ApiError, extract::JsonBody, fields::Int, limits::at_most, parts::FromParts,
        },
        media::MediaParts,
        state::AppState,
    },
};

/// The body as Cohere has it.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default)]
pub(in crate::server) struct EmbedFields {
    model: Option<String>,
    texts: Option<Vec<String>>,
    images: Option<Vec<String>>,
    inputs: Option<Vec<Value>>,
    input_type: Option<String>,
    output_dimension: Option<Int>,
    embedding_types: Option<Vec<String>>,
    truncate: Option<String>,
    max_tokens: Option<Int>,
    priority: Option<Int>,
}

/// The types of an answer's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EmbeddingType {
    Float,
    Binary,
    Ubinary,
    Base64,
}

/// The body of `POST /v2/embed`.
pub(in crate::server) struct EmbedRequest {
    fields: EmbedFields,
    types: Vec<EmbeddingType>,
    truncate: Option<TruncationSide>,
}

/// The answer to `POST /v2/embed`.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::server) struct Embedded {
    id: String,
    embeddings: EmbeddedTypes,
    #[serde(skip_serializing_if = "Option::is_none")]
    texts: Option<Vec<String>>,
    #[schema(value_type = Object)]
    meta: Value,
    response_type: &'static str,
}

/// The vectors in each type that was asked for.
#[derive(Debug, Default, Serialize, ToSchema)]
struct EmbeddedTypes {
    #[serde(skip_serializing_if = "Option::is_none")]
    float: Option<Vec<Vec<f32>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    binary: Option<Vec<Vec<i16>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ubinary: Option<Vec<Vec<i16>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<Vec<String>>,
}

impl FromParts for EmbedRequest {
    type Parts = (EmbedFields,);

    fn from_parts((fields,): Self::Parts) -> Result<Self, ApiError> {
        let lens = [
            fields.texts.as_ref().map(Vec::len),
            fields.images.as_ref().map(Vec::len),
            fields.inputs.as_ref().map(Vec::len),
        ];
        let given: Vec<usize> = lens.into_iter().flatten().collect();
        if given.len() != 1 || given[0] == 0 {
            let message = "Value error, Exactly one of texts, images, or inputs must be provided, \
                           and it must be non-empty";
            return Err(ApiError::validation("body", message));
        }
        let known = [
            ("float", EmbeddingType::Float),
            ("binary", EmbeddingType::Binary),
            ("ubinary", EmbeddingType::Ubinary),
            ("base64", EmbeddingType::Base64),
        ];
        let types = fields.embedding_types.iter().flatten().enumerate();
        let types = types.map(|(index, name)| {
            let place = format!("embedding_types.{index}");
            choice(&place, Some(name), &known).map(|(_, kind)| kind)
        });
        let mut types = types.collect::<Result<Vec<_>, _>>()?;
        if types.is_empty() {
            types.push(EmbeddingType::Float);
        }
        let sides = [
            ("END", Some(TruncationSide::Right)),
            ("START", Some(TruncationSide::Left)),
            ("NONE", None),
        ];
        let (_, truncate) = choice("truncate", fields.truncate.as_deref(), &sides)?;
        Ok(Self { fields, types, truncate })
    }

    fn check_limits(&self, limits: &LimitSettings) -> Result<(), ApiError> {
        let EmbedFields { texts, images, inputs, .. } = &self.fields;
        let count = [texts.as_ref().map_or(0, Vec::len), images.as_ref().map_or(0, Vec::len)];
        let count = count.iter().sum::<usize>() + inputs.as_ref().map_or(0, Vec::len);
        at_most("texts", count, limits.max_pooling_prompts)
    }
}

/// `POST /v2/embed`
pub(in crate::server) async fn embed(
    exchange: Exchange,
    JsonBody(request): JsonBody<EmbedRequest>,
) -> Result<Response, ApiError> {
    exchange.require(PoolingTask::Embed, "Embeddings API")?;
    let state = &exchange.state;
    let EmbedRequest { fields, types, truncate } = request;
    // A cut could leave a part of an image.
    let truncate = truncate.filter(|_| !fields.has_images());
    let pooling = PoolingFields::of_embed(
        fields.model.clone(),
        fields.output_dimension,
        fields.priority,
        truncated_to(state, fields.max_tokens, truncate)?,
    );
    let model = pooling.model(state).await?;
    let mut params = pooling.embed_params(state, &model)?;
    let prefix = prefix(state, fields.input_type.as_deref())?;
    let inputs = inputs(&exchange, &fields, prefix.as_deref(), &model).await?;
    // A system's message is always pooled, as in sentence-transformers.
    if let (Some(prefix), true) = (&prefix, inputs.adds_special_tokens) {
        params.num_left_out = state.engine.num_left_out(prefix)?;
    }
    let Results { id, results, prompts, num_tokens, .. } =
        exchange.pool("/v2/embed", "embd", &pooling, inputs, params).await?;
    if let (None, Some(Int(most))) = (truncate, fields.max_tokens)
        && let Some(count) =
            prompts.iter().map(|prompt| prompt.len()).find(|&count| count as i64 > most)
    {
        let message = match fields.has_images() {
            true => format!(
                "Input of {count} tokens exceeds max_tokens={most}. Inputs with images are not \
                 truncated."
            ),
            false => format!(
                "Input of {count} tokens exceeds max_tokens={most} with truncate=NONE. Set \
                 truncate to END or START to allow truncation."
            ),
        };
        return Err(ApiError::bad_request(message));
    }
    let billed = json!({"input_tokens": num_tokens, "image_tokens": 0});
    let meta = json!({"api_version": {"version": "2"}, "billed_units": billed});
    let num_values = results.iter().map(|pooled| pooled.values.len()).sum();
    let embeddings = EmbeddedTypes::new(&types, &results);
    let response_type = "embeddings_by_type";
    let embedded = Embedded { id, embeddings, texts: fields.texts, meta, response_type };
    answer(embedded, num_values).await
}

impl EmbedFields {
    /// Returns whether an input is more than text.
    fn has_images(&self) -> bool {
        let is_more = |input: &Value| {
            let parts = input.get("content").and_then(Value::as_array);
            parts.is_some_and(|parts| !parts.iter().all(is_text))
        };
        self.images.is_some() || self.inputs.iter().flatten().any(is_more)
    }
}

/// Returns whether a part of a content is text.
fn is_text(part: &Value) -> bool {
    part.get("text").is_some_and(Value::is_string)
}

/// Returns the number of tokens to keep, and the side that is dropped.
fn truncated_to(
    state: &AppState,
    max_tokens: Option<Int>,
    truncate: Option<TruncationSide>,
) -> Result<Option<(i64, TruncationSide)>, ApiError> {
    let Some(side) = truncate else { return Ok(None) };
    let info = state.engine.model_info();
    let params = PoolingParams { in_pieces: true, ..PoolingParams::new(PoolingTask::Embed) };
    let limit = params.max_prompt_len(&info.heads, info.max_model_len);
    let most = match max_tokens {
        None => limit,
        Some(most) => most.cast::<usize>("max_tokens", "at least 1")?.min(limit),
    };
    Ok(Some((i64::try_from(most).unwrap_or(i64::MAX), side)))
}

/// Returns the prompts, with the model's text for their kind before each. For a model with a chat
/// template, that text is the system's message. `images` and `inputs` need a template, as in vLLM.
async fn inputs(
    exchange: &Exchange,
    fields: &EmbedFields,
    prefix: Option<&str>,
    model: &str,
) -> Result<Inputs, ApiError> {
    let state = &exchange.state;
    let has_template = !state.engine.loaded().chat_templates.is_empty();
    let all: Contents<'_> = match (&fields.texts, &fields.images) {
        (Some(texts), _) if !has_template || prefix.is_none() => {
            let prefix = prefix.unwrap_or_default();
            let text = |text: &String| Prompt::Text(format!("{prefix}{text}"));
            return Ok(Inputs::of_texts(texts.iter().map(text).collect(), true));
        }
        (Some(texts), _) => {
            let content = |text: &String| (Value::from(text.as_str()), state.media_parts(model));
            texts.iter().map(content).collect()
        }
        (None, Some(images)) => images_alone(state, images, model)?,
        (None, None) => contents(state, fields.inputs.as_deref().unwrap_or_default(), model)?,
    };
    let chat = |content: Value| {
        let mut messages = Vec::new();
        if let Some(prefix) = prefix {
            messages.push(json!({"role": "system", "content": prefix}));
        }
        messages.push(json!({"role": "user", "content": content}));
        ChatPrompt { messages, ..ChatPrompt::default() }
    };
    let chats = all.into_iter().map(|(content, media)| (chat(content), media)).collect();
    Inputs::load(exchange, chats, false).await
}

/// Contents of messages, each with its images, videos and sounds.
type Contents<'m> = Vec<(Value, MediaParts<'m>)>;

/// Returns the contents of `images`, each of which is a URL.
fn images_alone<'m>(
    state: &AppState,
    images: &[String],
    model: &'m str,
) -> Result<Contents<'m>, ApiError> {
    let content = |(index, url): (usize, &String)| {
        let mut media = state.media_parts(model);
        if !media.takes_images() {
            return Err(ApiError::bad_request(format!("{model} is not a multimodal model")));
        }
        let part = json!({"type": "image_url", "image_url": {"url": url}});
        let part = check_part(&format!("body.images.{index}"), &part, &mut media)?;
        Ok((Value::from(vec![part]), media))
    };
    images.iter().enumerate().map(content).collect()
}

/// Returns the contents of `inputs`, which are lists of parts.
fn contents<'m>(
    state: &AppState,
    inputs: &[Value],
    model: &'m str,
) -> Result<Contents<'m>, ApiError> {
    let content = |(index, input): (usize, &Value)| {
        let place = format!("body.inputs.{index}.content");
        let parts = input.get("content").and_then(Value::as_array);
        let parts =
            parts.ok_or_else(|| ApiError::validation(&place, "Input should be a valid list"))?;
        let mut media = state.media_parts(model);
        let parts = parts.iter().enumerate().map(|(part, value)| match is_text(value) {
            true => Ok(value.clone()),
            false => check_part(&format!("{place}.{part}"), value, &mut media),
        });
        let parts = parts.collect::<Result<Vec<Value>, ApiError>>()?;
        Ok::<_, ApiError>((Value::from(parts), media))
    };
    inputs.iter().enumerate().map(content).collect()
}

/// Returns the text before inputs of this kind. An empty one counts as none.
fn prefix(state: &AppState, input_type: Option<&str>) -> Result<Option<String>, ApiError> {
    let Some(kind) = input_type else { return Ok(None) };
    let known = match state.engine.prompt_of(kind) {
        Ok(prompt) => return Ok(Some(prompt.to_owned()).filter(|prompt| !prompt.is_empty())),
        Err(known) => known,
    };
    Err(ApiError::bad_request(match known.is_empty() {
        true => format!(
            "Unsupported input_type '{kind}'. This model does not define any input_type task \
             instructions."
        ),
        false => {
            format!("Unsupported input_type '{kind}'. Supported values: {}", known.join(", "))
        }
    }))
}

impl EmbeddedTypes {
    fn new(types: &[EmbeddingType], results: &[Pooled]) -> Self {
        let mut this = Self::default();
        for kind in types {
            match kind {
                EmbeddingType::Float => {
                    this.float = Some(results.iter().map(|row| row.values.to_vec()).collect());
                }
                EmbeddingType::Binary => {
                    this.binary = Some(results.iter().map(|row| bits(row, 128)).collect());
                }
                EmbeddingType::Ubinary => {
                    this.ubinary = Some(results.iter().map(|row| bits(row, 0)).collect());
                }
                EmbeddingType::Base64 => {
                    let bytes = |row: &Pooled| -> Vec<u8> {
                        row.values.iter().flat_map(|x| x.to_le_bytes()).collect()
                    };
                    this.base64 = Some(results.iter().map(|row| base64(&bytes(row))).collect());
                }
            }
        }
        this
    }
}

/// Returns a bit for each number, which is set unless the number is negative. Eight of them are a
/// number, the first one its highest, less `offset`.
fn bits(pooled: &Pooled, offset: i16) -> Vec<i16> {
    let byte = |group: &[f32]| {
        let set = group.iter().enumerate().filter(|(_, x)| **x >= 0.0);
        set.map(|(index, _)| 0x80_i16 >> index).sum::<i16>() - offset
    };
    pooled.values.chunks(8).map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_packed_from_the_highest_on() {
        let values = [1.0, -1.0, 0.0, -0.5, -1.0, -1.0, -1.0, 2.0, 1.0];
        let pooled = Pooled { values: values.as_slice().into(), width: 9 };
        assert_eq!(bits(&pooled, 0), [0b1010_0001, 0b1000_0000]);
        assert_eq!(bits(&pooled, 128), [0b1010_0001 - 128, 0]);
    }

    #[test]
    fn exactly_one_kind_of_input_is_taken() {
        let read = |body: Value| {
            let fields = serde_json::from_value(body).unwrap();
            EmbedRequest::from_parts((fields,)).map(|read| read.types).map_err(|e| e.param)
        };
        assert_eq!(read(json!({"texts": ["a"]})), Ok(vec![EmbeddingType::Float]));
        let wrong = Some("body".to_owned());
        for body in [json!({}), json!({"texts": []}), json!({"texts": ["a"], "images": ["b"]})] {
            assert_eq!(read(body), Err(wrong.clone()));
        }
        let unknown = read(json!({"texts": ["a"], "embedding_types": ["int8"]}));
        assert_eq!(unknown, Err(Some("body.embedding_types.0".to_owned())));
    }
}
