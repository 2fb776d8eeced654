//! Clients that try to take all memory, one kind a function.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::{net::TcpStream, task::JoinSet};

use crate::{
    client::{Sent, Shared, begin, feed, json_body, post},
    server::Server,
};

/// A client gives up if the server does not read for this long.
const FEED_PATIENCE: Duration = Duration::from_millis(500);

/// Opens `count` requests that announce `announced` bytes and send a kilobyte.
pub(crate) async fn announced(server: &Server, count: usize, announced: usize) -> Vec<TcpStream> {
    let mut open = Vec::new();
    for _ in 0..count {
        let mut stream = begin(server.address(), "/v1/completions", announced).await.unwrap();
        assert_eq!(feed(&mut stream, 1 << 10, FEED_PATIENCE).await, 1 << 10);
        open.push(stream);
    }
    open
}

/// Opens `count` bodies of `bytes` that do not end. Sends as much of each as the server reads.
pub(crate) async fn unfinished(server: &Server, count: usize, bytes: usize) -> Vec<TcpStream> {
    let mut tasks = JoinSet::new();
    for _ in 0..count {
        let address = server.address().to_owned();
        tasks.spawn(async move {
            let mut stream = begin(&address, "/v1/completions", bytes + 1).await?;
            feed(&mut stream, bytes, FEED_PATIENCE).await;
            Some(stream)
        });
    }
    tasks.join_all().await.into_iter().flatten().collect()
}

/// Stores an item of `bytes` and sends a response that refers to it `count` times. Returns the
/// answer.
pub(crate) async fn references(server: &Server, bytes: usize, count: usize) -> Sent {
    let item = stored_item(server, bytes).await.unwrap();
    refer(server.address(), &item, count).await.unwrap()
}

/// Stores an item of `bytes` at the server. Returns its id.
pub(crate) async fn stored_item(server: &Server, bytes: usize) -> Option<String> {
    let text = "word ".repeat(bytes.div_ceil(5))[..bytes].to_owned();
    let body = json!({"input": text, "truncation": "auto", "max_output_tokens": 1});
    let stored = post(server.address(), "/v1/responses", &json_body(&body)).await?;
    let response: Value = serde_json::from_str(&stored.text).ok()?;
    // The id of the first item in a response's input ends in 0 and has the response's name.
    Some(format!("msg_{}_0", response["id"].as_str()?.strip_prefix("resp_")?))
}

pub(crate) async fn refer(address: &str, item: &str, count: usize) -> Option<Sent> {
    let reference = json!({"type": "item_reference", "id": item});
    let body = json_body(&json!({"input": vec![reference; count], "max_output_tokens": 1}));
    post(address, "/v1/responses", &body).await
}

/// Returns the body of a response in the background: it holds `bytes` and only a few tokens.
pub(crate) fn background(bytes: usize) -> Shared {
    json_body(&json!({
        "input": "Hi", "background": true, "user": "x".repeat(bytes), "max_output_tokens": 2000,
        "ignore_eos": true,
    }))
}

/// Sends `count` responses of `bytes` in the background. Returns how many are accepted and how many
/// are rejected.
pub(crate) async fn waiting_responses(
    server: &Server,
    count: usize,
    bytes: usize,
) -> (usize, usize) {
    let body = background(bytes);
    // While the engine is paused, accepted responses wait.
    let none = Shared::default();
    let paused = post(server.address(), "/pause?mode=keep", &none).await.unwrap();
    assert_eq!(paused.status, 200, "{}", paused.text);
    let mut tasks = JoinSet::new();
    for _ in 0..count {
        let (address, body) = (server.address().to_owned(), body.clone());
        tasks.spawn(async move { post(&address, "/v1/responses", &body).await.unwrap() });
    }
    let (mut kept, mut refused) = (0, 0);
    for sent in tasks.join_all().await {
        match sent.status {
            200 => kept += 1,
            status => {
                assert_eq!(status, 503, "{}", sent.text);
                refused += 1;
            }
        }
    }
    post(server.address(), "/resume", &none).await.unwrap();
    (kept, refused)
}

/// Sends `count` bodies of `bytes` with as many JSON values as fit. Returns the answers.
pub(crate) async fn many_values(server: &Server, count: usize, bytes: usize) -> Vec<Sent> {
    let objects = r#"{"":0},"#.repeat(bytes / 7);
    let body = Arc::new(format!(r#"{{"messages": [{objects}0]}}"#).into_bytes());
    let mut tasks = JoinSet::new();
    for _ in 0..count {
        let (address, body) = (server.address().to_owned(), Arc::clone(&body));
        tasks.spawn(async move { post(&address, "/v1/chat/completions", &body).await.unwrap() });
    }
    tasks.join_all().await
}
