//! Writes the answer: in one piece, event by event, or in the background.

use axum::{
    Json,
    response::{IntoResponse, Response as HttpResponse},
};
use futures_util::{StreamExt, future::ready, stream};

use super::{
    background,
    events::Frames,
    follow::follow,
    keeper::Keeper,
    output::OutputWriter,
    response::Response,
    writer::{ResponseRun, ResponseWriter},
};
use crate::server::{
    generate::{
        choices::Choices, handler::Answer, logprobs::ChatLogprobsWriter, request_log::RequestLog,
        run::Run,
    },
    http::{error::ApiError, sse},
    memory::RequestMemory,
    resume::Mode,
    turn::TurnStyle,
};

/// The answer to one request.
pub(in crate::server) struct ResponseAnswer {
    pub(super) style: TurnStyle,
    pub(super) output: OutputWriter,
    pub(super) logprobs: Option<ChatLogprobsWriter>,
    /// The response before any output.
    pub(super) response: Response,
    pub(super) keeper: Keeper,
    pub(super) is_streamed: bool,
}

impl Answer for ResponseAnswer {
    fn mode(&self) -> Mode {
        match (self.response.asked.background, self.is_streamed) {
            (true, _) => Mode::Background,
            (false, true) => Mode::Stream,
            (false, false) => Mode::Whole,
        }
    }

    async fn reserve(&mut self, _: &RequestMemory) -> Result<(), ApiError> {
        self.keeper.reserve(&self.response.asked, self.is_streamed).await
    }

    async fn respond(self, choices: Choices, log: RequestLog) -> Result<HttpResponse, ApiError> {
        let Self { style, output, logprobs, response, keeper, is_streamed } = self;
        let reader = style.reader(&response.id, 0, choices.prompt_of(0));
        let writer = ResponseWriter::new(reader, output, logprobs, response);
        let mut run = Run::new(choices, writer, log);
        if run.writer.response.asked.background {
            let (store, stored) =
                (keeper.store.clone(), keeper.keep(&run.writer.response, is_streamed));
            background::start(&store, run, stored.clone());
            if is_streamed {
                return Ok(follow(&stored, 0));
            }
            return Ok(Json(stored.response()).into_response());
        }
        let keeper = run.writer.response.asked.store.then_some(keeper);
        if is_streamed {
            return stream(run, keeper);
        }
        while run.next().await.is_some() {}
        let response = run.writer.outcome()?;
        keeper.map(|keeper| keeper.keep(&response, false));
        Ok(Json(response).into_response())
    }
}

/// Returns a stream of the events of `run`. It is dropped when the client leaves.
fn stream(mut run: ResponseRun, keeper: Option<Keeper>) -> Result<HttpResponse, ApiError> {
    let mut frames = Frames::default();
    if let Some(kept) = run.keep() {
        let opening = frames.write_all(&run.writer.begin());
        let opening = run.mark(opening);
        let state = (run, keeper, frames);
        let rest = stream::unfold(state, |(mut run, mut keeper, mut frames)| async move {
            let events = run.next().await?;
            // A stream that another process began goes on with its numbers.
            frames.go_on_at(run.number());
            let events = frames.write_all(&events);
            keep_if_over(&run, &mut keeper);
            Some((run.mark(events), (run, keeper, frames)))
        });
        return kept.serve(stream::once(ready(opening)).chain(rest));
    }
    let opening = frames.write_all(&run.writer.begin());
    let state = (run, keeper, frames);
    let rest = stream::unfold(state, |(mut run, mut keeper, mut frames)| async move {
        let events = frames.write_all(&run.next().await?);
        keep_if_over(&run, &mut keeper);
        Some((events, (run, keeper, frames)))
    });
    Ok(sse::batches(stream::once(ready(opening)).chain(rest)))
}

/// Stores a response that is over: a client that reads the end can continue from it.
fn keep_if_over(run: &ResponseRun, keeper: &mut Option<Keeper>) {
    if run.writer.response.status.is_over() {
        keeper.take().map(|keeper| keeper.keep(&run.writer.response, false));
    }
}
