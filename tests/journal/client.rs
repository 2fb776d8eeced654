//! A client that loses its connections and continues its streams, as a browser's does.

use std::collections::BTreeMap;

use reqwest::{Client, Response, StatusCode};
use serde_json::{Value, json};

/// A request that is streamed.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) path: &'static str,
    pub(crate) body: Value,
}

/// A stream as far as a client has it.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    /// Whole events.
    pub(crate) events: Vec<Event>,
    /// The beginning of the next event, which a client forgets with its connection.
    pub(crate) rest: Vec<u8>,
}

/// One event.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Event {
    pub(crate) id: Option<String>,
    pub(crate) data: String,
}

impl Reader {
    /// Takes bytes. Returns whether the stream is complete.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> bool {
        self.rest.extend_from_slice(bytes);
        while let Some(end) = self.rest.windows(2).position(|two| two == b"\n\n") {
            let event: Vec<u8> = self.rest.drain(..end + 2).collect();
            let mut parsed = Event::default();
            for line in String::from_utf8(event).unwrap().lines() {
                match line.split_once(": ") {
                    Some(("id", id)) => parsed.id = Some(id.to_owned()),
                    Some(("data", data)) => parsed.data = data.to_owned(),
                    _ => {}
                }
            }
            if !parsed.data.is_empty() {
                self.events.push(parsed);
            }
        }
        self.is_complete()
    }

    pub(crate) fn is_complete(&self) -> bool {
        let Some(Event { data, .. }) = self.events.last() else { return false };
        data == "[DONE]" || data.contains("message_stop") || data.contains("\"response.completed\"")
    }

    /// Forgets the event that the connection cut off.
    pub(crate) fn lose_connection(&mut self) {
        self.rest.clear();
    }

    pub(crate) fn last_id(&self) -> Option<&str> {
        self.events.iter().rev().find_map(|event| event.id.as_deref())
    }
}

/// Begins the stream, or continues it by the same request.
pub(crate) async fn post(client: &Client, url: &str, ask: &Ask, last: Option<&str>) -> Response {
    let mut request = client.post(format!("{url}{}", ask.path)).json(&ask.body);
    request = request.header("X-Detach-Grace", "30");
    if let Some(last) = last {
        request = request.header("Last-Event-ID", last);
    }
    successful(request.send().await.unwrap(), ask).await
}

/// Continues the stream by its id.
pub(crate) async fn get(client: &Client, url: &str, ask: &Ask, last: &str) -> Response {
    let (stream, _) = last.split_once(':').unwrap();
    let request = client.get(format!("{url}/v1/streams/{stream}?after={last}"));
    successful(request.send().await.unwrap(), ask).await
}

async fn successful(response: Response, ask: &Ask) -> Response {
    let status = response.status();
    if status == StatusCode::OK {
        return response;
    }
    panic!("{status} for {}: {}", ask.body, response.text().await.unwrap());
}

/// Reads until the stream is complete, or `enough` accepts what is there. Returns the connection.
pub(crate) async fn read(
    mut response: Response,
    reader: &mut Reader,
    mut enough: impl FnMut(&Reader) -> bool,
) -> Response {
    while let Ok(Some(bytes)) = response.chunk().await {
        if reader.push(&bytes) || enough(reader) {
            break;
        }
    }
    response
}

/// Returns all that a stream says, however it was cut into events: the texts of each choice, its
/// tokens with their log-probabilities, its end and the usage.
pub(crate) fn said(events: &[Event]) -> Value {
    let mut choices: BTreeMap<u64, BTreeMap<&str, Value>> = BTreeMap::new();
    let mut usage = Value::Null;
    for event in events.iter().filter(|event| event.data != "[DONE]") {
        let data: Value = serde_json::from_str(&event.data).unwrap();
        assert_eq!(data["error"], Value::Null, "{data}");
        let mut add = |choice: u64, name: &'static str, value: &Value| match value {
            Value::String(text) => {
                let said = choices.entry(choice).or_default().entry(name).or_insert("".into());
                *said = format!("{}{text}", said.as_str().unwrap()).into();
            }
            Value::Array(items) => {
                let said = choices.entry(choice).or_default().entry(name).or_insert(json!([]));
                said.as_array_mut().unwrap().extend(items.iter().cloned());
            }
            _ => {}
        };
        for choice in data["choices"].as_array().into_iter().flatten() {
            let index = choice["index"].as_u64().unwrap();
            add(index, "text", &choice["text"]);
            add(index, "text", &choice["delta"]["content"]);
            add(index, "finish", &choice["finish_reason"]);
            add(index, "token_ids", &choice["token_ids"]);
            add(index, "logprobs", &choice["logprobs"]["content"]);
            add(index, "logprobs", &choice["logprobs"]["token_logprobs"]);
        }
        add(0, "text", &data["delta"]["text"]);
        add(0, "finish", &data["delta"]["stop_reason"]);
        if data["type"] == "response.output_text.delta" {
            add(0, "text", &data["delta"]);
        }
        add(0, "whole", &data["response"]["output"]);
        usage = match &data["usage"] {
            Value::Null => usage,
            found => found.clone(),
        };
    }
    let mut said = json!({ "choices": choices, "usage": usage });
    anonymize(&mut said);
    said
}

/// Removes ids and numbers that differ between runs.
fn anonymize(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| !matches!(name.as_str(), "id" | "cached_tokens"));
            fields.values_mut().for_each(anonymize);
        }
        Value::Array(items) => items.iter_mut().for_each(anonymize),
        _ => {}
    }
}
