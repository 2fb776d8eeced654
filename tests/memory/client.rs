//! A client that sends anything, and any amount of it.

use std::{sync::Arc, time::Duration};

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

/// Longest time for an answer. A debug build on a busy machine is slow.
const PATIENCE: Duration = Duration::from_secs(120);
const PIECE: usize = 64 << 10;

/// An answer: its status, and the text after the head.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) status: u16,
    pub(crate) text: String,
}

/// A body that many requests share.
pub(crate) type Shared = Arc<Vec<u8>>;

pub(crate) fn json_body(value: &Value) -> Shared {
    Arc::new(value.to_string().into_bytes())
}

/// Sends the head of a request whose body is `announced` bytes long.
pub(crate) async fn begin(address: &str, path: &str, announced: usize) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {announced}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.ok()?;
    Some(stream)
}

/// Sends `bytes` of a body until the server stops reading for `patience`. Returns how many.
pub(crate) async fn feed(stream: &mut TcpStream, bytes: usize, patience: Duration) -> usize {
    let piece = vec![b' '; PIECE];
    let mut sent = 0;
    while sent < bytes {
        match timeout(patience, stream.write(&piece[..PIECE.min(bytes - sent)])).await {
            Ok(Ok(written)) if written > 0 => sent += written,
            _ => return sent,
        }
    }
    sent
}

/// Sends a whole request. Returns its answer, or `None` if the connection broke off or took too
/// long.
pub(crate) async fn post(address: &str, path: &str, body: &Shared) -> Option<Sent> {
    let exchange = async {
        let stream = begin(address, path, body.len()).await?;
        let (mut reader, mut writer) = stream.into_split();
        let body = Arc::clone(body);
        // A server that rejects a request early answers while the client still sends the body.
        let writing = tokio::spawn(async move {
            let _ = writer.write_all(&body).await;
            writer
        });
        let mut answer = Vec::new();
        let read = reader.read_to_end(&mut answer).await;
        writing.abort();
        if answer.is_empty() {
            read.ok()?;
        }
        parse(&answer)
    };
    timeout(PATIENCE, exchange).await.ok()?
}

/// Returns the answer to a GET.
pub(crate) async fn get(address: &str, path: &str) -> Option<Sent> {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await.ok()?;
        let head = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).await.ok()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.ok()?;
        parse(&answer)
    };
    timeout(PATIENCE, exchange).await.ok()?
}

fn parse(answer: &[u8]) -> Option<Sent> {
    let answer = String::from_utf8_lossy(answer);
    let (head, text) = answer.split_once("\r\n\r\n")?;
    let status = head.split_whitespace().nth(1)?.parse().ok()?;
    Some(Sent { status, text: text.to_owned() })
}
