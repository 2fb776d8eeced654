//! The content that a process leaves to the next one: stored responses, ended streams, and answers
//! in one piece.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use futures_util::StreamExt;
use serde::{Deserialize, Serialize};

use crate::{
    api::{DecodeError, EncodeError, Frames, MAX_PAYLOAD_LEN, MemoryBudget},
    server::{
        http::auth::ApiKeys,
        responses::{ResponsePart, ResponseStore},
        resume::{AnswerPart, KeptAnswers},
        state::AppState,
    },
};

/// The route that answers at the end of the other process.
pub(super) const ROUTE: &str = "/handover/remainder";
/// The frames of parts. A change of [`Part`] needs another version.
const FRAMES: Frames = Frames { version: 1, max_len: MAX_PAYLOAD_LEN };
/// The share of the memory for requests that answers of another process may take before they are
/// entered: one byte of this many.
const MEMORY_PART: usize = 8;

/// One part of the content.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::server) enum Part {
    Response(ResponsePart),
    Answer(AnswerPart),
}

/// The content of another process, as far as it waits to be entered.
#[derive(Debug, Default)]
pub(in crate::server) struct Inherited {
    answers: Vec<AnswerPart>,
    num_bytes: usize,
}

/// The reason why the rest of a content is lost.
#[derive(Debug, thiserror::Error)]
pub(super) enum RemainderError {
    #[error("the connection broke off: {0}")]
    Connection(axum::Error),
    #[error("{0}")]
    Part(#[from] DecodeError),
    #[error("the last part is cut off")]
    CutOff,
    #[error("the answers of the process before take more than {limit} bytes")]
    TooLarge { limit: usize },
}

impl Part {
    /// # Errors
    /// If the part is too large for a frame.
    pub(in crate::server) fn to_bytes(&self) -> Result<Bytes, EncodeError> {
        let mut bytes = Vec::new();
        FRAMES.encode(self, &mut bytes)?;
        Ok(bytes.into())
    }

    /// Reads the first part of `bytes`. Returns it with its number of bytes, or `None` if it is not
    /// there whole.
    ///
    /// # Errors
    /// If it is damaged, or of another version.
    pub(in crate::server) fn decode(bytes: &[u8]) -> Result<Option<(Self, usize)>, DecodeError> {
        FRAMES.decode(bytes)
    }
}

/// The parts of a server that clients may ask the next process for. They are the same after a swap
/// of the model.
#[derive(Clone)]
pub(in crate::server) struct Estate {
    pub(in crate::server) kept: Arc<KeptAnswers>,
    pub(super) responses: Arc<ResponseStore>,
    pub(super) keys: Arc<ApiKeys>,
    memory: Arc<MemoryBudget>,
}

impl Estate {
    pub(in crate::server) fn of(state: &AppState) -> Self {
        let AppState { kept, responses, keys, engine, .. } = state;
        let (kept, responses, keys) = (kept.clone(), responses.clone(), keys.clone());
        Self { kept, responses, keys, memory: engine.memory().clone() }
    }

    /// Returns all that is over.
    pub(in crate::server) fn remainder(&self) -> Vec<Bytes> {
        let (mut parts, mut num_lost) = self.responses.all_parts(&self.keys);
        for part in self.kept.parts(&self.keys) {
            match Part::Answer(part).to_bytes() {
                Ok(bytes) => parts.push(bytes),
                Err(_) => num_lost += 1,
            }
        }
        if num_lost > 0 {
            tracing::warn!(num_lost, "answers are too large to be handed over");
        }
        parts
    }
}

/// Reads parts as they come. Stored responses are entered at once.
///
/// # Errors
/// [`RemainderError`]. The parts before it are there.
pub(super) async fn receive(
    body: Body,
    estate: &Estate,
    inherited: &mut Inherited,
) -> Result<(), RemainderError> {
    let limit = estate.memory.limit() / MEMORY_PART;
    let mut responses = estate.responses.heir();
    let (mut pieces, mut rest) = (body.into_data_stream(), Vec::new());
    while let Some(piece) = pieces.next().await {
        rest.extend_from_slice(&piece.map_err(RemainderError::Connection)?);
        let mut read = 0;
        while let Some((part, len)) = Part::decode(&rest[read..])? {
            read += len;
            match part {
                Part::Response(part) => responses.enter(part, &estate.keys),
                Part::Answer(part) => {
                    inherited.num_bytes += len;
                    if inherited.num_bytes > limit {
                        return Err(RemainderError::TooLarge { limit });
                    }
                    inherited.answers.push(part);
                }
            }
        }
        rest.drain(..read);
    }
    if rest.is_empty() { Ok(()) } else { Err(RemainderError::CutOff) }
}

impl Inherited {
    /// Enters the answers that this process does not have by now.
    pub(in crate::server) fn enter(self, state: &AppState) {
        for part in self.answers {
            state.kept.enter_part(part, state);
        }
    }
}
