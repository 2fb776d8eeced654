//! Writes one response: turns outputs of the engine into events, and at the end into the response.

use super::{
    events::Event,
    items::ItemStatus,
    output::OutputWriter,
    response::{Response, ResponseError, ResponseUsage, Status},
};
use crate::api::{FinishReason, OutputDelta};
use crate::server::{
    generate::{
        choices::{ChoiceDelta, Choices},
        logprobs::ChatLogprobsWriter,
        run::{EventWriter, Run},
    },
    http::error::ApiError,
    turn::TurnReader,
};

/// An unfinished response.
pub(super) type ResponseRun = Run<ResponseWriter>;

/// Writes the events of one response.
pub(super) struct ResponseWriter {
    reader: TurnReader,
    output: OutputWriter,
    logprobs: Option<ChatLogprobsWriter>,
    pub(super) response: Response,
    finish: Option<FinishReason>,
    error: Option<ApiError>,
}

impl ResponseWriter {
    pub(super) fn new(
        reader: TurnReader,
        output: OutputWriter,
        logprobs: Option<ChatLogprobsWriter>,
        response: Response,
    ) -> Self {
        Self { reader, output, logprobs, response, finish: None, error: None }
    }

    /// Returns the events before any output.
    pub(super) fn begin(&mut self) -> Vec<Event> {
        let second = match self.response.status {
            Status::Queued => Event::queued(&self.response),
            _ => Event::in_progress(&self.response),
        };
        vec![Event::created(&self.response), second]
    }

    /// Returns the response, once it has ended.
    ///
    /// # Errors
    /// The error that ended it.
    pub(super) fn outcome(self) -> Result<Response, ApiError> {
        self.error.map_or(Ok(self.response), Err)
    }

    fn push(&mut self, delta: &OutputDelta) -> Vec<Event> {
        let mut events = Vec::new();
        let has_begun = !delta.tokens.is_empty() || delta.finish.is_some();
        if has_begun && self.response.status == Status::Queued {
            self.response.status = Status::InProgress;
            events.push(Event::in_progress(&self.response));
        }
        if let Some(logprobs) = &mut self.logprobs {
            self.output.push_logprobs(logprobs.write(&delta.tokens).content);
        }
        for event in self.reader.push(delta) {
            self.output.write(event, &mut events);
        }
        self.finish = self.finish.take().or_else(|| delta.finish.clone());
        events
    }

    fn end(&mut self, status: Status, choices: &Choices) -> Vec<Event> {
        let last = match status {
            Status::Completed => ItemStatus::Completed,
            _ => ItemStatus::Incomplete,
        };
        let mut events = Vec::new();
        let output = self.output.finish(last, &mut events);
        self.response.end(status, output, Some(self.usage(choices)));
        events.push(Event::over(&self.response));
        events
    }

    fn usage(&self, choices: &Choices) -> ResponseUsage {
        ResponseUsage::new(
            choices.num_prompt_tokens(),
            choices.num_cached_tokens(),
            choices.num_output_tokens(),
            self.reader.num_reasoning_tokens().unwrap_or(0),
        )
    }
}

impl EventWriter for ResponseWriter {
    type Event = Event;

    fn write(&mut self, news: ChoiceDelta, _: &Choices) -> Vec<Event> {
        self.push(&news.delta)
    }

    fn complete(&mut self, choices: &Choices) -> Result<Vec<Event>, ApiError> {
        let status = match self.finish {
            Some(FinishReason::Length) => Status::Incomplete,
            Some(FinishReason::Abort) | None => Status::Cancelled,
            Some(_) => Status::Completed,
        };
        Ok(self.end(status, choices))
    }

    fn fail(&mut self, error: ApiError, choices: &Choices) -> Vec<Event> {
        tracing::error!(message = %error.message, "a response failed");
        self.response.error = Some(ResponseError::from(&error));
        self.error = Some(error);
        self.end(Status::Failed, choices)
    }
}

impl ResponseRun {
    /// Ends the response with the output so far. Returns its last events.
    pub(super) fn cancel(&mut self) -> Vec<Event> {
        self.end("cancelled");
        self.writer.end(Status::Cancelled, &self.choices)
    }
}
