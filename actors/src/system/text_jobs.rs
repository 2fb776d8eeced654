//! Tokenizing and templating on blocking threads: in pieces, a bounded number at a time, so a short
//! text never waits for a long one.

use std::{num::NonZero, sync::Arc, thread};

use tokio::sync::{AcquireError, Semaphore};

use super::config::DeviceMode;
use crate::{
    logic::input::text_pieces::{EncodedText, TextPieces, WantedTokens},
    ports::{ChatPrompt, TextCodec, TextError},
};

/// Texts of more bytes than this are long.
const SHORT_TEXT_BYTES: usize = 128 << 10;

/// The reason why a job has no result.
#[derive(Debug, thiserror::Error)]
pub enum TextJobError {
    /// The text side refused the text.
    #[error(transparent)]
    Text(#[from] TextError),
    /// The client left meanwhile.
    #[error("the client left")]
    ClientLeft,
    /// The tokenizer panicked, or the runtime ends.
    #[error("the tokenizer failed: {0}")]
    Failed(String),
}

/// The size class of a job.
#[derive(Debug, Clone, Copy)]
enum Lane {
    Short,
    Long,
}

impl Lane {
    fn of(text_bytes: usize) -> Self {
        if text_bytes > SHORT_TEXT_BYTES { Self::Long } else { Self::Short }
    }
}

/// Runs the text side's work. After each piece, a job passes its turn to the next job of its lane.
/// The lanes have turns of their own.
pub struct TextJobs {
    codec: Arc<dyn TextCodec>,
    short: Arc<Semaphore>,
    long: Arc<Semaphore>,
    /// Whether jobs run without threads, as in simulations.
    is_inline: bool,
}

impl TextJobs {
    /// Returns the runner of jobs over a codec.
    pub(crate) fn new(codec: Arc<dyn TextCodec>, device: DeviceMode) -> Self {
        let num_cores = thread::available_parallelism().map_or(1, NonZero::get);
        Self {
            codec,
            short: Arc::new(Semaphore::new(num_cores.max(2))),
            long: Arc::new(Semaphore::new((num_cores / 2).max(1))),
            is_inline: matches!(device, DeviceMode::Task { .. }),
        }
    }

    /// Returns the wanted tokens of a text. No further piece is begun when this future is dropped,
    /// or when `is_left` returns true.
    ///
    /// # Errors
    /// [`TextJobError`].
    pub async fn encode<S: AsRef<str> + Send + 'static>(
        &self,
        mut text: S,
        add_special_tokens: bool,
        wanted: WantedTokens,
        is_left: &(dyn Fn() -> bool + Send + Sync),
    ) -> Result<EncodedText, TextJobError> {
        let text_bytes = text.as_ref().len();
        let lane = Lane::of(text_bytes);
        let mut pieces = TextPieces::new(text_bytes, wanted);
        let mut is_first = true;
        while let Some(rest) = pieces.rest() {
            if is_left() {
                return Err(TextJobError::ClientLeft);
            }
            let (codec, dropped) = (Arc::clone(&self.codec), pieces.dropped());
            let step = move || {
                let whole = text.as_ref();
                let encoded = codec.next_piece(whole, rest, dropped).and_then(|piece| {
                    let is_whole = is_first && piece.len() == whole.len();
                    // A text of one piece is encoded as a whole, so the tokens around it need not
                    // be known.
                    let tokens = match is_whole {
                        true => codec.encode(whole, add_special_tokens),
                        false => codec.encode_piece(whole, piece.clone()),
                    };
                    tokens.map(|tokens| (piece, tokens, is_whole))
                });
                (text, encoded)
            };
            let (back, encoded) = self.run(lane, step).await?;
            text = back;
            let (piece, tokens, is_whole) = encoded?;
            pieces.push(&piece, tokens);
            if is_whole {
                return Ok(pieces.finish(Vec::new(), Vec::new()));
            }
            is_first = false;
        }
        let around = match add_special_tokens {
            // An empty text has no piece.
            true if is_first => (self.codec.encode("", true)?, Vec::new()),
            true => self.codec.surround(),
            false => (Vec::new(), Vec::new()),
        };
        Ok(pieces.finish(around.0, around.1))
    }

    /// Returns the prompt of a conversation.
    ///
    /// # Errors
    /// [`TextJobError`].
    pub async fn render(&self, chat: &Arc<ChatPrompt>) -> Result<String, TextJobError> {
        // The request's own template may take as long as the limits allow.
        let text_bytes = if chat.chat_template.is_some() { usize::MAX } else { chat.text_bytes() };
        let chat = Arc::clone(chat);
        Ok(self.work(text_bytes, move |codec| codec.render_chat(&chat)).await??)
    }

    /// Does other work with the text side. `text_bytes` chooses the lane.
    ///
    /// # Errors
    /// [`TextJobError::Failed`].
    pub async fn work<T: Send + 'static>(
        &self,
        text_bytes: usize,
        work: impl FnOnce(&dyn TextCodec) -> T + Send + 'static,
    ) -> Result<T, TextJobError> {
        let codec = Arc::clone(&self.codec);
        self.run(Lane::of(text_bytes), move || work(&*codec)).await
    }

    async fn run<T: Send + 'static>(
        &self,
        lane: Lane,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, TextJobError> {
        let turns = match lane {
            Lane::Short => &self.short,
            Lane::Long => &self.long,
        };
        let closed = |error: AcquireError| TextJobError::Failed(error.to_string());
        let turn = Arc::clone(turns).acquire_owned().await.map_err(closed)?;
        if self.is_inline {
            let done = work();
            drop(turn);
            tokio::task::yield_now().await;
            return Ok(done);
        }
        // The work goes on when nothing waits for it, and keeps its turn to its end.
        let work = move || {
            let done = work();
            drop(turn);
            done
        };
        tokio::task::spawn_blocking(work)
            .await
            .map_err(|error| TextJobError::Failed(error.to_string()))
    }
}

impl std::fmt::Debug for TextJobs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TextJobs").finish_non_exhaustive()
    }
}
