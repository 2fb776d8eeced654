//! Pools the prompts of one request.

use std::{sync::Arc, time::Duration};

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use futures_util::{StreamExt, pin_mut};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::{fields::PoolingFields, input::Inputs};
use crate::{
    api::{Pooled, PoolingParams, PoolingTask, Prompt, RawMedia, RawRequest, TokenId},
    engine::{PoolError, PooledPrompt},
    server::{
        exchange::Exchange,
        generate::{handler::RequestNames, open_requests::Work, request_log::RequestLog},
        http::{draws::Draws, error::ApiError, request_id::response_id},
        media::working_bytes,
        memory::choices_bytes,
        traces::{RequestSpan, TraceParent},
    },
};

/// Bytes of one number: in the result, in the answer's text, and in the bytes sent.
const NUMBER_BYTES: usize = 4 + 2 * 14;
/// Time after which a client may send an aborted request again.
const ABORT_RETRY_AFTER: Duration = Duration::from_secs(1);
/// Numbers of an answer that is written on a blocking thread.
const NUMBERS_INLINE_MAX: usize = 1 << 16;

/// The results of a request, in the order of its prompts.
pub(in crate::server) struct Results {
    pub(in crate::server) id: String,
    pub(in crate::server) created: u64,
    pub(in crate::server) model: String,
    pub(in crate::server) results: Vec<Pooled>,
    /// The tokens of each prompt.
    pub(in crate::server) prompts: Vec<Arc<[TokenId]>>,
    /// Their number.
    pub(in crate::server) num_tokens: usize,
}

impl Exchange {
    /// Rejects a model without this task, in vLLM's words.
    pub(super) fn require(&self, task: PoolingTask, api: &str) -> Result<(), ApiError> {
        if self.state.engine.pooling_task() == Some(task) {
            return Ok(());
        }
        let message = format!("The model does not support {api}");
        Err(ApiError { param: None, ..ApiError::not_implemented("model", message) })
    }

    /// Pools all prompts, or fails with the error of the first that cannot be pooled.
    pub(in crate::server) async fn pool(
        &self,
        route: &'static str,
        prefix: &str,
        fields: &PoolingFields,
        inputs: Inputs,
        params: PoolingParams,
    ) -> Result<Results, ApiError> {
        let model = fields.model(&self.state).await?;
        let adapter = self.state.adapter(Some(&model)).await?;
        let template = fields.complete(RawRequest {
            add_special_tokens: inputs.adds_special_tokens,
            end_token: inputs.end_token,
            lora: adapter,
            ..RawRequest::pool(Prompt::Tokens(Vec::new()), params)
        })?;
        let template = self.caller.own(template);
        let draws = Draws::default();
        let id = response_id(prefix, &self.headers, fields.request_id.as_deref(), &draws.name);
        let mut log = RequestLog::new(id.clone(), route, self.caller.tenant);
        let parent = TraceParent::of(&self.headers);
        let of = std::slice::from_ref(&template);
        log.trace(RequestSpan::new(&self.state, parent, &id, &model, of));
        let pooled = self.caller.deadline.meet(self.collect(&id, template, inputs)).await;
        let pooled = pooled.and_then(|pooled| pooled).inspect_err(|_| log.end("failed"))?;
        let num_tokens = pooled.iter().map(|prompt| prompt.prompt_token_ids.len()).sum();
        log.pooled(num_tokens);
        log.end("complete");
        self.memory.submitted(num_tokens, 0);
        let pairs = pooled.into_iter().map(|prompt| (prompt.pooled, prompt.prompt_token_ids));
        let (results, prompts) = pairs.unzip();
        Ok(Results { id, created: draws.created, model, results, prompts, num_tokens })
    }

    /// Returns the results of all prompts, which differ from `template` by their prompt and media
    /// alone. The names of the answer `id` abort them. Their memory is leased as they arrive.
    async fn collect(
        &self,
        id: &str,
        template: RawRequest,
        inputs: Inputs,
    ) -> Result<Vec<PooledPrompt>, ApiError> {
        let engine = &self.state.engine;
        let Inputs { prompts, mut media, .. } = inputs;
        let num_open = prompts.len().min(engine.pooling_window());
        self.memory.grow(choices_bytes(&template).saturating_mul(num_open)).await?;
        let decoded = media.iter().map(|items| self.media_bytes(items)).collect();
        self.memory.grow_for_media(sum_of_largest(decoded, num_open)).await?;
        media.resize(prompts.len(), [].into());
        let aborted = CancellationToken::new();
        let RequestNames { abort, .. } = RequestNames::of(id);
        let names = abort.each_ref().map(String::as_str);
        let work = Work::Whole(aborted.clone());
        let _registration = self.state.open.enter(&names, self.caller.tenant, work);
        let mut pooled = Vec::with_capacity(prompts.len());
        let request = |(prompt, media)| RawRequest { prompt, media, ..template.clone() };
        let results = engine.pool_stream(prompts.into_iter().zip(media).map(request));
        pin_mut!(results);
        while let Some(result) =
            aborted.run_until_cancelled(results.next()).await.ok_or(PoolError::Aborted)?
        {
            let result = result?;
            self.memory.grow(result.pooled.values.len().saturating_mul(NUMBER_BYTES)).await?;
            pooled.push(result);
        }
        Ok(pooled)
    }

    /// Returns the memory of the items of a prompt. Each is decoded, and its pixels stay until the
    /// prompt's result.
    fn media_bytes(&self, items: &[RawMedia]) -> usize {
        let each = items.iter().map(|item| working_bytes(&self.state, std::slice::from_ref(item)));
        each.fold(0, usize::saturating_add)
    }
}

/// Returns the sum of the `count` largest numbers.
fn sum_of_largest(mut numbers: Vec<usize>, count: usize) -> usize {
    numbers.sort_unstable_by(|a, b| b.cmp(a));
    numbers.into_iter().take(count).fold(0, usize::saturating_add)
}

/// Writes an answer of so many numbers.
pub(in crate::server) async fn json<T: Serialize + Send + 'static>(
    answer: T,
    num_values: usize,
) -> Result<Response, ApiError> {
    if num_values <= NUMBERS_INLINE_MAX {
        return Ok(Json(answer).into_response());
    }
    let written = tokio::task::spawn_blocking(move || Json(answer).into_response()).await;
    written.map_err(|error| ApiError::internal(error.to_string()))
}

impl From<PoolError> for ApiError {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::Refused(error) => error.into(),
            PoolError::Failed(failure) => (&failure).into(),
            // Generated text has the finish reason `abort`. Numbers have nothing like it, and fewer
            // of them would be no answer.
            PoolError::Aborted => Self::unavailable(error.to_string(), ABORT_RETRY_AFTER),
            PoolError::Lengths => Self::bad_request(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_of_the_open_prompts_count() {
        assert_eq!(sum_of_largest(vec![1, 5, 3, 4], 2), 9);
        assert_eq!(sum_of_largest(vec![1, 5], 3), 6);
        assert_eq!(sum_of_largest(vec![usize::MAX, 1], 2), usize::MAX);
        assert_eq!(sum_of_largest(Vec::new(), 2), 0);
    }
}
