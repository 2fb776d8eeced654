//! Pooling: vectors, classes and scores of prompts, in place of generated tokens.

use std::sync::Arc;

use futures_util::{
    FutureExt, Stream, StreamExt, TryStreamExt,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use playhouse_actors::{
    error::RequestError,
    logic::request::{
        FinishReason,
        failure::Failure,
        ids::TokenId,
        outputs::Pooled,
        pooling_params::{Dimensions, ModelHeads, PoolingHead, PoolingParams, PoolingTask},
    },
    message::input_processor::{Prompt, RawRequest},
    system::{ChoiceStream, Submission},
};

use super::Engine;
use crate::{
    config::PoolerTask,
    model::{
        Model,
        pooling::{Matryoshka, Pooler},
    },
};

/// The result of one pooled prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct PooledPrompt {
    /// The prompt as the model sees it.
    pub prompt_token_ids: Arc<[TokenId]>,
    /// The numbers.
    pub pooled: Pooled,
    /// Number of its tokens that came from the prefix cache.
    pub num_cached_tokens: usize,
}

/// The class of a prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct Classification {
    /// The name of the likeliest class.
    pub label: String,
    /// A number for each class: probabilities, unless the model is a regression.
    pub probs: Vec<f32>,
}

/// The reason why prompts were not pooled.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PoolError {
    /// A prompt was refused.
    #[error(transparent)]
    Refused(#[from] RequestError),
    /// A prompt failed after it was accepted.
    #[error("{0}")]
    Failed(Failure),
    /// A request was aborted by the operator or by its deadline.
    #[error("the request was aborted")]
    Aborted,
    /// The two lists of texts to compare do not fit together.
    #[error("Input lengths must be either 1:1, 1:N or N:N")]
    Lengths,
}

impl Engine {
    /// Returns the pooling that the engine's routes are open for, if its model pools.
    #[must_use]
    pub fn pooling_task(&self) -> Option<PoolingTask> {
        self.model_info().heads.pooling.first().map(|head| head.task)
    }

    /// Returns a vector for each prompt.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use playhouse::{Engine, EngineConfig, api::Prompt};
    ///
    /// let engine = Engine::start(EngineConfig::new("models/qwen3-embedding")).await?;
    /// let texts = ["how are files opened", "lists are mutable"];
    /// let vectors = engine.embed(texts.map(|text| Prompt::Text(text.into()))).await?;
    /// assert_eq!(vectors.len(), 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`PoolError`] of the first prompt that cannot be pooled. The others are aborted then.
    pub async fn embed(
        &self,
        prompts: impl IntoIterator<Item = Prompt>,
    ) -> Result<Vec<Vec<f32>>, PoolError> {
        let pooled = self.encode(prompts, PoolingParams::new(PoolingTask::Embed)).await?;
        Ok(pooled.iter().map(|prompt| prompt.pooled.values.to_vec()).collect())
    }

    /// Returns the class of each prompt.
    ///
    /// # Errors
    /// As [`Engine::embed`].
    pub async fn classify(
        &self,
        prompts: impl IntoIterator<Item = Prompt>,
    ) -> Result<Vec<Classification>, PoolError> {
        let pooled = self.encode(prompts, PoolingParams::new(PoolingTask::Classify)).await?;
        let class = |prompt: PooledPrompt| {
            let probs = prompt.pooled.values.to_vec();
            Classification { label: self.label_of(&probs), probs }
        };
        Ok(pooled.into_iter().map(class).collect())
    }

    /// Returns how well the texts of pairs go together. One text on either side is compared with
    /// each on the other. The score of two vectors is their cosine. With a vector for each token it
    /// is the sum of the best products (MaxSim). With a classifier of one class it is its
    /// probability.
    ///
    /// # Errors
    /// [`PoolError::Lengths`] if the lists do not fit together, and as [`Engine::embed`].
    pub async fn score(
        &self,
        queries: &[String],
        documents: &[String],
    ) -> Result<Vec<f32>, PoolError> {
        let pairs = pairs(queries.len(), documents.len())?;
        let task = self.pooling_task().unwrap_or_default();
        if !task.is_by_token() && task != PoolingTask::Embed {
            let shared = |texts: &[String]| texts.iter().map(|text| text.as_str().into()).collect();
            let (queries, documents): (Vec<Arc<str>>, Vec<Arc<str>>) =
                (shared(queries), shared(documents));
            let text = |(query, document): (usize, usize)| {
                Prompt::Pair(Arc::clone(&queries[query]), Arc::clone(&documents[document]))
            };
            let prompts: Vec<_> = pairs.into_iter().map(text).collect();
            let scored = self.encode(prompts, PoolingParams::new(task)).await?;
            let first = |prompt: PooledPrompt| prompt.pooled.values.first().copied();
            return Ok(scored.into_iter().filter_map(first).collect());
        }
        let texts = queries.iter().chain(documents);
        let prompts = texts.map(|text| Prompt::Text(text.clone()));
        let pooled = self.encode(prompts, PoolingParams::new(task)).await?;
        let (queries, documents) = pooled.split_at(queries.len());
        let score = |(query, document): (usize, usize)| {
            similarity(task, &queries[query].pooled, &documents[document].pooled)
        };
        Ok(pairs.into_iter().map(score).collect())
    }

    /// Returns the result of any pooling for each prompt. A prompt that is too long keeps its first
    /// tokens only if a request of [`Engine::pool`] says so.
    ///
    /// # Errors
    /// As [`Engine::embed`].
    pub async fn encode(
        &self,
        prompts: impl IntoIterator<Item = Prompt>,
        params: PoolingParams,
    ) -> Result<Vec<PooledPrompt>, PoolError> {
        let requests = prompts.into_iter().map(|prompt| RawRequest::pool(prompt, params.clone()));
        self.pool(requests.collect()).await
    }

    /// Submits requests that pool, and returns their results in order. No more of them are in the
    /// engine at a time than it computes at a time. A drop aborts them.
    ///
    /// # Errors
    /// [`PoolError`] of the first request that fails. The others are aborted then.
    pub async fn pool(&self, requests: Vec<RawRequest>) -> Result<Vec<PooledPrompt>, PoolError> {
        self.pool_stream(requests).try_collect().await
    }

    /// Does the same as [`Engine::pool`], and returns each result as soon as it and those before it
    /// are computed.
    pub fn pool_stream(
        &self,
        requests: Vec<RawRequest>,
    ) -> impl Stream<Item = Result<PooledPrompt, PoolError>> + Send + '_ {
        let begun = async move {
            let mut requests = requests.into_iter();
            let Some(first) = requests.next() else {
                return Ok::<BoxStream<'_, _>, PoolError>(stream::empty().boxed());
            };
            let first = self.submit(first).await?;
            // All of them take turns with other clients' requests as one.
            let group = first.choices.first().map(ChoiceStream::request);
            let rest = requests.map(move |request| -> BoxFuture<'_, _> {
                async move {
                    let submission = self.submit(RawRequest { group, ..request }).await?;
                    finish(submission).await
                }
                .boxed()
            });
            let all = std::iter::once(finish(first).boxed()).chain(rest);
            Ok(stream::iter(all).buffered(self.pooling_window()).boxed())
        };
        stream::once(begun).try_flatten()
    }

    /// Returns the name of the likeliest class.
    #[must_use]
    pub fn label_of(&self, probs: &[f32]) -> String {
        let best = probs.iter().enumerate().rev().max_by(|(_, a), (_, b)| a.total_cmp(b));
        let best = best.map_or(0, |(index, _)| index);
        let pooler = self.loaded().pooler.as_ref();
        let label = pooler.and_then(|pooler| pooler.labels.get(best));
        label.cloned().unwrap_or_else(|| format!("LABEL_{best}"))
    }

    /// Returns how many requests of one call are in the engine at a time.
    fn pooling_window(&self) -> usize {
        let config = self.config();
        config.max_num_seqs.min(config.max_num_requests).max(1)
    }
}

/// Waits for the result of an accepted request.
async fn finish(submission: Submission) -> Result<PooledPrompt, PoolError> {
    let Submission { prompt_token_ids, choices } = submission;
    let (mut pooled, mut num_cached_tokens) = (None, 0);
    for mut choice in choices {
        while let Some(delta) = choice.next().await {
            pooled = pooled.or(delta.pooled);
            num_cached_tokens = delta.num_cached_tokens.unwrap_or(num_cached_tokens);
            match delta.finish {
                Some(FinishReason::Error(failure)) => return Err(PoolError::Failed(failure)),
                Some(FinishReason::Abort) => return Err(PoolError::Aborted),
                _ => {}
            }
        }
    }
    let pooled = pooled.ok_or(PoolError::Aborted)?;
    Ok(PooledPrompt { prompt_token_ids, pooled, num_cached_tokens })
}

/// Returns the pairs of indices to compare: one with each, or each with its own.
pub(crate) fn pairs(queries: usize, documents: usize) -> Result<Vec<(usize, usize)>, PoolError> {
    match (queries, documents) {
        (0, _) | (_, 0) => Err(PoolError::Lengths),
        (1, count) => Ok((0..count).map(|document| (0, document)).collect()),
        (queries, documents) if queries == documents => {
            Ok((0..queries).map(|index| (index, index)).collect())
        }
        _ => Err(PoolError::Lengths),
    }
}

/// Returns the similarity of two results of a task.
pub(crate) fn similarity(task: PoolingTask, query: &Pooled, document: &Pooled) -> f32 {
    if !task.is_by_token() {
        return cosine(&query.values, &document.values) as f32;
    }
    let best = |row: &[f32]| {
        document.rows().map(|other| dot(row, other)).fold(f64::NEG_INFINITY, f64::max)
    };
    query.rows().map(best).sum::<f64>() as f32
}

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    // torch's `cosine_similarity` bounds each length from below.
    let length = |x: &[f32]| dot(x, x).sqrt().max(1e-8);
    dot(a, b) / (length(a) * length(b))
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}

/// Returns the heads of a model as requests are checked by them.
pub(super) fn heads(model: &Model) -> ModelHeads {
    let pooling = model
        .pooler
        .iter()
        .flat_map(|pooler| pooler.tasks.iter().map(|&task| head(pooler, task)).collect::<Vec<_>>());
    ModelHeads { generates: model.lm_head.is_some(), pooling: pooling.collect() }
}

fn head(pooler: &Pooler, task: PoolerTask) -> PoolingHead {
    let is_vector = matches!(task, PoolerTask::Embed | PoolerTask::TokenEmbed);
    let dimensions = match &pooler.matryoshka {
        Matryoshka::Fixed => Dimensions::Fixed,
        Matryoshka::Any => Dimensions::Any,
        Matryoshka::Listed(sizes) => Dimensions::Listed(sizes.clone()),
    };
    PoolingHead {
        task: pooling_task(task),
        is_last_token: pooler.is_last_token(task),
        width: pooler.width(task),
        dimensions: if is_vector { dimensions } else { Dimensions::Fixed },
        activation: pooler.activation,
    }
}

fn pooling_task(task: PoolerTask) -> PoolingTask {
    match task {
        PoolerTask::Embed => PoolingTask::Embed,
        PoolerTask::TokenEmbed => PoolingTask::TokenEmbed,
        PoolerTask::Classify => PoolingTask::Classify,
        PoolerTask::TokenClassify => PoolingTask::TokenClassify,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pooled(values: &[f32], width: usize) -> Pooled {
        Pooled { values: values.into(), width }
    }

    #[test]
    fn lists_are_compared_one_with_each_or_each_with_its_own() {
        assert_eq!(pairs(1, 2), Ok(vec![(0, 0), (0, 1)]));
        assert_eq!(pairs(2, 2), Ok(vec![(0, 0), (1, 1)]));
        for (queries, documents) in [(2, 1), (2, 3), (0, 1), (1, 0)] {
            assert_eq!(pairs(queries, documents), Err(PoolError::Lengths));
        }
    }

    #[test]
    fn vectors_are_compared_by_angle_and_tokens_by_their_best_match() {
        let (a, b) = (pooled(&[3.0, 4.0], 2), pooled(&[0.0, 2.0], 2));
        assert_eq!(similarity(PoolingTask::Embed, &a, &b), 0.8);
        let query = pooled(&[1.0, 0.0, 0.0, 1.0], 2);
        let document = pooled(&[0.5, 0.0, 0.0, 0.25, 0.25, 0.0], 2);
        assert_eq!(similarity(PoolingTask::TokenEmbed, &query, &document), 0.75);
        let nothing = pooled(&[0.0, 0.0], 2);
        assert_eq!(similarity(PoolingTask::Embed, &nothing, &a), 0.0, "no division by zero");
    }
}
