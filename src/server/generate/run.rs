//! Turns the outputs of the engine into a protocol's events, and logs how the answer ended.

use axum::{body::Bytes, response::Response};
use futures_util::{StreamExt, future::ready, stream};

use super::{
    choices::{ChoiceDelta, Choices, FinishedChoice},
    request_log::RequestLog,
};
use crate::server::{
    http::{error::ApiError, sse},
    resume::{Event, KeptStream, Marks},
};

/// Writes a protocol's events.
pub(in crate::server) trait EventWriter: Send + 'static {
    /// An event of the protocol.
    type Event: Send + 'static;

    /// Returns the events for new output of one choice.
    fn write(&mut self, news: ChoiceDelta, choices: &Choices) -> Vec<Self::Event>;

    /// Returns the last events of an answer whose choices have all ended.
    ///
    /// # Errors
    /// When a choice failed. [`Self::fail`] writes the last events then.
    fn complete(&mut self, choices: &Choices) -> Result<Vec<Self::Event>, ApiError>;

    /// Returns the last events of an answer that failed.
    fn fail(&mut self, error: ApiError, choices: &Choices) -> Vec<Self::Event>;
}

/// An unfinished answer. A drop aborts the choices that have not ended.
pub(in crate::server) struct Run<W> {
    pub(in crate::server) choices: Choices,
    pub(in crate::server) writer: W,
    log: RequestLog,
    is_over: bool,
    /// Marks the events of a stream that is kept.
    marks: Option<Marks>,
}

impl<W: EventWriter> Run<W> {
    pub(in crate::server) fn new(choices: Choices, writer: W, log: RequestLog) -> Self {
        Self { choices, writer, log, is_over: false, marks: None }
    }

    /// Returns the next events, which may be none yet. Returns `None` once the answer is over.
    pub(in crate::server) async fn next(&mut self) -> Option<Vec<W::Event>> {
        if self.is_over {
            return None;
        }
        let events = match self.choices.next().await {
            Some(Ok(news)) => {
                if let Some(marks) = &mut self.marks {
                    let ChoiceDelta { index, delta } = &news;
                    marks.output(*index, delta.tokens.len(), delta.finish.is_some());
                }
                self.writer.write(news, &self.choices)
            }
            Some(Err(error)) => self.fail(error),
            None => match self.writer.complete(&self.choices) {
                Ok(last) => {
                    if let Some(marks) = &mut self.marks {
                        marks.end();
                    }
                    self.end("complete");
                    last
                }
                Err(error) => self.fail(error),
            },
        };
        self.log.count(&self.choices);
        Some(events)
    }

    /// Ends the answer with `error`. Returns its last events.
    pub(in crate::server) fn fail(&mut self, error: ApiError) -> Vec<W::Event> {
        self.end("failed");
        if let Some(marks) = &mut self.marks {
            marks.fail();
        }
        self.writer.fail(error, &self.choices)
    }

    /// Ends the answer, with `outcome` in the log.
    pub(in crate::server) fn end(&mut self, outcome: &'static str) {
        self.is_over = true;
        self.log.end(outcome);
    }
}

impl<W: EventWriter> Run<W> {
    /// Returns the place where the stream is kept, if it is. Its events are marked from now on.
    pub(in crate::server) fn keep(&mut self) -> Option<KeptStream> {
        let kept = self.choices.take_kept()?;
        let marks = self.marks.insert(kept.marks(self.choices.len()));
        marks.begin();
        Some(kept)
    }

    /// Returns the number of the first event of the current batch.
    pub(in crate::server) fn number(&self) -> u64 {
        self.marks.as_ref().map_or(0, Marks::number)
    }

    /// Returns the events of the current batch with their ids, without those that the client has.
    pub(in crate::server) fn mark(&mut self, events: Vec<Bytes>) -> Vec<Event> {
        self.marks.as_mut().map_or_else(Vec::new, |marks| marks.mark(events))
    }
}

impl<W: EventWriter<Event = Bytes>> Run<W> {
    /// Returns a response that sends `opening`, then each event as it arrives.
    ///
    /// # Errors
    /// When the stream cannot be kept.
    pub(in crate::server) fn stream(mut self, opening: Vec<Bytes>) -> Result<Response, ApiError> {
        if let Some(kept) = self.keep() {
            let opening = self.mark(opening);
            let rest = stream::unfold(self, |mut run| async move {
                let events = run.next().await?;
                Some((run.mark(events), run))
            });
            return kept.serve(stream::once(ready(opening)).chain(rest));
        }
        let rest = stream::unfold(self, |mut run| async move {
            let events = run.next().await?;
            Some((events, run))
        });
        Ok(sse::batches(stream::once(ready(opening)).chain(rest)))
    }
}

/// Waits for the end of all choices, and logs it.
pub(in crate::server) async fn whole(
    choices: &mut Choices,
    mut log: RequestLog,
) -> Result<Vec<FinishedChoice>, ApiError> {
    let finished = choices.finish().await;
    log.count(choices);
    log.end(if finished.is_ok() { "complete" } else { "failed" });
    finished
}
