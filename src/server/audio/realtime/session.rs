//! A session: reads a client's events, and sends those of the transcriptions.

use std::{pin::pin, time::Duration};

use axum::extract::ws::{CloseCode, CloseFrame, Message, WebSocket, close_code};
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Instant, sleep_until, timeout},
};
use uuid::Uuid;

use super::{
    events::{ClientEvent, Refused, ServerEvent, read},
    transcriber::{Client, Output, Transcription},
    utterances::Utterances,
};
use crate::server::{
    health::Timed,
    http::{error::ApiError, listen::Upgraded},
    memory::RequestMemory,
    state::{AppState, unix_seconds},
};

/// Bytes of a sample that waits.
const SAMPLE_BYTES: usize = size_of::<f32>();
/// Time in which a client answers the end of its session.
const GOODBYE: Duration = Duration::from_secs(1);

/// The end of a session: a code and the reason.
type End = (CloseCode, String);

/// A session.
pub(super) struct Session {
    client: Client,
    /// The lease of samples that wait.
    waiting: RequestMemory,
    utterances: Utterances,
    transcription: Option<Transcription>,
    has_model: bool,
    /// Its place among the sessions.
    _seat: OwnedSemaphorePermit,
}

/// Something that happened to a session.
enum Happened {
    Received(Option<Result<Message, axum::Error>>),
    Output(Option<Output>),
    TakesPiece,
    Idle,
    Draining,
}

impl Session {
    /// Returns a session without sounds.
    pub(super) fn new(client: Client, seat: OwnedSemaphorePermit) -> Self {
        Self {
            waiting: client.memory.another(),
            client,
            utterances: Utterances::default(),
            transcription: None,
            has_model: false,
            _seat: seat,
        }
    }

    /// Serves the session until it ends. A client that leaves aborts its transcription.
    pub(super) async fn serve(mut self, mut socket: WebSocket, upgraded: Option<Upgraded>) {
        let _timed = Timed::web_socket();
        let closing = upgraded.as_ref().map(Upgraded::closing).unwrap_or_default();
        let ended = tokio::select! {
            ended = self.exchange(&mut socket) => ended,
            () = closing.cancelled() => Some((close_code::AWAY, "the server stops".to_owned())),
        };
        drop(self);
        let Some((code, reason)) = ended else { return };
        tracing::debug!(code, reason, "a realtime session ends");
        let frame = CloseFrame { code, reason: reason.into() };
        let goodbye = async {
            // A client that has gone needs none.
            let _ = socket.send(Message::Close(Some(frame))).await;
            while let Some(Ok(_)) = socket.recv().await {}
        };
        let _ = timeout(GOODBYE, goodbye).await;
    }

    /// Handles events until the session ends. Returns `None` if the client has left.
    async fn exchange(&mut self, socket: &mut WebSocket) -> Option<End> {
        let id = format!("sess-{}", Uuid::new_v4().simple());
        send(socket, &ServerEvent::Created { id: &id, created: unix_seconds() }).await?;
        let limit = Duration::from_secs(self.client.state.config.realtime_idle_timeout_secs);
        let mut idle = pin!(sleep_until(Instant::now() + limit));
        loop {
            if self.transcription.is_none() && self.utterances.is_started() {
                self.transcription = Some(Transcription::begin(self.client.clone()));
            }
            let happened = tokio::select! {
                message = socket.recv() => Happened::Received(message),
                happened = progress(self.transcription.as_mut(), self.utterances.has_piece()) => {
                    happened
                }
                () = idle.as_mut(), if !self.utterances.is_complete() => Happened::Idle,
                () = no_more(&self.client.state), if !self.utterances.is_started() => {
                    Happened::Draining
                }
            };
            match happened {
                Happened::Received(Some(Ok(Message::Text(text)))) => {
                    idle.as_mut().reset(Instant::now() + limit);
                    if let Err(refused) = self.take(&text).await {
                        refuse(socket, &refused).await?;
                    }
                }
                // The library answers pings itself.
                Happened::Received(Some(Ok(Message::Ping(_) | Message::Pong(_)))) => {}
                Happened::Received(Some(Ok(Message::Binary(_)))) => {
                    let reason = "events are text: JSON with base64".to_owned();
                    return Some((close_code::UNSUPPORTED, reason));
                }
                Happened::Received(None | Some(Ok(Message::Close(_)))) => return None,
                Happened::Received(Some(Err(error))) => return Some(broken(&error)),
                Happened::Output(output) => {
                    idle.as_mut().reset(Instant::now() + limit);
                    self.forward(socket, output).await?;
                }
                Happened::TakesPiece => self.hand_over(),
                Happened::Idle => {
                    let reason = format!("no event came for {} s", limit.as_secs());
                    return Some((close_code::POLICY, reason));
                }
                Happened::Draining => {
                    return Some((close_code::AWAY, "the server stops".to_owned()));
                }
            }
        }
    }

    /// Takes an event of the client.
    async fn take(&mut self, text: &str) -> Result<(), Refused> {
        let state = self.client.state.clone();
        let failed = |error: ApiError| Refused::new("processing_error", error.message);
        let speech = state.speech().map_err(failed)?;
        match read(text)? {
            ClientEvent::Update { model, language } => {
                let not_found = |error: ApiError| Refused::new("model_not_found", error.message);
                let adapter = state.adapter(Some(&model)).await.map_err(not_found)?;
                let language = language.map(|code| speech.language(&code)).transpose();
                self.client.language =
                    language.map_err(|error| Refused::new("invalid_event", error.to_string()))?;
                self.client.adapter = adapter;
                self.has_model = true;
                Ok(())
            }
            ClientEvent::Append(samples) => {
                self.waiting.grow(samples.len() * SAMPLE_BYTES).await.map_err(failed)?;
                let added = self.utterances.append(samples, || speech.live_sound());
                self.settle();
                added
            }
            ClientEvent::Commit { .. } if !self.has_model => Err(Refused::new(
                "model_not_validated",
                "Model not validated. Make sure to validate the model by sending a \
                 session.update event.",
            )),
            ClientEvent::Commit { is_final: true } => {
                self.utterances.complete();
                self.settle();
                Ok(())
            }
            ClientEvent::Commit { is_final: false } => {
                self.utterances.start(|| speech.live_sound())
            }
        }
    }

    /// Gives the next piece to the transcription, which takes it at once.
    fn hand_over(&mut self) {
        let Some(piece) = self.utterances.next_piece() else { return };
        if let Some(transcription) = &self.transcription {
            // One that has ended says so with its output.
            let _ = transcription.pieces.try_send(piece);
        }
        self.settle();
    }

    /// Sends an output of the transcription.
    async fn forward(&mut self, socket: &mut WebSocket, output: Option<Output>) -> Option<()> {
        let lost = || Output::Failed(ApiError::internal("the transcription broke off"));
        let output = output.unwrap_or_else(lost);
        if !matches!(output, Output::Delta(_)) {
            self.transcription = None;
        }
        match output {
            Output::Delta(delta) => send(socket, &ServerEvent::Delta { delta: &delta }).await,
            Output::Done(text, usage) => {
                self.utterances.finish();
                send(socket, &ServerEvent::Done { text: &text, usage }).await
            }
            Output::Failed(error) => {
                self.utterances.fail();
                self.settle();
                refuse(socket, &Refused::new("processing_error", error.message)).await
            }
        }
    }

    /// Shrinks the lease to the samples that wait.
    fn settle(&self) {
        let lease = self.waiting.lease();
        let kept = self.utterances.num_waiting() * SAMPLE_BYTES;
        lease.shrink(lease.bytes().saturating_sub(kept));
    }
}

/// Completes with the next output of the transcription, or when it takes a piece.
async fn progress(transcription: Option<&mut Transcription>, has_piece: bool) -> Happened {
    let Some(Transcription { pieces, outputs, .. }) = transcription else {
        return std::future::pending().await;
    };
    tokio::select! {
        output = outputs.recv() => Happened::Output(output),
        Ok(_) = pieces.reserve(), if has_piece => Happened::TakesPiece,
    }
}

/// Completes when a session may begin no further utterance: the server drains, or serves another
/// model.
async fn no_more(state: &AppState) {
    tokio::select! {
        () = state.draining.cancelled() => {}
        () = state.superseded.cancelled() => {}
    }
}

/// Returns the end of a session whose client broke the protocol.
fn broken(error: &axum::Error) -> End {
    let message = error.to_string();
    let code = match () {
        _ if message.contains("too long") => close_code::SIZE,
        _ if message.contains("UTF-8") => close_code::INVALID,
        _ => close_code::PROTOCOL,
    };
    // A reason has at most 123 bytes, and a character at most 4.
    (code, message.chars().take(30).collect())
}

/// Sends an error.
async fn refuse(socket: &mut WebSocket, Refused { code, message }: &Refused) -> Option<()> {
    send(socket, &ServerEvent::Error { error: message, code }).await
}

/// Sends an event. Returns `None` if the client has left.
async fn send(socket: &mut WebSocket, event: &ServerEvent<'_>) -> Option<()> {
    let text = match serde_json::to_string(event) {
        Ok(text) => text,
        Err(error) => {
            tracing::error!(%error, "an event cannot be written");
            return None;
        }
    };
    socket.send(Message::Text(text.into())).await.ok()
}
