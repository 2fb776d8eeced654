//! Pooling: vectors, classes and scores of prompts, in place of generated tokens.

mod heads;
mod listwise;
mod media_text;
mod pieces;
mod scoring;
mod side;

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
        pooling_params::{PoolingParams, PoolingTask},
    },
    message::input_processor::{Prompt, RawRequest},
    system::{ChoiceStream, Submission},
};
use serde_json::{Map, Value};

pub(super) use self::heads::heads;
pub use self::media_text::MediaText;
use self::{
    pieces::{Join, Pieces},
    scoring::PairForm,
};
pub(crate) use self::{
    scoring::Scoring,
    side::{PairSide, PromptWithMedia},
};
use super::{Engine, PoolerFacts};
use crate::model::pooling::{PairInput, SCORE_TOKEN};

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

/// A document of a ranking.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RankedDocument {
    /// Its index in the list of documents.
    pub index: usize,
    /// Its score, as [`Engine::score`] returns it.
    pub score: f32,
}

/// The reason why prompts were not pooled.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
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

    /// Returns a vector for each prompt. With `enable_chunked_processing`, the vector of a prompt
    /// longer than the model's context is the mean of the vectors of its pieces. A sparse one has
    /// their largest weights.
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
        let params = PoolingParams { in_pieces: true, ..PoolingParams::new(PoolingTask::Embed) };
        let pooled = self.encode(prompts, params).await?;
        Ok(pooled.iter().map(|prompt| prompt.pooled.values.to_vec()).collect())
    }

    /// Late chunking: returns a vector for each of texts that follow each other. They are read as
    /// one text, so a vector also depends on the texts around its own. It is the mean of the tokens
    /// of its text. A token of two texts is the later one's. Special tokens around all texts are
    /// those of the first and the last one.
    ///
    /// # Errors
    /// [`RequestError::InvalidParameter`] if the model does not pool by the mean, or a text has no
    /// token. [`RequestError::PromptTooLong`] if the texts do not fit its context together.
    pub async fn embed_late_chunking(
        &self,
        texts: Vec<String>,
    ) -> Result<Vec<Vec<f32>>, PoolError> {
        if texts.is_empty() {
            return Ok(Vec::new());
        }
        let params = PoolingParams::new(PoolingTask::Embed);
        let pooled = self.encode([Prompt::Chunks(texts.into())], params).await?;
        Ok(pooled.iter().flat_map(|prompt| prompt.pooled.rows()).map(<[f32]>::to_vec).collect())
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
    /// [`PoolError::Lengths`] if the lists do not fit together, [`RequestError::Unsupported`] for a
    /// model of several classes, and as [`Engine::embed`].
    pub async fn score(
        &self,
        queries: &[String],
        documents: &[String],
    ) -> Result<Vec<f32>, PoolError> {
        let contents = |texts: &[String]| texts.iter().cloned().map(MediaText::from).collect();
        self.score_media(contents(queries), contents(documents)).await
    }

    /// Does the same for texts with images, videos and sounds. The vector of one is that of its
    /// content without a chat template. A classifier reads a pair with `chat_template`, or as one
    /// text.
    ///
    /// # Errors
    /// As [`Engine::score`], [`RequestError::InvalidParameter`] if the tokenizer joins pairs, and
    /// the errors of media that the model does not take.
    pub async fn score_media(
        &self,
        queries: Vec<MediaText>,
        documents: Vec<MediaText>,
    ) -> Result<Vec<f32>, PoolError> {
        let sides = |contents: Vec<MediaText>| contents.into_iter().map(PairSide::from).collect();
        let (scoring, prompts) = self.scoring_of(sides(queries), sides(documents), &Map::new())?;
        let params = PoolingParams::new(self.pooling_task().unwrap_or_default());
        let request = |(prompt, media): PromptWithMedia| RawRequest {
            media,
            add_special_tokens: scoring.adds_special_tokens(),
            end_token: scoring.end_token(),
            ..RawRequest::pool(prompt, params.clone())
        };
        let pooled = self.pool(prompts.into_iter().map(request).collect::<Vec<_>>()).await?;
        Ok(scoring.scores(pooled.iter().map(|prompt| (&*prompt.prompt_token_ids, &prompt.pooled))))
    }

    /// Returns the documents by their relevance to a query, the most relevant one first, and equal
    /// ones in their order. `top_n` is the number of documents to return; `None` is all.
    ///
    /// # Errors
    /// As [`Engine::score`].
    pub async fn rerank(
        &self,
        query: &str,
        documents: &[String],
        top_n: Option<usize>,
    ) -> Result<Vec<RankedDocument>, PoolError> {
        let scores = self.score(&[query.to_owned()], documents).await?;
        Ok(ranked(&scores, top_n))
    }

    /// Does the same for texts with images, videos and sounds.
    ///
    /// # Errors
    /// As [`Engine::score_media`].
    pub async fn rerank_media(
        &self,
        query: MediaText,
        documents: Vec<MediaText>,
        top_n: Option<usize>,
    ) -> Result<Vec<RankedDocument>, PoolError> {
        let scores = self.score_media(vec![query], documents).await?;
        Ok(ranked(&scores, top_n))
    }

    /// Returns the pairs of two lists of sides, with the prompts to pool for them. `variables` are
    /// those of the chat template, where one writes a pair.
    ///
    /// # Errors
    /// As [`Engine::score_media`], before anything is pooled.
    pub(crate) fn scoring_of(
        &self,
        queries: Vec<PairSide>,
        documents: Vec<PairSide>,
        variables: &Map<String, Value>,
    ) -> Result<(Scoring, Vec<PromptWithMedia>), PoolError> {
        if !self.compares() {
            let supported = self.model_info().heads.supported();
            return Err(RequestError::Unsupported { task: "score", supported }.into());
        }
        let task = self.pooling_task().unwrap_or_default();
        let pooler = self.loaded().pooler.as_ref();
        let skipped = pooler.map(|pooler| &pooler.skipped_tokens[..]).unwrap_or_default();
        let is_ended = pooler.is_some_and(|pooler| pooler.pairs == PairInput::DocumentFirst);
        let end_token = is_ended.then_some(SCORE_TOKEN);
        Scoring::new(task, self.pair_form(), queries, documents, variables)
            .map(|(scoring, prompts)| (scoring.skipping(skipped).ending_with(end_token), prompts))
    }

    /// Returns the bytes that the prompts of pairs take beside the two lists.
    pub(crate) fn copied_bytes(&self, queries: &[PairSide], documents: &[PairSide]) -> usize {
        self.pair_form().copied_bytes(queries, documents)
    }

    /// Returns whether the model scores pairs of texts: with vectors, or as a classifier of one
    /// class.
    #[must_use]
    pub fn compares(&self) -> bool {
        let heads = &self.model_info().heads;
        match self.pooling_task() {
            Some(PoolingTask::Embed | PoolingTask::TokenEmbed) => true,
            Some(PoolingTask::Classify) => {
                heads.pooling(PoolingTask::Classify).is_some_and(|head| head.width == 1)
            }
            Some(PoolingTask::TokenClassify) | None => false,
        }
    }

    /// Returns whether a task's result is a row for each token. Weights of tokens are one list, as
    /// in vLLM.
    pub(crate) fn has_rows(&self, task: PoolingTask) -> bool {
        let weighs = self.loaded().pooler.as_ref().is_some_and(|pooler| pooler.weighs_tokens);
        task.is_by_token() && !(weighs && task == PoolingTask::TokenClassify)
    }

    /// Returns how the model's classifier takes a pair, as in vLLM.
    fn pair_form(&self) -> PairForm {
        let pooler = self.loaded().pooler.as_ref();
        if pooler.is_some_and(|pooler| pooler.ranks_lists) {
            return PairForm::List;
        }
        match pooler.filter(|pooler| pooler.classifies) {
            Some(_) if self.config().chat_template.is_some() => PairForm::Template,
            Some(PoolerFacts { pairs: PairInput::OneText, .. }) => PairForm::Text,
            Some(PoolerFacts { pairs: PairInput::DocumentFirst, .. }) => PairForm::DocumentFirst,
            Some(PoolerFacts { pairs: PairInput::Prompt(prompt), .. }) => {
                PairForm::Prompt(prompt.clone())
            }
            Some(pooler)
                if pooler.pairs == PairInput::Conversation
                    && !self.loaded().chat_templates.is_empty() =>
            {
                PairForm::Conversation
            }
            _ => PairForm::Pair,
        }
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
        let prompts: Vec<Prompt> = prompts.into_iter().collect();
        self.pool(prompts.into_iter().map(|prompt| RawRequest::pool(prompt, params.clone()))).await
    }

    /// Submits requests that pool, and returns their results in order. No more of them are in the
    /// engine at a time than it computes at a time. A drop aborts them.
    ///
    /// # Errors
    /// [`PoolError`] of the first request that fails. The others are aborted then.
    pub async fn pool(
        &self,
        requests: impl IntoIterator<Item = RawRequest, IntoIter: Send>,
    ) -> Result<Vec<PooledPrompt>, PoolError> {
        self.pool_stream(requests).try_collect().await
    }

    /// Does the same as [`Engine::pool`], and returns each result as soon as it and those before it
    /// are computed. Takes a request only when there is room for it.
    pub fn pool_stream<'a, I>(
        &'a self,
        requests: I,
    ) -> impl Stream<Item = Result<PooledPrompt, PoolError>> + Send + 'a
    where
        I: IntoIterator<Item = RawRequest, IntoIter: Send + 'a>,
    {
        let mut requests = requests.into_iter();
        let begun = async move {
            let Some(first) = requests.next() else {
                return Ok::<BoxStream<'_, _>, PoolError>(stream::empty().boxed());
            };
            let (first, joining) = self.submit_pooling(first).await?;
            // All of them take turns with other clients' requests as one.
            let group = first.choices.first().map(ChoiceStream::request);
            let piece_len = self.model_info().max_model_len;
            let rest = requests.map(move |request| -> BoxFuture<'_, _> {
                async move {
                    let request = RawRequest { group, ..request };
                    let (submission, joining) = self.submit_pooling(request).await?;
                    finish(submission, piece_len, joining).await
                }
                .boxed()
            });
            let first = finish(first, piece_len, joining).boxed();
            let all = std::iter::once(first).chain(rest);
            Ok(stream::iter(all).buffered(self.pooling_window()).boxed())
        };
        stream::once(begun).try_flatten()
    }

    /// Submits a request. Also returns how the vectors of its pieces become one.
    async fn submit_pooling(
        &self,
        mut request: RawRequest,
    ) -> Result<(Submission, Joining), PoolError> {
        let mut joining = Joining { join: Join::Mean { is_normalized: false }, cut: None };
        let has_media = request.has_media();
        if let Some(params) = &mut request.pooling {
            // As the input processor does.
            params.in_pieces &= !has_media;
            let head = self.model_info().heads.pooling(params.task);
            let by_model = head.is_some_and(|head| head.activation);
            let is_normalized = params.use_activation.unwrap_or(by_model);
            let is_long = head.is_some_and(|head| head.max_prompt_len.is_some());
            let pooler = self.loaded().pooler.as_ref();
            let is_sparse = pooler.is_some_and(|pooler| pooler.is_sparse);
            let is_joined = params.in_pieces && is_long && params.num_left_out == 0;
            let cut = pooler.and_then(|pooler| pooler.cut_of_joined);
            joining = Joining {
                join: Join::Mean { is_normalized },
                cut: cut.filter(|_| is_joined && params.dimensions.is_none()),
            };
            if params.in_pieces && is_long && is_sparse {
                // Weights of different pieces can be compared before they are normalized.
                params.use_activation = Some(false);
                joining.join = Join::Largest { normalizes: is_normalized };
            }
        }
        Ok((self.submit(request).await?, joining))
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

    /// Returns the text that the model expects before texts of this kind, for example `query`.
    ///
    /// # Errors
    /// The kinds that the model knows, if this one is not among them.
    pub fn prompt_of(&self, kind: &str) -> Result<&str, Vec<&str>> {
        let pooler = self.loaded().pooler.as_ref();
        let prompts = pooler.map(|pooler| &pooler.prompts[..]).unwrap_or_default();
        let found = prompts.iter().find(|(known, _)| known == kind);
        found.map(|(_, prompt)| prompt.as_str()).ok_or_else(|| {
            let mut known: Vec<&str> = prompts.iter().map(|(kind, _)| kind.as_str()).collect();
            known.sort_unstable();
            known
        })
    }

    /// Returns the number of first tokens that a vector leaves out with `prompt` before its text.
    /// It is zero unless `include_prompt` of the model's `Pooling` is false. As in
    /// sentence-transformers, it is the number of the prompt's own tokens, without a special token
    /// at the end.
    ///
    /// # Errors
    /// [`RequestError::Text`] if the tokenizer rejects the prompt.
    pub fn num_left_out(&self, prompt: &str) -> Result<u32, RequestError> {
        let pooler = self.loaded().pooler.as_ref();
        if prompt.is_empty() || !pooler.is_some_and(|pooler| pooler.excludes_prompt) {
            return Ok(0);
        }
        let codec = self.codec();
        let tokens = codec.encode(prompt, true);
        let tokens = tokens.map_err(|error| RequestError::Text(error.to_string()))?;
        let ends_special = tokens.last().is_some_and(|token| codec.is_special(*token));
        Ok(tokens.len().saturating_sub(usize::from(ends_special)) as u32)
    }

    /// Returns how many requests of one call are in the engine at a time. Each may become as many
    /// as its prompt has pieces.
    pub(crate) fn pooling_window(&self) -> usize {
        let (config, info) = (self.config(), self.model_info());
        let longest = info.heads.pooling.iter().filter_map(|head| head.max_prompt_len).max();
        let pieces = longest.unwrap_or(1).div_ceil(info.max_model_len.max(1)).max(1);
        config.max_num_seqs.min(config.max_num_requests / pieces).max(1)
    }
}

/// Returns scores with their indices, the best one first.
pub(crate) fn ranked(scores: &[f32], top_n: Option<usize>) -> Vec<RankedDocument> {
    let order = scoring::best_first(scores).into_iter().take(top_n.unwrap_or(usize::MAX));
    order.map(|index| RankedDocument { index, score: scores[index] }).collect()
}

/// How the vectors of the pieces of a prompt become one.
#[derive(Debug, Clone, Copy)]
struct Joining {
    join: Join,
    /// Number of elements that the joined vector keeps.
    cut: Option<u32>,
}

/// Waits for the result of an accepted request. The choices of a long prompt are its pieces, of
/// `piece_len` tokens but the last.
async fn finish(
    submission: Submission,
    piece_len: usize,
    Joining { join, cut }: Joining,
) -> Result<PooledPrompt, PoolError> {
    let Submission { prompt_token_ids, choices, .. } = submission;
    let (mut joined, mut num_cached_tokens) = (Pieces::new(join), 0);
    let pieces = prompt_token_ids.chunks(piece_len.max(1));
    for (mut choice, piece) in choices.into_iter().zip(pieces) {
        let (mut pooled, mut num_cached) = (None, 0);
        while let Some(delta) = choice.next().await {
            pooled = pooled.or(delta.pooled);
            num_cached = delta.num_cached_tokens.unwrap_or(num_cached);
            match delta.finish {
                Some(FinishReason::Error(failure)) => return Err(PoolError::Failed(failure)),
                Some(FinishReason::Abort) => return Err(PoolError::Aborted),
                _ => {}
            }
        }
        joined.add(pooled.ok_or(PoolError::Aborted)?, piece.len());
        num_cached_tokens += num_cached;
    }
    let mut pooled = joined.finish().ok_or(PoolError::Aborted)?;
    if let Some(kept) = cut.and_then(|cut| pooled.values.get(..cut as usize)) {
        pooled = Pooled { width: kept.len(), values: kept.into() };
    }
    Ok(PooledPrompt { prompt_token_ids, pooled, num_cached_tokens })
}
