//! Transcribes one sound, piece by piece, on a task of its own.

use std::sync::Arc;

use axum::http::HeaderMap;
use tokio::{
    sync::mpsc::{Receiver, Sender, channel},
    task::AbortHandle,
};

use crate::{
    api::{LoraRequest, RawRequest},
    engine::{SoundPiece, SpeechOrder, SpeechTask},
    server::{
        audio::{
            hear::{language, piece_bytes},
            request::plain_request,
        },
        generate::{
            choices::Choices, handler::RequestNames, request_log::RequestLog, usage::Usage,
        },
        http::{caller::Caller, draws::Draws, error::ApiError, request_id::response_id},
        memory::RequestMemory,
        state::AppState,
    },
};

/// Deltas that may wait for the client. More stay in the engine, which merges them.
const DELTAS_WAITING: usize = 16;

/// The output of a transcription.
#[derive(Debug)]
pub(super) enum Output {
    /// New text.
    Delta(String),
    /// The whole text. It comes last.
    Done(String, Usage),
    /// The transcription failed. It comes last.
    Failed(ApiError),
}

/// The facts about a session that its transcriptions need.
#[derive(Clone)]
pub(super) struct Client {
    pub(super) state: AppState,
    pub(super) caller: Caller,
    pub(super) headers: HeaderMap,
    pub(super) memory: RequestMemory,
    /// `None`: the model finds it.
    pub(super) language: Option<&'static str>,
    /// The adapter that the client named as its model.
    pub(super) adapter: Option<Arc<LoraRequest>>,
}

/// A running transcription. A drop aborts it.
pub(super) struct Transcription {
    /// Takes the pieces, one at a time.
    pub(super) pieces: Sender<SoundPiece>,
    pub(super) outputs: Receiver<Output>,
    task: AbortHandle,
}

impl Transcription {
    /// Begins a transcription for `client`.
    pub(super) fn begin(client: Client) -> Self {
        let (pieces, received) = channel(1);
        let (sender, outputs) = channel(DELTAS_WAITING);
        let task = tokio::spawn(async move {
            let mut work = Work { client, outputs: sender, text: String::new(), counts: (0, 0) };
            let last = match work.transcribe(received).await {
                Ok(()) => Output::Done(work.text, Usage::new(work.counts.0, work.counts.1)),
                Err(error) => Output::Failed(error),
            };
            // A session that has ended needs no output.
            let _ = work.outputs.send(last).await;
        });
        Self { pieces, outputs, task: task.abort_handle() }
    }
}

impl Drop for Transcription {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Work {
    client: Client,
    outputs: Sender<Output>,
    text: String,
    /// Tokens of prompts, and tokens that were written.
    counts: (usize, usize),
}

impl Work {
    async fn transcribe(&mut self, mut pieces: Receiver<SoundPiece>) -> Result<(), ApiError> {
        while let Some(piece) = pieces.recv().await {
            let is_last = piece.is_last;
            if piece.seconds > 0.0 {
                self.hear(piece).await?;
            }
            if is_last {
                return Ok(());
            }
            let joint = self.client.state.speech()?.joint(self.client.language);
            self.add(joint.to_owned()).await;
        }
        Err(ApiError::internal("the sound broke off"))
    }

    /// Transcribes one piece.
    async fn hear(&mut self, piece: SoundPiece) -> Result<(), ApiError> {
        let Client { state, memory, headers, .. } = &self.client;
        let (speech, caller) = (state.speech()?, self.client.caller.anew());
        let id = response_id("rt", headers, None, &Draws::default().name);
        let RequestNames { log, abort } = RequestNames::of(&id);
        let names = abort.each_ref().map(String::as_str);
        let mut log = RequestLog::new(log, "/v1/realtime", caller.tenant);
        let memory = memory.another();
        let bytes = piece_bytes(speech, &piece);
        let submitted = async {
            caller.deadline.meet(memory.grow(bytes)).await??;
            let language = match self.client.language {
                language @ Some(_) => language,
                None => language(state, caller, &names, &memory, &piece).await?,
            };
            let prompt = speech.prompt(&SpeechOrder {
                task: SpeechTask::Transcribe,
                language,
                to_language: None,
                before: "",
                has_timestamps: false,
            });
            let request = plain_request(state, prompt, piece.media)?;
            let request = RawRequest { lora: self.client.adapter.clone(), ..request };
            let choices =
                Choices::submit(state, &names, caller, memory.clone(), vec![request]).await?;
            Ok::<_, ApiError>((language, choices))
        };
        let (language, mut choices) = submitted.await.inspect_err(|_| log.end("refused"))?;
        let mut transcript = speech.transcript();
        self.client.language = language;
        while let Some(news) = choices.next().await {
            let news = news.inspect_err(|_| log.end("failed"))?;
            log.count(&choices);
            let text = transcript.push(&news.delta.text, news.delta.finish.is_some());
            self.add(text).await;
        }
        self.counts.0 += choices.num_prompt_tokens();
        self.counts.1 += choices.num_output_tokens();
        log.end("complete");
        Ok(())
    }

    /// Sends new text.
    async fn add(&mut self, delta: String) {
        if !delta.is_empty() {
            self.text.push_str(&delta);
            // A session that has ended aborts this task.
            let _ = self.outputs.send(Output::Delta(delta)).await;
        }
    }
}
