//! The answer as it arrives, and in one piece.

use std::{
    collections::VecDeque,
    fmt,
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures_core::Stream;

use super::{ChatError, ContentPart, Message, Turn, TurnEvent};
use crate::{
    api::{ChoiceStream, FinishReason, OutputDelta, RequestId, Submission},
    turn::TurnReader,
};

/// The parts of an answer as they arrive. Dropping it early aborts the request.
#[must_use = "dropping a stream aborts its request"]
pub struct ChatStream {
    choice: ChoiceStream,
    reader: TurnReader,
    /// Events that were read and not yet taken.
    ready: VecDeque<TurnEvent>,
    usage: ChatUsage,
    /// The failure in the place of the last part, until it is taken.
    failure: Option<ChatError>,
    finish_reason: Option<&'static str>,
    has_ended: bool,
}

/// The tokens of a chat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ChatUsage {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Those of them that came from the prefix cache.
    pub cached_tokens: usize,
    /// Tokens of the answer so far.
    pub completion_tokens: usize,
}

/// An answer in one piece.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChatAnswer {
    /// Thoughts, text and tool calls, and why they ended.
    pub turn: Turn,
    /// The tokens.
    pub usage: ChatUsage,
}

impl ChatStream {
    pub(super) fn new(submission: Submission, reader: TurnReader) -> Result<Self, ChatError> {
        let prompt_tokens = submission.num_input_tokens();
        let Submission { choices, .. } = submission;
        let choice = choices.into_iter().next().ok_or(ChatError::BrokenOff)?;
        let usage = ChatUsage { prompt_tokens, ..ChatUsage::default() };
        Ok(Self {
            choice,
            reader,
            ready: VecDeque::new(),
            usage,
            failure: None,
            finish_reason: None,
            has_ended: false,
        })
    }

    /// Returns the engine's id of the request.
    #[must_use]
    pub fn request(&self) -> RequestId {
        self.choice.request()
    }

    /// Returns the next part of the answer as soon as there is one, and `None` after the last one.
    /// Cancel safe: a dropped call loses nothing.
    ///
    /// # Errors
    /// [`ChatError::Failed`] or [`ChatError::BrokenOff`] in the place of the last part.
    pub async fn next(&mut self) -> Option<Result<TurnEvent, ChatError>> {
        poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }

    /// Waits for the whole answer. Parts that were taken before are not in it.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub async fn answer(mut self) -> Result<ChatAnswer, ChatError> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event?);
        }
        let finish_reason = self.finish_reason.ok_or(ChatError::BrokenOff)?;
        let turn = Turn::of(events, finish_reason, self.reader.num_reasoning_tokens());
        Ok(ChatAnswer { turn, usage: self.usage })
    }

    /// Returns the tokens so far.
    #[must_use]
    pub fn usage(&self) -> ChatUsage {
        self.usage
    }

    /// Returns the number of tokens of thought so far. `None` if thoughts are not distinguished.
    #[must_use]
    pub fn num_reasoning_tokens(&self) -> Option<usize> {
        self.reader.num_reasoning_tokens()
    }

    /// Returns why the answer ended, once it did: see [`Turn::finish_reason`].
    #[must_use]
    pub fn finish_reason(&self) -> Option<&'static str> {
        self.finish_reason
    }

    fn take_in(&mut self, delta: &OutputDelta) {
        self.usage.completion_tokens += delta.tokens.len();
        if let Some(cached) = delta.num_cached_tokens {
            self.usage.cached_tokens = cached;
        }
        self.ready.extend(self.reader.push(delta));
        let Some(finish) = &delta.finish else { return };
        self.has_ended = true;
        match finish {
            FinishReason::Error(failure) => self.failure = Some(ChatError::Failed(failure.clone())),
            finish => self.finish_reason = Some(self.reader.finish_reason(finish)),
        }
    }
}

impl Stream for ChatStream {
    type Item = Result<TurnEvent, ChatError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Poll::Ready(Some(Ok(event)));
            }
            if self.has_ended {
                return Poll::Ready(self.failure.take().map(Err));
            }
            match ready!(Pin::new(&mut self.choice).poll_next(context)) {
                Some(delta) => self.take_in(&delta),
                None => {
                    self.has_ended = true;
                    self.failure = Some(ChatError::BrokenOff);
                }
            }
        }
    }
}

impl fmt::Debug for ChatStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatStream")
            .field("request", &self.request())
            .field("usage", &self.usage)
            .finish_non_exhaustive()
    }
}

impl ChatAnswer {
    /// Returns the answer's text. It is empty if there are only thoughts or calls.
    #[must_use]
    pub fn text(&self) -> &str {
        self.turn.content.as_deref().unwrap_or_default()
    }

    /// Returns the answer as a message of the conversation, with its thoughts and tool calls.
    #[must_use]
    pub fn message(&self) -> Message {
        let content = self.turn.content.iter().cloned().map(ContentPart::Text);
        Message {
            content: content.collect(),
            reasoning: self.turn.reasoning.clone(),
            tool_calls: self.turn.tool_calls.clone(),
            ..Message::assistant("")
        }
    }
}
