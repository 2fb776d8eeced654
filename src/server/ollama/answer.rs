//! Writes the answer: in one piece, or line by line.

use std::time::Instant;

use axum::{
    body::Bytes,
    http::{HeaderValue, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
};
use serde::Serialize;

use super::{
    error::error_line,
    line::{Line, LineMessage, line},
    parts::{Gathered, Reader, done_reason},
    times::counts,
};
use crate::{
    api::{FinishReason, OutputDelta, SampledToken},
    server::{
        generate::{
            choices::{ChoiceDelta, Choices},
            handler::Answer,
            logprobs::{ChatLogprob, ChatLogprobsWriter},
            request_log::RequestLog,
            run::{EventWriter, Run, whole},
        },
        http::error::ApiError,
        resume::Mode,
        turn::TurnStyle,
    },
};

const LINES: HeaderValue = HeaderValue::from_static("application/x-ndjson");
const JSON: HeaderValue = HeaderValue::from_static("application/json; charset=utf-8");

/// The field that has the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// `message`
    Chat,
    /// `response`
    Generate,
}

/// The answer to one request.
pub(in crate::server) struct OllamaAnswer {
    pub(super) id: String,
    pub(super) model: String,
    pub(super) shape: Shape,
    /// `None`: all output is content.
    pub(super) style: Option<TurnStyle>,
    pub(super) logprobs: Option<ChatLogprobsWriter>,
    pub(super) began: Instant,
    pub(super) is_streamed: bool,
}

impl Answer for OllamaAnswer {
    fn mode(&self) -> Mode {
        if self.is_streamed { Mode::Stream } else { Mode::Whole }
    }

    async fn respond(self, mut choices: Choices, log: RequestLog) -> Result<Response, ApiError> {
        let is_streamed = self.is_streamed;
        let mut lines = Lines::new(self, &choices);
        if is_streamed {
            let mut response = Run::new(choices, lines, log).stream(Vec::new())?;
            response.headers_mut().insert(CONTENT_TYPE, LINES);
            return Ok(response);
        }
        let done = whole(&mut choices, log).await?.into_iter().next();
        let done = done.ok_or_else(|| ApiError::internal("the request has no output"))?;
        let logprobs = lines.logprobs(&done.tokens);
        lines.read(&OutputDelta {
            text: done.text,
            tokens: done.tokens,
            finish: Some(done.finish),
            ..OutputDelta::default()
        });
        Ok(piece(&Line { logprobs, ..lines.end(&choices) }))
    }
}

/// Returns the answer to a request that asked only for the model to be loaded.
pub(super) fn loaded(line: &Line) -> Response {
    piece(line)
}

fn piece(whole: &Line) -> Response {
    only(whole, false)
}

/// Returns the only line of an answer.
pub(super) fn only(value: &impl Serialize, is_streamed: bool) -> Response {
    let kind = if is_streamed { LINES } else { JSON };
    ([(CONTENT_TYPE, kind)], line(value)).into_response()
}

/// Writes the lines of one answer.
struct Lines {
    model: String,
    shape: Shape,
    reader: Reader,
    gathered: Gathered,
    logprobs: Option<ChatLogprobsWriter>,
    finish: Option<FinishReason>,
    began: Instant,
}

impl Lines {
    fn new(answer: OllamaAnswer, choices: &Choices) -> Self {
        let OllamaAnswer { id, model, shape, style, logprobs, began, .. } = answer;
        let turn = style.map(|style| Box::new(style.reader(&id, 0, choices.prompt_of(0))));
        let reader = turn.map_or(Reader::Plain, Reader::Turn);
        let gathered = Gathered::default();
        Self { model, shape, reader, gathered, logprobs, finish: None, began }
    }

    fn read(&mut self, delta: &OutputDelta) {
        for event in self.reader.push(delta) {
            self.gathered.push(event);
        }
        self.finish = self.finish.take().or(delta.finish.clone());
    }

    fn logprobs(&mut self, tokens: &[SampledToken]) -> Option<Vec<ChatLogprob>> {
        self.logprobs.as_mut().map(|writer| writer.write(tokens).content)
    }

    /// Returns a line with the output that was gathered.
    fn line(&mut self) -> Line {
        let Gathered { content, thinking, calls, .. } = self.gathered.take();
        let thinking = (!thinking.is_empty()).then_some(thinking);
        let line = Line::new(&self.model);
        match self.shape {
            Shape::Generate => Line { response: Some(content), thinking, ..line },
            Shape::Chat => {
                let message =
                    LineMessage { role: "assistant", content, thinking, tool_calls: calls };
                Line { message: Some(message), ..line }
            }
        }
    }

    /// Returns the last line, with the output that was gathered.
    fn end(&mut self, choices: &Choices) -> Line {
        let finish = self.finish.take().unwrap_or(FinishReason::Abort);
        Line {
            done: true,
            done_reason: Some(done_reason(&finish)),
            counts: counts(self.began, choices),
            ..self.line()
        }
    }
}

impl EventWriter for Lines {
    type Event = Bytes;

    fn write(&mut self, news: ChoiceDelta, _: &Choices) -> Vec<Bytes> {
        self.read(&news.delta);
        let logprobs = self.logprobs(&news.delta.tokens).filter(|tokens| !tokens.is_empty());
        if self.gathered.is_empty() && logprobs.is_none() {
            return Vec::new();
        }
        vec![line(&Line { logprobs, ..self.line() })]
    }

    fn complete(&mut self, choices: &Choices) -> Result<Vec<Bytes>, ApiError> {
        Ok(vec![line(&self.end(choices))])
    }

    fn fail(&mut self, error: ApiError, _: &Choices) -> Vec<Bytes> {
        tracing::error!(message = %error.message, "a stream failed");
        vec![error_line(&error)]
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;
    use serde_json::{Value, json};

    use super::*;

    fn delta(text: &str, finish: Option<FinishReason>) -> OutputDelta {
        let tokens = vec![SampledToken { token_id: 7, logprobs: None }];
        OutputDelta { text: text.to_owned(), tokens, finish, ..OutputDelta::default() }
    }

    fn answer(shape: Shape, is_streamed: bool) -> OllamaAnswer {
        OllamaAnswer {
            id: "ollama-1".to_owned(),
            model: "demo".to_owned(),
            shape,
            style: None,
            logprobs: None,
            began: Instant::now(),
            is_streamed,
        }
    }

    async fn lines(shape: Shape, is_streamed: bool) -> (String, Vec<Value>) {
        let deltas = vec![delta("a", None), delta("b", Some(FinishReason::Length))];
        let stream = futures_util::stream::iter(deltas).boxed();
        let choices = Choices::new(vec![([1, 2].into(), vec![stream])]);
        let log = RequestLog::new("1".to_owned(), "/api/chat", None);
        let response = answer(shape, is_streamed).respond(choices, log).await.unwrap();
        let kind = response.headers()[CONTENT_TYPE].to_str().unwrap().to_owned();
        let body = axum::body::to_bytes(response.into_body(), 10_000).await.unwrap();
        let text = String::from_utf8(body.to_vec()).unwrap();
        (kind, text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
    }

    #[tokio::test]
    async fn a_stream_is_lines_and_ends_with_counts() {
        let (kind, lines) = lines(Shape::Chat, true).await;
        assert_eq!(kind, "application/x-ndjson");
        let texts: Vec<_> = lines.iter().map(|line| &line["message"]["content"]).collect();
        assert_eq!(texts, ["a", "b", ""]);
        let end = &lines[2];
        assert_eq!((&end["done"], &end["done_reason"]), (&json!(true), &json!("length")));
        assert_eq!((&end["prompt_eval_count"], &end["eval_count"]), (&json!(2), &json!(2)));
        assert!(end["total_duration"].as_u64() > Some(0), "{end}");
        assert_eq!(lines[0]["done"], false);
        assert!(lines[0].get("done_reason").is_none() && lines[0].get("eval_count").is_none());
    }

    #[tokio::test]
    async fn a_piece_has_it_all_in_one() {
        let (kind, lines) = lines(Shape::Generate, false).await;
        assert!(kind.starts_with("application/json"), "{kind}");
        let [line] = lines.as_slice() else { panic!("{lines:?}") };
        assert_eq!((&line["response"], &line["done"]), (&json!("ab"), &json!(true)));
        assert!(line.get("message").is_none() && line["eval_duration"].is_u64());
    }
}
