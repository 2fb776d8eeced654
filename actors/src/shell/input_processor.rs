//! The input processor's shell: takes jobs. They run beside the actor and take turns, so a long
//! prompt delays neither the actor nor other prompts.

use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::task::JoinSet;

use crate::{
    error::RequestError,
    logic::{
        input::{
            encoder_text::{EncoderText, of_encoder},
            fit::{
                OutputTokens, PromptLimits, TruncationSide, check_length, check_text_bytes,
                fit_prompt, kept_tokens,
            },
            languages::LanguageTokens,
            text_pieces::WantedTokens,
        },
        request::{
            ids::TokenId,
            media::MultimodalFeature,
            pooling_params::PoolingParams,
            sampling_params::{SamplingLimits, SamplingParams},
            work::Work,
        },
    },
    message::{
        InputProcessorMessage,
        input_processor::{ProcessedRequest, Prompt, RawRequest},
    },
    ports::{
        ExpandedPrompt, MediaError, TextCodec, TextError, TokenizedChunks, TokenizedPair,
        expanded_prompt,
    },
    system::{context::Context, text_jobs::TextJobError},
};

/// Largest size of all `bad_words` of a request together.
const BAD_WORDS_BYTES_MAX: usize = 64 << 10;

/// Images and sounds take turns with long texts.
const MEDIA_LANE_BYTES: usize = usize::MAX;

/// One input processor of the pool.
#[derive(Debug)]
pub struct InputProcessorActor {
    context: Arc<Context>,
}

impl InputProcessorActor {
    /// Returns an input processor with the context's codec and limits.
    pub fn new(context: Arc<Context>) -> Self {
        Self { context }
    }
}

/// The reason why a job has no result.
#[derive(Debug)]
enum Ended {
    /// The client gets this error.
    Refused(RequestError),
    /// The client left, or the codec panicked. The door sees that the reply was dropped.
    Unanswered,
}

impl From<RequestError> for Ended {
    fn from(error: RequestError) -> Self {
        Self::Refused(error)
    }
}

impl Ended {
    /// Returns the same about a text of an encoder.
    fn of_encoder(self) -> Self {
        match self {
            Self::Refused(error) => Self::Refused(of_encoder(error)),
            Self::Unanswered => Self::Unanswered,
        }
    }
}

impl From<TextJobError> for Ended {
    fn from(error: TextJobError) -> Self {
        match error {
            TextJobError::Text(error) => Self::Refused(refused(error)),
            TextJobError::ClientLeft => Self::Unanswered,
            TextJobError::Failed(reason) => {
                tracing::warn!(%reason, "a prompt could not be processed");
                Self::Unanswered
            }
        }
    }
}

/// The text of a request. The door shares the request.
struct PromptText(Arc<RawRequest>);

impl AsRef<str> for PromptText {
    fn as_ref(&self) -> &str {
        match &self.0.prompt {
            Prompt::Text(text) => text,
            Prompt::Tokens(_)
            | Prompt::Expanded(_)
            | Prompt::Chat(_)
            | Prompt::Pair(..)
            | Prompt::Chunks(_) => "",
        }
    }
}

/// Returns whether no caller waits for a job.
type IsLeft<'a> = &'a (dyn Fn() -> bool + Send + Sync);

/// Turns a client's request into token ids, and checks it against the model and the KV cache.
async fn process(
    context: &Context,
    raw: &Arc<RawRequest>,
    is_left: IsLeft<'_>,
) -> Result<ProcessedRequest, Ended> {
    let info = context.vault.executors.info();
    let is_pooling = raw.pooling.is_some();
    let max_model_len = context.config.scheduler.max_model_len;
    let work = raw.pooling.as_ref().map(|params| params.fit(&info.heads)).transpose()?;
    // A piece could end within an item.
    let in_pieces = |params: &PoolingParams| params.in_pieces && !raw.has_media();
    let work = work.map(|params| PoolingParams { in_pieces: in_pieces(&params), ..params });
    let is_chunked = check_chunked(raw)?;
    // Chunks see each other only within the model's context.
    let longest = |params: &PoolingParams| match is_chunked {
        true => max_model_len,
        false => params.max_prompt_len(&info.heads, max_model_len),
    };
    let limits = PromptLimits {
        vocab_size: info.vocab_size,
        max_model_len: work.as_ref().map_or(max_model_len, longest),
        min_output_tokens: u32::from(!is_pooling),
    };
    let output = match is_pooling {
        true => OutputTokens { wanted: Some(0), default: None },
        false => {
            info.heads.check_generates()?;
            OutputTokens { wanted: raw.max_tokens, default: raw.max_tokens_default }
        }
    };
    // A prompt that stands beside its text is the decoder's.
    let is_whole = matches!(&raw.prompt, Prompt::Expanded(prompt) if !prompt.features.is_empty());
    let text = context.vault.codec.encoder_text().filter(|_| !is_pooling && !is_whole);
    let read_limits = text.map_or(limits, |text| text.limits());
    let languages = match is_whole {
        true => LanguageTokens::default(),
        false => raw.language_tokens(text.map(|text| &**text))?,
    };
    let given = work.as_ref().map(|params| params.chunk_ends.clone()).unwrap_or_default();
    let (tokens, second_text_at, chunk_ends) = match &raw.prompt {
        Prompt::Pair(first, second) => {
            let kept = kept_tokens(raw.truncate_prompt_tokens, &read_limits)?;
            let pair = tokenize_pair(context, raw, [first, second], kept, &read_limits).await?;
            (pair.tokens, pair.second_text_at, given)
        }
        Prompt::Chunks(texts) => {
            let chunks = tokenize_chunks(context, raw, texts, &limits).await?;
            (chunks.tokens, None, chunks.ends.into_iter().map(|end| end as u32).collect())
        }
        _ => {
            let adds = raw.add_special_tokens && languages.around.is_none();
            let read = tokenize(context, raw, adds, &read_limits, is_left).await;
            let read = if text.is_some() { read.map_err(Ended::of_encoder) } else { read };
            let kept = kept_tokens(raw.truncate_prompt_tokens, &read_limits)?;
            (languages.surround(read?, kept, raw.truncation_side), None, given)
        }
    };
    let tokens = raw.ended(tokens)?;
    let (ExpandedPrompt { tokens, features }, truncate_to) = match text {
        Some(text) => (decoder_prompt(context, raw, text, tokens, languages)?, None),
        None => (with_media(context, raw, tokens, &limits).await?, raw.truncate_prompt_tokens),
    };
    let mm_features = features.into();
    let num_tokens = tokens.len();
    let mut fitted = fit_prompt(tokens, output, truncate_to, raw.truncation_side, &limits)?;
    let num_dropped = match raw.truncation_side {
        TruncationSide::Left => num_tokens - fitted.prompt_token_ids.len(),
        TruncationSide::Right => 0,
    };
    let second_text_at = second_text_at.map(|at| at.saturating_sub(num_dropped) as u32);
    let media = context.vault.codec.media();
    let is_padded = is_pooling && !raw.has_media() && media.is_some_and(|media| media.pads_texts());
    if raw.pads_to_limit || is_padded {
        let pad = context.vault.codec.pad_token().ok_or_else(|| {
            let accepted = "do_not_pad, because the tokenizer has no padding token";
            RequestError::invalid("padding", "max_length", accepted)
        })?;
        fitted.prompt_token_ids.resize(limits.max_model_len, pad);
    }
    let prompt_token_ids: Arc<[TokenId]> = fitted.prompt_token_ids.into();
    if let Some(params) = work {
        context.config.scheduler.check_poolable(prompt_token_ids.len().min(max_model_len))?;
        let params = match is_chunked {
            true => params.in_chunks(chunk_ends, &info.heads, prompt_token_ids.len())?,
            false => params,
        };
        let num_left_out = params.num_left_out.saturating_sub(num_dropped as u32);
        let work = Work::Pool(PoolingParams { second_text_at, num_left_out, ..params });
        return Ok(ProcessedRequest { prompt_token_ids, work, mm_features });
    }
    context.config.scheduler.check_servable(prompt_token_ids.len())?;
    let mut params = SamplingParams { max_tokens: fitted.max_tokens, ..raw.params.clone() };
    params.bad_words = bad_words(context, raw).await?;
    let vocab_size = info.scored_tokens();
    params.count_logprobs(vocab_size);
    let max_logprobs = context.config.max_logprobs;
    params.validate(&SamplingLimits { vocab_size, max_logprobs })?;
    params.normalize();
    Ok(ProcessedRequest { prompt_token_ids, work: Work::Generate(params), mm_features })
}

/// Returns the prompt of a decoder, and the text that the encoder takes, whose tokens are `read`.
fn decoder_prompt(
    context: &Context,
    raw: &RawRequest,
    text: &EncoderText,
    read: Vec<TokenId>,
    languages: LanguageTokens,
) -> Result<ExpandedPrompt, RequestError> {
    if let Some(item) = raw.media.first() {
        return Err(MediaError::TooMany { modality: item.modality, limit: 0 }.into());
    }
    let (truncate_to, side) = (raw.truncate_prompt_tokens, raw.truncation_side);
    let read = fit_prompt(read, EncoderText::OUTPUT, truncate_to, side, &text.limits());
    let read = read.map_err(of_encoder)?.prompt_token_ids;
    let features = vec![MultimodalFeature::of_text(&read)];
    context.config.scheduler.check_encodable(&features)?;
    Ok(ExpandedPrompt { tokens: languages.decoder_prompt, features })
}

/// Makes the images and sounds of a request ready, and replaces their placeholders.
async fn with_media(
    context: &Context,
    raw: &Arc<RawRequest>,
    tokens: Vec<TokenId>,
    limits: &PromptLimits,
) -> Result<ExpandedPrompt, Ended> {
    let given = match &raw.prompt {
        Prompt::Expanded(prompt) => prompt.features.clone(),
        _ => Vec::new(),
    };
    if raw.media.is_empty() && given.is_empty() {
        return Ok(ExpandedPrompt { tokens, features: given });
    }
    // A cut could leave a part of an item.
    if let Some(count) = raw.truncate_prompt_tokens {
        let accepted = "unset for a prompt with images or sounds";
        return Err(RequestError::invalid("truncate_prompt_tokens", count, accepted).into());
    }
    if !given.is_empty() {
        context.config.scheduler.check_encodable(&given)?;
        return Ok(ExpandedPrompt { tokens, features: given });
    }
    let (raw, most) = (Arc::clone(raw), limits.max_model_len);
    let expand =
        move |codec: &dyn TextCodec| expanded_prompt(codec.media(), tokens, &raw.media, most);
    let expanded = context.vault.text_jobs.work(MEDIA_LANE_BYTES, expand);
    let expanded = expanded.await?.map_err(RequestError::from)?;
    context.config.scheduler.check_encodable(&expanded.features)?;
    Ok(expanded)
}

/// Returns all tokens of a prompt, or at least those that are kept.
async fn tokenize(
    context: &Context,
    raw: &Arc<RawRequest>,
    adds: bool,
    limits: &PromptLimits,
    is_left: IsLeft<'_>,
) -> Result<Vec<TokenId>, Ended> {
    let kept = kept_tokens(raw.truncate_prompt_tokens, limits)?;
    let jobs = &context.vault.text_jobs;
    let wanted = match kept {
        Some(num_tokens) => WantedTokens::Kept { num_tokens, dropped: raw.truncation_side },
        None => WantedTokens::UpTo(limits.max_model_len),
    };
    let check = |text: &str| match (context.vault.codec.max_token_bytes(), kept) {
        (Some(max_token_bytes), None) => check_length(text, max_token_bytes, limits.max_model_len),
        _ => Ok(()),
    };
    let encoded = match &raw.prompt {
        Prompt::Tokens(tokens) => return Ok(tokens.clone()),
        Prompt::Expanded(prompt) => return Ok(prompt.tokens.clone()),
        Prompt::Text(text) => {
            check(text)?;
            let text = PromptText(Arc::clone(raw));
            match (kept, raw.truncation_side) {
                // Tokens around a text are part of what a pooling model was trained on, so they
                // stay.
                (Some(kept), TruncationSide::Right) if adds && raw.pooling.is_some() => {
                    return keep_ends(context, text, kept, is_left).await;
                }
                _ => jobs.encode(text, adds, wanted, is_left).await?,
            }
        }
        // See `tokenize_pair` and `tokenize_chunks`.
        Prompt::Pair(..) | Prompt::Chunks(_) => return Ok(Vec::new()),
        Prompt::Chat(chat) => {
            let rendered = jobs.render(chat).await?;
            check(&rendered)?;
            jobs.encode(rendered, adds, wanted, is_left).await?
        }
    };
    if kept.is_none() && !encoded.is_whole {
        let (max_model_len, min_prompt_tokens) = (limits.max_model_len, encoded.num_tokens);
        return Err(RequestError::PromptTooLong { max_model_len, min_prompt_tokens }.into());
    }
    Ok(encoded.tokens)
}

/// Returns all tokens of a pair of texts, or those that are kept.
async fn tokenize_pair(
    context: &Context,
    raw: &Arc<RawRequest>,
    texts: [&Arc<str>; 2],
    kept: Option<usize>,
    limits: &PromptLimits,
) -> Result<TokenizedPair, Ended> {
    if let (Some(max_token_bytes), None) = (context.vault.codec.max_token_bytes(), kept) {
        for text in texts {
            check_length(text, max_token_bytes, limits.max_model_len)?;
        }
    }
    let adds = raw.add_special_tokens;
    // At the other side, special tokens are cut off like other tokens.
    let most_tokens = kept.filter(|_| raw.truncation_side == TruncationSide::Right);
    let bytes = texts.iter().map(|text| text.len()).sum();
    let [first, second] = texts.map(Arc::clone);
    let pair = context
        .vault
        .text_jobs
        .work(bytes, move |codec| codec.encode_pair(&first, &second, adds, most_tokens));
    Ok(pair.await?.map_err(refused)?)
}

/// Returns whether the prompt has chunks with a vector each.
fn check_chunked(raw: &RawRequest) -> Result<bool, RequestError> {
    let has_ends = raw.pooling.as_ref().is_some_and(|params| !params.chunk_ends.is_empty());
    let is_chunked = has_ends || matches!(raw.prompt, Prompt::Chunks(_));
    if !is_chunked {
        return Ok(false);
    }
    if raw.pooling.is_none() {
        return Err(RequestError::invalid("late_chunking", true, "unset, except for vectors"));
    }
    // A chunk that is cut off would have no vector.
    if let Some(count) = raw.truncate_prompt_tokens {
        let accepted = "unset with late_chunking";
        return Err(RequestError::invalid("truncate_prompt_tokens", count, accepted));
    }
    if raw.pads_to_limit {
        let accepted = "do_not_pad with late_chunking";
        return Err(RequestError::invalid("padding", "max_length", accepted));
    }
    Ok(true)
}

/// Returns the tokens of texts that follow each other, and the end of each.
async fn tokenize_chunks(
    context: &Context,
    raw: &Arc<RawRequest>,
    texts: &Arc<[String]>,
    limits: &PromptLimits,
) -> Result<TokenizedChunks, Ended> {
    let bytes = texts.iter().map(String::len).sum();
    if let Some(max_token_bytes) = context.vault.codec.max_token_bytes() {
        check_text_bytes(bytes, max_token_bytes, limits.max_model_len)?;
    }
    let (texts, adds) = (Arc::clone(texts), raw.add_special_tokens);
    let jobs = &context.vault.text_jobs;
    let chunks = jobs.work(bytes, move |codec| codec.encode_chunks(&texts, adds)).await?;
    Ok(chunks.map_err(refused)?)
}

/// Returns the first tokens of a text, with the special tokens around them: `kept` in all.
async fn keep_ends(
    context: &Context,
    text: PromptText,
    kept: usize,
    is_left: IsLeft<'_>,
) -> Result<Vec<TokenId>, Ended> {
    let jobs = &context.vault.text_jobs;
    let ends = jobs.work(PROBE.len(), special_ends).await?;
    let (mut tokens, end) = ends.map_err(refused)?;
    let num_tokens = kept.saturating_sub(tokens.len() + end.len());
    if num_tokens > 0 {
        let wanted = WantedTokens::Kept { num_tokens, dropped: TruncationSide::Right };
        let encoded = jobs.encode(text, false, wanted, is_left).await?;
        tokens.extend(encoded.tokens.into_iter().take(num_tokens));
    }
    tokens.extend(end);
    Ok(tokens)
}

/// A text whose tokens show which special tokens stand before and behind a text.
const PROBE: &str = "a";

/// Returns the special tokens before a text, and those behind it.
fn special_ends(codec: &dyn TextCodec) -> Result<(Vec<TokenId>, Vec<TokenId>), TextError> {
    let (bare, whole) = (codec.encode(PROBE, false)?, codec.encode(PROBE, true)?);
    let place = whole.windows(bare.len().max(1)).position(|window| window == bare);
    Ok(match place {
        Some(place) => (whole[..place].to_vec(), whole[place + bare.len()..].to_vec()),
        None => (Vec::new(), Vec::new()),
    })
}

/// Returns the tokens of the words that must not appear.
async fn bad_words(context: &Context, raw: &Arc<RawRequest>) -> Result<Vec<Vec<TokenId>>, Ended> {
    if raw.bad_words.is_empty() {
        return Ok(Vec::new());
    }
    let bytes: usize = raw.bad_words.iter().map(String::len).sum();
    if bytes > BAD_WORDS_BYTES_MAX {
        let (value, accepted) = (
            format!("{bytes} bytes"),
            format!("words of at most {BAD_WORDS_BYTES_MAX} bytes in all"),
        );
        return Err(RequestError::invalid("bad_words", value, accepted).into());
    }
    let raw = Arc::clone(raw);
    let banned =
        context.vault.text_jobs.work(bytes, move |codec| banned(codec, &raw.bad_words)).await?;
    let banned = banned.map_err(refused)?;
    if banned.iter().any(Vec::is_empty) {
        let accepted = "words of at least one token each";
        return Err(RequestError::invalid("bad_words", "a word without tokens", accepted).into());
    }
    Ok(banned)
}

/// Returns the tokens of each word at the start of a text and after a space, as vLLM bans both.
fn banned(codec: &dyn TextCodec, words: &[String]) -> Result<Vec<Vec<TokenId>>, TextError> {
    let mut banned: Vec<Vec<TokenId>> = Vec::with_capacity(2 * words.len());
    for word in words {
        let bare = codec.encode(word.trim_start(), false)?;
        let spaced = codec.encode(&format!(" {}", word.trim_start()), false)?;
        let differs = spaced.first() != bare.first() && spaced.len() == bare.len();
        banned.push(bare);
        if differs {
            banned.push(spaced);
        }
    }
    Ok(banned)
}

fn refused(error: TextError) -> RequestError {
    RequestError::Text(error.to_string())
}

impl Actor for InputProcessorActor {
    type Msg = InputProcessorMessage;
    /// The jobs that run. They end with the actor, and the door gives them to another one.
    type State = JoinSet<()>;
    type Arguments = ();

    async fn pre_start(
        &self,
        _myself: ActorRef<InputProcessorMessage>,
        (): (),
    ) -> Result<JoinSet<()>, ActorProcessingErr> {
        Ok(JoinSet::new())
    }

    async fn handle(
        &self,
        _myself: ActorRef<InputProcessorMessage>,
        message: InputProcessorMessage,
        jobs: &mut JoinSet<()>,
    ) -> Result<(), ActorProcessingErr> {
        let InputProcessorMessage::Process(job, reply) = message else { return Ok(()) };
        while jobs.try_join_next().is_some() {}
        // The client left, or the door gave up the job, while it waited in the mailbox.
        if reply.is_closed() {
            return Ok(());
        }
        let (context, running) = (Arc::clone(&self.context), job.run());
        jobs.spawn(async move {
            let result = match process(&context, &job.raw, &|| reply.is_closed()).await {
                Ok(processed) => Ok(processed),
                Err(Ended::Refused(error)) => Err(error),
                Err(Ended::Unanswered) => return,
            };
            drop(running);
            let _ = reply.send(result);
        });
        Ok(())
    }
}
