//! One response being made: what the engine brings becomes events, and the response at their end.

use super::{
    events::Event,
    items::ItemStatus,
    output::OutputWriter,
    response::{Response, ResponseError, ResponseUsage, Status},
};
use crate::api::{FinishReason, OutputDelta};
use crate::server::{
    generate::{choices::Choices, logprobs::ChatLogprobsWriter, request_log::RequestLog},
    http::error::ApiError,
    turn::TurnReader,
};

/// Dropping it aborts what has not ended.
pub(super) struct Run {
    pub(super) choices: Choices,
    pub(super) reader: TurnReader,
    pub(super) writer: OutputWriter,
    pub(super) logprobs: Option<ChatLogprobsWriter>,
    pub(super) response: Response,
    pub(super) log: RequestLog,
    pub(super) finish: Option<FinishReason>,
    pub(super) error: Option<ApiError>,
}

impl Run {
    /// What is told before the engine says anything.
    pub(super) fn begin(&mut self) -> Vec<Event> {
        let second = match self.response.status {
            Status::Queued => Event::queued(&self.response),
            _ => Event::in_progress(&self.response),
        };
        vec![Event::created(&self.response), second]
    }

    /// What happens next; none once the response is over.
    pub(super) async fn next(&mut self) -> Option<Vec<Event>> {
        if self.response.status.is_over() {
            return None;
        }
        let mut events = Vec::new();
        match self.choices.next().await {
            Some(Ok(news)) => self.push(&news.delta, &mut events),
            Some(Err(error)) => self.fail(error, &mut events),
            None => self.complete(&mut events),
        }
        self.log.count(&self.choices);
        Some(events)
    }

    /// Ends it as it is.
    pub(super) fn cancel(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        self.end(Status::Cancelled, &mut events);
        self.log.end("cancelled");
        events
    }

    /// Ends it for a reason that is not the engine's.
    pub(super) fn refuse(&mut self, error: ApiError) -> Vec<Event> {
        let mut events = Vec::new();
        self.fail(error, &mut events);
        events
    }

    /// The response, once it is over.
    ///
    /// # Errors
    /// What it failed with.
    pub(super) fn outcome(self) -> Result<Response, ApiError> {
        self.error.map_or(Ok(self.response), Err)
    }

    fn push(&mut self, delta: &OutputDelta, events: &mut Vec<Event>) {
        let has_begun = !delta.tokens.is_empty() || delta.finish.is_some();
        if has_begun && self.response.status == Status::Queued {
            self.response.status = Status::InProgress;
            events.push(Event::in_progress(&self.response));
        }
        if let Some(logprobs) = &mut self.logprobs {
            self.writer.push_logprobs(logprobs.write(&delta.tokens).content);
        }
        for event in self.reader.push(delta) {
            self.writer.write(event, events);
        }
        self.finish = self.finish.take().or_else(|| delta.finish.clone());
    }

    fn complete(&mut self, events: &mut Vec<Event>) {
        let status = match self.finish {
            Some(FinishReason::Length) => Status::Incomplete,
            Some(FinishReason::Abort) | None => Status::Cancelled,
            Some(_) => Status::Completed,
        };
        self.end(status, events);
        self.log.end("complete");
    }

    fn fail(&mut self, error: ApiError, events: &mut Vec<Event>) {
        tracing::error!(message = %error.message, "a response failed");
        self.response.error = Some(ResponseError::from(&error));
        self.error = Some(error);
        self.end(Status::Failed, events);
        self.log.end("failed");
    }

    fn end(&mut self, status: Status, events: &mut Vec<Event>) {
        let last = match status {
            Status::Completed => ItemStatus::Completed,
            _ => ItemStatus::Incomplete,
        };
        let output = self.writer.finish(last, events);
        self.response.end(status, output, Some(self.usage()));
        events.push(Event::over(&self.response));
    }

    fn usage(&self) -> ResponseUsage {
        ResponseUsage::new(
            self.choices.num_prompt_tokens(),
            self.choices.num_cached_tokens(),
            self.choices.num_output_tokens(),
            self.reader.num_reasoning_tokens().unwrap_or(0),
        )
    }
}
