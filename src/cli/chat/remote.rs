//! A model behind a running server of OpenAI's API.

use std::time::Instant;

use axum::body::Body;
use futures_util::StreamExt as _;
use hyper::{Method, StatusCode};
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use super::{
    answer::Answer,
    display::{Display, QUIET},
};
use crate::{
    api::FinishReason,
    cli::{
        CliError,
        http::{ERROR_CHARS_MAX, Http, error_of, headers, whole_text},
        interrupt::Interrupts,
        sse::EventParser,
    },
};

/// One of a server's models.
pub(super) struct Remote {
    http: Http,
    model: String,
    max_model_len: Option<usize>,
}

impl Remote {
    /// Returns the server's model of this name, or its first one.
    ///
    /// # Errors
    /// If the server cannot be reached, or has no model of that name.
    pub(super) async fn open(url: &str, model: Option<String>) -> Result<Self, CliError> {
        let url = url.trim_end_matches('/').trim_end_matches("/v1");
        let key = std::env::var("OPENAI_API_KEY").ok();
        let http = Http::new(url, headers(&[], key)?)?;
        let failed = |error| CliError::Unreachable(format!("--url {url}: {error}"));
        let response = http.send(Method::GET, "/v1/models", String::new()).await.map_err(failed)?;
        let status = response.status();
        let text = whole_text(response).await;
        if status != StatusCode::OK {
            let hint = match status {
                StatusCode::UNAUTHORIZED => "; set OPENAI_API_KEY to a key of this server",
                _ => "",
            };
            return Err(failed(error_of(status, &text) + hint));
        }
        let list: Value = serde_json::from_str(&text).unwrap_or_default();
        let models = list["data"].as_array().map_or(&[][..], Vec::as_slice);
        let names = || models.iter().filter_map(|model| model["id"].as_str());
        let found = match &model {
            Some(name) => models.iter().find(|model| model["id"] == name.as_str()),
            None => models.first(),
        };
        let Some(found) = found else {
            let names = names().collect::<Vec<_>>().join(", ");
            return Err(failed(match model {
                Some(model) => format!("there is no model {model}; there is {names}"),
                None => "/v1/models names no model".to_owned(),
            }));
        };
        let max_model_len = found["max_model_len"].as_u64().map(|length| length as usize);
        let model = found["id"].as_str().unwrap_or_default().to_owned();
        Ok(Self { http, model, max_model_len })
    }

    pub(super) fn model(&self) -> &str {
        &self.model
    }

    pub(super) fn max_model_len(&self) -> Option<usize> {
        self.max_model_len
    }

    /// Sends the conversation, and shows the answer as it arrives. Ctrl-C stops it.
    ///
    /// # Errors
    /// If the server refuses the request, or the answer fails.
    pub(super) async fn ask(
        &self,
        messages: Vec<Value>,
        fields: Map<String, Value>,
        template_kwargs: Map<String, Value>,
        display: &mut Display,
    ) -> Result<Answer, CliError> {
        let mut body = json!({
            "model": self.model,
            "messages": messages,
            "stream": true,
            "stream_options": {"include_usage": true},
        });
        if let Some(body) = body.as_object_mut() {
            body.extend(fields);
            if !template_kwargs.is_empty() {
                body.insert("chat_template_kwargs".to_owned(), template_kwargs.into());
            }
        }
        let (mut interrupts, asked) = (Interrupts::new()?, Instant::now());
        let mut stream = Stream { answer: Answer::default(), asked, is_done: false };
        let reading = self.read(body.to_string(), &mut stream, display);
        tokio::select! {
            outcome = reading => outcome?,
            // The connection is dropped, and the server ends the request.
            () = interrupts.next() => {}
        }
        Ok(stream.answer)
    }

    async fn read(
        &self,
        body: String,
        stream: &mut Stream,
        display: &mut Display,
    ) -> Result<(), CliError> {
        let response = self.http.send(Method::POST, "/v1/chat/completions", body).await;
        let response = response.map_err(CliError::Ended)?;
        if response.status() != StatusCode::OK {
            let status = response.status();
            return Err(CliError::Ended(error_of(status, &whole_text(response).await)));
        }
        let mut parser = EventParser::default();
        let mut pieces = Body::new(response.into_body()).into_data_stream();
        loop {
            let Ok(piece) = timeout(QUIET, pieces.next()).await else {
                display.wait();
                continue;
            };
            let Some(piece) = piece else { return stream.end() };
            let piece = piece.map_err(|error| CliError::Ended(error.to_string()))?;
            let events = parser.push(&piece).map_err(|error| CliError::Ended(error.to_string()))?;
            display.came();
            for event in &events {
                match event == b"[DONE]" {
                    true => stream.is_done = true,
                    false => stream.take(event, display)?,
                }
            }
        }
    }
}

/// An answer that is being read.
struct Stream {
    answer: Answer,
    asked: Instant,
    /// Whether the server said that this is all.
    is_done: bool,
}

impl Stream {
    /// Ends the answer where the connection ends.
    fn end(&mut self) -> Result<(), CliError> {
        if self.answer.finish.is_none() {
            if !self.is_done {
                let message = "the connection ended before the answer did";
                return Err(CliError::Ended(message.to_owned()));
            }
            // Some servers tell no reason.
            self.answer.finish = Some(FinishReason::Stop(None));
        }
        Ok(())
    }

    fn take(&mut self, event: &[u8], display: &mut Display) -> Result<(), CliError> {
        let event: Value =
            serde_json::from_slice(event).map_err(|error| CliError::Ended(error.to_string()))?;
        if let Some(error) = event.get("error").filter(|error| !error.is_null()) {
            let message =
                error["message"].as_str().map_or_else(|| error.to_string(), str::to_owned);
            return Err(CliError::Ended(message.chars().take(ERROR_CHARS_MAX).collect()));
        }
        let (answer, choice) = (&mut self.answer, &event["choices"][0]);
        let delta = &choice["delta"];
        // Servers have two names for thoughts.
        let thought = delta["reasoning"].as_str().or(delta["reasoning_content"].as_str());
        let content = delta["content"].as_str().filter(|text| !text.is_empty());
        if thought.or(content).is_some() {
            answer.cost.total = self.asked.elapsed();
            if answer.reasoning.is_empty() && answer.content.is_empty() {
                answer.cost.first_token = answer.cost.total;
            }
        }
        if let Some(text) = thought.filter(|text| !text.is_empty()) {
            answer.reasoning.push_str(text);
            display.thought(text)?;
        }
        if let Some(text) = content {
            answer.content.push_str(text);
            display.content(text)?;
        }
        match choice["finish_reason"].as_str() {
            None => {}
            Some("length") => answer.finish = Some(FinishReason::Length),
            Some("abort") => answer.finish = Some(FinishReason::Abort),
            Some(_) => answer.finish = Some(FinishReason::Stop(None)),
        }
        let usage = |name: &str| event["usage"][name].as_u64().map(|count| count as usize);
        let cost = &mut answer.cost;
        cost.prompt_tokens = usage("prompt_tokens").unwrap_or(cost.prompt_tokens);
        cost.output_tokens = usage("completion_tokens").unwrap_or(cost.output_tokens);
        let cached = event["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64();
        cost.cached_tokens = cached.map_or(cost.cached_tokens, |count| count as usize);
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
        task::JoinHandle,
    };

    use super::*;

    /// A piece of an answer.
    pub(in crate::cli::chat) const PIECE: &str =
        "data: {\"choices\": [{\"delta\": {\"content\": \"Fo\"}}]}\n\n";

    /// Returns a model whose server gives these answers, each on a connection that ends with it.
    pub(in crate::cli::chat) async fn served(answers: Vec<String>) -> (Remote, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let models = r#"{"data": [{"id": "m"}]}"#.to_owned();
        let server = tokio::spawn(async move {
            for body in std::iter::once(models).chain(answers) {
                let (mut connection, _) = listener.accept().await.unwrap();
                let mut bytes = [0; 8192];
                assert!(connection.read(&mut bytes).await.unwrap() > 0);
                let answer = format!("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{body}");
                connection.write_all(answer.as_bytes()).await.unwrap();
                connection.shutdown().await.unwrap();
                // The client closes it after the end.
                while connection.read(&mut bytes).await.is_ok_and(|count| count > 0) {}
            }
        });
        (Remote::open(&url, None).await.unwrap(), server)
    }

    #[tokio::test]
    async fn an_answer_that_breaks_off_is_an_error() {
        let whole = format!("{PIECE}data: [DONE]\n\n");
        let (remote, server) = served(vec![PIECE.to_owned(), whole]).await;
        let mut display = Display::silent();
        let broken = remote.ask(Vec::new(), Map::new(), Map::new(), &mut display).await;
        let error = broken.unwrap_err();
        assert!(error.is_about_one_entry() && error.to_string().contains("ended before"));
        let whole = remote.ask(Vec::new(), Map::new(), Map::new(), &mut display).await.unwrap();
        assert_eq!((whole.content.as_str(), whole.finish), ("Fo", Some(FinishReason::Stop(None))));
        drop(remote);
        server.await.unwrap();
    }

    #[test]
    fn an_answer_is_made_of_its_events() {
        let (answer, asked) = (Answer::default(), Instant::now());
        let mut stream = Stream { answer, asked, is_done: false };
        let mut display = Display::silent();
        for event in [
            json!({"choices": [{"delta": {"role": "assistant", "content": ""}}]}),
            json!({"choices": [{"delta": {"reasoning": "2 + 2"}}]}),
            json!({"choices": [{"delta": {"content": "Four"}}]}),
            json!({"choices": [{"delta": {"content": "."}, "finish_reason": "stop"}]}),
            json!({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 4}}),
        ] {
            stream.take(event.to_string().as_bytes(), &mut display).unwrap();
        }
        let answer = &stream.answer;
        assert_eq!((answer.content.as_str(), answer.reasoning.as_str()), ("Four.", "2 + 2"));
        assert_eq!((answer.cost.prompt_tokens, answer.cost.output_tokens), (7, 4));
        assert_eq!(answer.finish, Some(FinishReason::Stop(None)));
        let failed = json!({"error": {"message": "no more"}}).to_string();
        let error = stream.take(failed.as_bytes(), &mut display).unwrap_err();
        assert!(error.is_about_one_entry() && error.to_string().contains("no more"), "{error}");
    }
}
