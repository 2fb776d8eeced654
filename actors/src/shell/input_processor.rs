//! The input processor's shell: text becomes token ids on a blocking thread, so that a long prompt
//! does not hold up the actors.

use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef};

use super::{config::DeviceMode, context::Context, watched::waiting_for};
use crate::{
    error::RequestError,
    logic::{
        ids::TokenId,
        input::{OutputTokens, PromptLimits, check_length, fit_prompt},
        sampling_params::{SamplingLimits, SamplingParams},
    },
    message::{
        InputProcessorMessage,
        input_processor::{ProcessedRequest, Prompt, RawRequest},
    },
    ports::{TextCodec, TextError},
};

/// One input processor of the pool.
#[derive(Debug)]
pub struct InputProcessorActor {
    context: Arc<Context>,
}

impl InputProcessorActor {
    /// An input processor with the context's codec and limits.
    pub fn new(context: Arc<Context>) -> Self {
        Self { context }
    }
}

/// Makes token ids of a client's request and checks it against the model and the KV cache.
fn process(context: &Context, raw: &RawRequest) -> Result<ProcessedRequest, RequestError> {
    let info = context.vault.executors.info();
    let tokens = tokenize(context, raw)?;
    let limits = PromptLimits {
        vocab_size: info.vocab_size,
        max_model_len: context.config.scheduler.max_model_len,
    };
    let output = OutputTokens { wanted: raw.max_tokens, default: raw.max_tokens_default };
    let fitted =
        fit_prompt(tokens, output, raw.truncate_prompt_tokens, raw.truncation_side, &limits)?;
    context.config.scheduler.check_servable(fitted.prompt_token_ids.len())?;
    let mut params = SamplingParams { max_tokens: fitted.max_tokens, ..raw.params.clone() };
    params.bad_words = bad_words(&*context.codec, &raw.bad_words)?;
    params.validate(&SamplingLimits {
        vocab_size: info.vocab_size,
        max_logprobs: context.config.max_logprobs,
    })?;
    params.normalize();
    Ok(ProcessedRequest { prompt_token_ids: fitted.prompt_token_ids.into(), params })
}

fn tokenize(context: &Context, raw: &RawRequest) -> Result<Vec<TokenId>, RequestError> {
    let codec = &*context.codec;
    let rendered;
    let text = match &raw.prompt {
        Prompt::Tokens(tokens) => return Ok(tokens.clone()),
        Prompt::Text(text) => text,
        Prompt::Chat(chat) => {
            rendered = codec.render_chat(chat).map_err(refused)?;
            &rendered
        }
    };
    if let (Some(max_token_bytes), None) = (codec.max_token_bytes(), raw.truncate_prompt_tokens) {
        check_length(text, max_token_bytes, context.config.scheduler.max_model_len)?;
    }
    codec.encode(text, raw.add_special_tokens).map_err(refused)
}

/// Each word at the start of a text and after a space, as vLLM bans both.
fn bad_words(codec: &dyn TextCodec, words: &[String]) -> Result<Vec<Vec<TokenId>>, RequestError> {
    let mut banned: Vec<Vec<TokenId>> = Vec::with_capacity(2 * words.len());
    for word in words {
        let bare = codec.encode(word.trim_start(), false).map_err(refused)?;
        let spaced = codec.encode(&format!(" {}", word.trim_start()), false).map_err(refused)?;
        let differs = spaced.first() != bare.first() && spaced.len() == bare.len();
        banned.push(bare);
        if differs {
            banned.push(spaced);
        }
    }
    banned.retain(|tokens| !tokens.is_empty());
    Ok(banned)
}

fn refused(error: TextError) -> RequestError {
    RequestError::Text(error.to_string())
}

impl Actor for InputProcessorActor {
    type Msg = InputProcessorMessage;
    type State = ();
    type Arguments = ();

    async fn pre_start(
        &self,
        _myself: ActorRef<InputProcessorMessage>,
        (): (),
    ) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn handle(
        &self,
        _myself: ActorRef<InputProcessorMessage>,
        message: InputProcessorMessage,
        (): &mut (),
    ) -> Result<(), ActorProcessingErr> {
        let InputProcessorMessage::Process(raw, reply) = message else { return Ok(()) };
        // The client left, or the job was given up, while it waited here.
        if reply.is_closed() {
            return Ok(());
        }
        let context = Arc::clone(&self.context);
        let result = match context.config.device {
            // A panic in there is this actor's, and the job is retried on another.
            DeviceMode::Thread => {
                waiting_for(tokio::task::spawn_blocking(move || process(&context, &raw))).await?
            }
            DeviceMode::Task { .. } => process(&context, &raw),
        };
        let _ = reply.send(result);
        Ok(())
    }
}
