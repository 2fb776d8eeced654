//! The output of a choice as a stream of the crate `futures`.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures_core::Stream;

use super::{ChoiceStream, OutputDelta};

/// The same items as [`ChoiceStream::next`].
impl Stream for ChoiceStream {
    type Item = OutputDelta;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<OutputDelta>> {
        while !self.done {
            if let Some(delta) = self.sink.take() {
                self.done = delta.finish.is_some();
                self.waiting = None;
                return Poll::Ready(Some(delta));
            }
            let mut waiting = match self.waiting.take() {
                Some(waiting) => waiting,
                None => Box::pin(Arc::clone(&self.sink.news).notified_owned()),
            };
            if waiting.as_mut().poll(context).is_pending() {
                self.waiting = Some(waiting);
                return Poll::Pending;
            }
        }
        Poll::Ready(None)
    }
}
