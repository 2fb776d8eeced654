//! Streams that are read up to some point, and later to their ends.

use std::ops::Range;

use futures_util::future::join_all;
use reqwest::{Client, Response, StatusCode};
use serde_json::{Value, json};

/// Returns the body of the request with this number.
pub(crate) fn body(index: usize) -> Value {
    json!({
        "model": "demo", "prompt": format!("Tell me about number {index}."), "seed": index,
        "temperature": ([0.0, 0.8][index % 2]), "max_tokens": 80, "ignore_eos": true,
        "stream": true,
    })
}

/// A stream whose beginning was read.
pub(crate) struct Begun {
    response: Response,
    bytes: Vec<u8>,
}

impl Begun {
    /// Sends the request with this number, and reads until the first text.
    pub(crate) async fn new(client: &Client, url: &str, index: usize) -> Self {
        Self::with(client, url, &body(index)).await
    }

    /// Sends a request, and reads until the first text.
    pub(crate) async fn with(client: &Client, url: &str, body: &Value) -> Self {
        let request = client.post(format!("{url}/v1/completions")).json(body);
        let response = request.header("X-Detach-Grace", "60").send().await.expect("an answer");
        assert_eq!(response.status(), StatusCode::OK);
        let mut begun = Self { response, bytes: Vec::new() };
        while !begun.text().contains("\"text\"") {
            assert!(begun.read().await, "{}", begun.text());
        }
        begun
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    async fn read(&mut self) -> bool {
        let piece = self.response.chunk().await.expect("a whole stream");
        piece.map(|piece| self.bytes.extend_from_slice(&piece)).is_some()
    }

    /// Reads the rest. Returns all events.
    pub(crate) async fn events(mut self) -> String {
        while self.read().await {}
        self.text()
    }

    /// Cuts the connection. Returns the events so far, without a part of one.
    pub(crate) fn cut(self) -> String {
        let text = self.text();
        let end = text.rfind("\n\n").map_or(0, |end| end + 2);
        text[..end].to_owned()
    }

    /// Reads the rest. Returns the whole text of the only choice.
    pub(crate) async fn finish(self) -> String {
        completion(&self.events().await)
    }
}

/// Returns the text of complete events.
pub(crate) fn completion(events: &str) -> String {
    let data: Vec<_> = events.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    let (last, events) = data.split_last().expect("events");
    assert_eq!(*last, "[DONE]", "{data:?}");
    let mut text = String::new();
    for event in events {
        let event: Value = serde_json::from_str(event).unwrap();
        assert!(event.get("error").is_none(), "{event}");
        text += event["choices"][0]["text"].as_str().unwrap_or_default();
    }
    text
}

/// Begins the requests with these numbers.
pub(crate) async fn begin(client: &Client, url: &str, numbers: Range<usize>) -> Vec<Begun> {
    join_all(numbers.map(|index| Begun::new(client, url, index))).await
}

/// Returns the texts of all of them.
pub(crate) async fn finish(begun: Vec<Begun>) -> Vec<String> {
    let mut texts = Vec::new();
    for stream in begun {
        texts.push(stream.finish().await);
    }
    texts
}
