//! The fields that the routes share.

use serde::Deserialize;
use utoipa::ToSchema;

use super::encoding::Encoding;
use crate::{
    api::{PoolingParams, PoolingTask, RawRequest, TruncationSide},
    server::{
        http::{
            error::ApiError,
            fields::{Int, IsSet, flag},
            limits,
        },
        state::AppState,
    },
};

/// How a request is pooled, and how its answer is written.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default)]
pub(in crate::server) struct PoolingFields {
    pub(super) model: Option<String>,
    pub(super) task: Option<String>,
    #[serde(deserialize_with = "flag")]
    pub(super) use_activation: Option<bool>,
    normalize: Option<IsSet>,
    pub(super) dimensions: Option<Int>,
    /// Whether the inputs are read as one text, and each gets the mean of its own tokens.
    #[serde(deserialize_with = "flag")]
    pub(super) late_chunking: Option<bool>,
    late_chunking_params: Option<IsSet>,
    encoding_format: Option<String>,
    embed_dtype: Option<String>,
    endianness: Option<String>,
    truncate_prompt_tokens: Option<Int>,
    truncation_side: Option<String>,
    padding: Option<String>,
    priority: Option<Int>,
    cache_salt: Option<String>,
    pub(super) request_id: Option<String>,
    #[serde(rename = "user")]
    _user: Option<String>,
}

impl PoolingFields {
    /// Returns the fields of a request in Cohere's shape.
    pub(in crate::server) fn of_embed(
        model: Option<String>,
        dimensions: Option<Int>,
        priority: Option<Int>,
        truncate: Option<(i64, TruncationSide)>,
    ) -> Self {
        let side = truncate.map(|(_, side)| match side {
            TruncationSide::Left => "left".to_owned(),
            TruncationSide::Right => "right".to_owned(),
        });
        Self {
            model,
            dimensions,
            priority,
            truncate_prompt_tokens: truncate.map(|(count, _)| Int(count)),
            truncation_side: side,
            ..Self::default()
        }
    }

    /// Returns the model's name for the answer. An adapter of this name may be found and loaded.
    pub(super) async fn model(&self, state: &AppState) -> Result<String, ApiError> {
        // The param names no field here, as in vLLM.
        let unnamed = |error| ApiError { param: None, ..error };
        state.adapter(self.model.as_deref()).await.map_err(unnamed)?;
        state.model_name(self.model.as_deref()).map_err(unnamed)
    }

    /// Returns whether tokens of a prompt are cut off.
    pub(super) fn cuts_prompts(&self) -> bool {
        self.truncate_prompt_tokens.is_some()
    }

    /// Returns how the answer is written.
    pub(super) fn encoding(&self) -> Result<Encoding, ApiError> {
        let dtype = self.embed_dtype.as_deref();
        Encoding::new(self.encoding_format.as_deref(), dtype, self.endianness.as_deref())
    }

    /// Returns the parameters of vectors. A prompt longer than the model's context may be computed
    /// in pieces.
    pub(in crate::server) fn embed_params(
        &self,
        state: &AppState,
        model: &str,
    ) -> Result<PoolingParams, ApiError> {
        let params = self.params_of(state, model, PoolingTask::Embed)?;
        Ok(PoolingParams { in_pieces: true, ..params })
    }

    /// Returns the parameters of `task`, on a route that pools each input alone.
    pub(super) fn params(
        &self,
        state: &AppState,
        model: &str,
        task: PoolingTask,
    ) -> Result<PoolingParams, ApiError> {
        if self.late_chunking == Some(true) {
            let message = "late_chunking is not supported by this route; use /v1/embeddings";
            return Err(ApiError::invalid("late_chunking", message));
        }
        self.params_of(state, model, task)
    }

    fn params_of(
        &self,
        state: &AppState,
        model: &str,
        task: PoolingTask,
    ) -> Result<PoolingParams, ApiError> {
        if self.normalize.is_some() {
            let message = "Parameter `normalize` was removed; use `use_activation` instead.";
            return Err(ApiError::invalid("normalize", message));
        }
        if self.late_chunking_params.is_some() {
            let message = "late_chunking_params is not supported: one vector for so many tokens is \
                           not made. `late_chunking` of /v1/embeddings makes one for each input";
            return Err(ApiError::invalid("late_chunking_params", message));
        }
        let dimensions = self.dimensions.map(|count| count.cast("dimensions", "at least 1"));
        let params = PoolingParams {
            use_activation: self.use_activation,
            dimensions: dimensions.transpose()?,
            ..PoolingParams::new(task)
        };
        check_dimensions(state, model, &params)?;
        Ok(params)
    }

    /// Returns the same request with the fields on its prompt and its place in the queue.
    pub(super) fn complete(&self, request: RawRequest) -> Result<RawRequest, ApiError> {
        let sides = [("right", TruncationSide::Right), ("left", TruncationSide::Left)];
        let (_, side) = choice("truncation_side", self.truncation_side.as_deref(), &sides)?;
        let paddings = [("do_not_pad", false), ("max_length", true)];
        let (_, pads_to_limit) = choice("padding", self.padding.as_deref(), &paddings)?;
        let truncate = self.truncate_prompt_tokens.map(|Int(count)| count);
        match truncate {
            Some(count) if count < -1 => {
                let message = "Input should be greater than or equal to -1";
                return Err(ApiError::validation("body.truncate_prompt_tokens", message));
            }
            _ => {}
        }
        limits::cache_salt(self.cache_salt.as_deref())?;
        let priority = self.priority.map(|count| count.cast("priority", "a 32-bit integer"));
        Ok(RawRequest {
            truncation_side: side,
            pads_to_limit,
            truncate_prompt_tokens: truncate,
            priority: priority.transpose()?.unwrap_or_default(),
            cache_salt: self.cache_salt.clone(),
            ..request
        })
    }
}

/// Checks dimensions in vLLM's words.
fn check_dimensions(state: &AppState, model: &str, params: &PoolingParams) -> Result<(), ApiError> {
    let Some(dimensions) = params.dimensions else { return Ok(()) };
    let refused = params.fit(&state.engine.model_info().heads).err();
    let head = state.engine.model_info().heads.pooling(params.task);
    match refused {
        None => Ok(()),
        Some(_) if head.is_some_and(|head| head.dimensions == crate::api::Dimensions::Fixed) => {
            Err(ApiError::bad_request(format!(
                "Model '{model}' does not support Matryoshka embeddings; dimensions must be unset \
                 (received dimensions={dimensions})."
            )))
        }
        Some(error) => Err(ApiError { param: None, ..error.into() }),
    }
}

/// Returns the choice with this name, or the first one without a name.
pub(super) fn choice<T: Copy>(
    field: &str,
    given: Option<&str>,
    choices: &[(&'static str, T)],
) -> Result<(&'static str, T), ApiError> {
    let found = match given {
        None => choices.first(),
        Some(name) => choices.iter().find(|(known, _)| *known == name),
    };
    found.copied().ok_or_else(|| {
        let names: Vec<_> = choices.iter().map(|(name, _)| format!("'{name}'")).collect();
        let message = format!("Input should be {}", names.join(" or "));
        ApiError::validation(&format!("body.{field}"), message)
    })
}
