//! `/v1/realtime` with a tiny model: the text of a sound is that of the same sound in a file,
//! whatever its parts are and whatever dies. Broken events are refused.

use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures_util::{SinkExt, StreamExt};
use playhouse::{
    EngineConfig,
    api::{How, Role},
    config::{Device, Dtype},
    server::ServerConfig,
};
use serde_json::{Value, json};
use tokio::{net::TcpStream, time::timeout};
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async,
    tungstenite::{
        Error, Message,
        client::IntoClientRequest,
        http::{HeaderName, HeaderValue},
        protocol::frame::coding::CloseCode,
    },
};

use crate::{serving::Served, speech, transcription};

/// The bytes of a WAV file before its samples.
const HEADER: usize = 44;
const LIMIT: Duration = Duration::from_secs(120);

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fidelity/speech")
}

async fn served(config: ServerConfig) -> Served {
    let engine = EngineConfig {
        allow_chaos: true,
        served_model_name: vec!["tiny".to_owned()],
        dtype: Dtype::Float32,
        kv_cache_memory_bytes: Some(16 << 20),
        device: Device::Cpu,
        ..EngineConfig::new(folder().join("whisper"))
    };
    Served::start(engine, config).await
}

/// Returns the text of a sound in a file.
async fn heard(served: &Served, file: &[u8], fields: &[(&str, &str)]) -> String {
    let (status, answer) = speech::post(served, "transcriptions", Some(file), fields).await;
    assert_eq!(status, 200, "{answer}");
    answer["text"].as_str().unwrap().to_owned()
}

/// Returns the 16-bit samples of a recorded sound.
fn samples(name: &str) -> Vec<u8> {
    std::fs::read(folder().join(name)).unwrap()[HEADER..].to_vec()
}

/// A session.
struct Client(WebSocketStream<MaybeTlsStream<TcpStream>>);

async fn opened(served: &Served, header: Option<(&str, &str)>) -> Result<Client, Box<Error>> {
    let url = format!("{}/v1/realtime", served.url.replacen("http", "ws", 1));
    let mut request = url.into_client_request().unwrap();
    if let Some((name, value)) = header {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        request.headers_mut().insert(name, HeaderValue::from_str(value).unwrap());
    }
    let (socket, _) = connect_async(request).await.map_err(Box::new)?;
    Ok(Client(socket))
}

/// Returns the status with which a connection is refused.
async fn refused(served: &Served, header: Option<(&str, &str)>) -> u16 {
    match opened(served, header).await.err().map(|error| *error) {
        Some(Error::Http(response)) => response.status().as_u16(),
        other => unreachable!("not refused: {other:?}"),
    }
}

impl Client {
    /// Opens a session with the model.
    async fn ready(served: &Served, update: Value) -> Self {
        let mut client = opened(served, None).await.unwrap();
        let created = client.event().await;
        assert_eq!(created["type"], "session.created", "{created}");
        assert!(created["id"].as_str().unwrap().starts_with("sess-"), "{created}");
        assert!(created["created"].is_u64(), "{created}");
        client.send(&update).await;
        client
    }

    async fn send(&mut self, event: &Value) {
        self.0.send(Message::text(event.to_string())).await.unwrap();
    }

    async fn append(&mut self, samples: &[u8]) {
        let audio = STANDARD.encode(samples);
        self.send(&json!({"type": "input_audio_buffer.append", "audio": audio})).await;
    }

    async fn commit(&mut self, is_final: bool) {
        self.send(&json!({"type": "input_audio_buffer.commit", "final": is_final})).await;
    }

    async fn message(&mut self) -> Option<Result<Message, Error>> {
        timeout(LIMIT, self.0.next()).await.expect("an event in time")
    }

    /// Returns the next event.
    async fn event(&mut self) -> Value {
        match self.message().await {
            Some(Ok(Message::Text(text))) => serde_json::from_str(&text).unwrap(),
            other => unreachable!("no event: {other:?}"),
        }
    }

    async fn error_code(&mut self) -> String {
        let event = self.event().await;
        assert_eq!(event["type"], "error", "{event}");
        assert!(event["error"].as_str().is_some_and(|error| !error.is_empty()), "{event}");
        event["code"].as_str().unwrap().to_owned()
    }

    /// Returns the whole text, which the deltas before it add up to.
    async fn done(&mut self) -> String {
        let mut text = String::new();
        loop {
            let event = self.event().await;
            match event["type"].as_str() {
                Some("transcription.delta") => text.push_str(event["delta"].as_str().unwrap()),
                Some("transcription.done") => {
                    assert_eq!(event["text"], text, "{event}");
                    let usage = &event["usage"];
                    let tokens = |name: &str| usage[name].as_u64().unwrap();
                    let sum = tokens("prompt_tokens") + tokens("completion_tokens");
                    assert_eq!(tokens("total_tokens"), sum, "{event}");
                    return text;
                }
                _ => unreachable!("{event}"),
            }
        }
    }

    /// Returns the code with which the server closes the session. `None` if the connection ends
    /// before the code arrives.
    async fn closed(&mut self) -> Option<CloseCode> {
        loop {
            match self.message().await {
                Some(Ok(Message::Close(frame))) => return frame.map(|frame| frame.code),
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return None,
            }
        }
    }
}

fn update() -> Value {
    json!({"type": "session.update", "model": "tiny", "language": "en"})
}

/// Transcribes a sound that arrives in parts of `bytes`.
async fn spoken(client: &mut Client, samples: &[u8], bytes: usize) -> String {
    client.commit(false).await;
    for part in samples.chunks(bytes) {
        client.append(part).await;
    }
    client.commit(true).await;
    client.done().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_text_is_that_of_the_same_sound_in_a_file() {
    let served = served(ServerConfig::default()).await;
    let mut client = Client::ready(&served, update()).await;
    for name in ["rising.wav", "noise.wav"] {
        let file = std::fs::read(folder().join(name)).unwrap();
        let file = heard(&served, &file, &[("language", "en")]).await;
        assert!(!file.is_empty());
        for bytes in [1 << 19, 3200, 962] {
            assert_eq!(spoken(&mut client, &samples(name), bytes).await, file, "{name}, {bytes}");
        }
    }
    // The language is found, and samples may come before the commit that starts it.
    let file = std::fs::read(folder().join("rising.wav")).unwrap();
    let found = heard(&served, &file, &[]).await;
    let no_language = json!({"type": "session.update", "model": "tiny"});
    let mut other = Client::ready(&served, no_language).await;
    other.append(&samples("rising.wav")).await;
    other.commit(true).await;
    other.commit(false).await;
    assert_eq!(other.done().await, found);
    // A sound without samples has no text.
    other.commit(false).await;
    other.commit(true).await;
    assert_eq!(other.done().await, "");
    drop((client, other));
    served.stop().await;
}

/// Its prompt needs no language.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_text_of_voxtral_is_that_of_the_same_sound_in_a_file() {
    let served = transcription::served("voxtral").await;
    for language in [None, Some("en")] {
        let mut session = json!({"type": "session.update", "model": "tiny"});
        if let Some(language) = language {
            session["language"] = language.into();
        }
        let mut client = Client::ready(&served, session).await;
        let file = std::fs::read(folder().join("rising.wav")).unwrap();
        let fields = language.map(|code| ("language", code));
        let file = heard(&served, &file, fields.as_slice()).await;
        assert!(!file.is_empty());
        assert_eq!(spoken(&mut client, &samples("rising.wav"), 3200).await, file, "{language:?}");
    }
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_text_with_an_adapter_is_that_of_the_same_sound_in_a_file() {
    let served = transcription::served_with_an_adapter().await;
    let file = std::fs::read(folder().join("rising.wav")).unwrap();
    let mut texts = Vec::new();
    for model in ["a", "tiny"] {
        let text = heard(&served, &file, &[("model", model)]).await;
        let update = json!({"type": "session.update", "model": model});
        let mut client = Client::ready(&served, update).await;
        assert_eq!(spoken(&mut client, &samples("rising.wav"), 3200).await, text, "{model}");
        texts.push(text);
    }
    assert_ne!(texts[0], texts[1], "the adapter has no effect");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_sound_is_cut_as_in_a_file_while_actors_die() {
    let served = served(ServerConfig::default()).await;
    let parts = [samples("rising.wav"), samples("noise.wav"), samples("clicks.wav")].concat();
    let long: Vec<u8> = parts.iter().copied().cycle().take(2 * 16_000 * 6).collect();
    let mut file = std::fs::read(folder().join("rising.wav")).unwrap()[..HEADER].to_vec();
    file[4..8].copy_from_slice(&(long.len() as u32 + 36).to_le_bytes());
    file[40..44].copy_from_slice(&(long.len() as u32).to_le_bytes());
    file.extend_from_slice(&long);
    let whole = heard(&served, &file, &[("language", "en")]).await;
    let mut client = Client::ready(&served, update()).await;
    client.commit(false).await;
    for (index, part) in long.chunks(1 << 15).enumerate() {
        client.append(part).await;
        let role = [Role::Worker, Role::Scheduler, Role::EncoderWorker][index % 3];
        let _ = served.engine.chaos().strike(role, 0, How::Kill);
    }
    client.commit(true).await;
    assert_eq!(client.done().await, whole);
    drop(client);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_events_are_refused_and_the_session_goes_on() {
    let served = served(ServerConfig::default()).await;
    let mut client = opened(&served, None).await.unwrap();
    assert_eq!(client.event().await["type"], "session.created");
    client.commit(false).await;
    assert_eq!(client.error_code().await, "model_not_validated");
    for (event, code) in [
        (json!({"type": "session.update"}), "invalid_event"),
        (json!({"type": "session.update", "model": "other"}), "model_not_found"),
        (
            json!({"type": "session.update", "model": "tiny", "language": "klingon"}),
            "invalid_event",
        ),
        (json!({"type": "input_audio_buffer.append"}), "processing_error"),
        (json!({"type": "input_audio_buffer.append", "audio": ""}), "invalid_audio"),
        (json!({"type": "input_audio_buffer.append", "audio": "not base64"}), "invalid_audio"),
        // Three bytes are no 16-bit samples.
        (json!({"type": "input_audio_buffer.append", "audio": "AAAA"}), "invalid_audio"),
        (json!({"type": "response.create"}), "unknown_event"),
        (json!([1]), "processing_error"),
    ] {
        client.send(&event).await;
        assert_eq!(client.error_code().await, code, "{event}");
    }
    client.0.send(Message::text("{")).await.unwrap();
    assert_eq!(client.error_code().await, "invalid_json");
    client.send(&update()).await;
    assert!(!spoken(&mut client, &samples("rising.wav"), 4096).await.is_empty());
    drop(client);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_event_ends_the_session() {
    let served = served(ServerConfig::default()).await;
    for (message, code) in [
        (Message::binary(vec![1, 2, 3]), CloseCode::Unsupported),
        (Message::text("x".repeat(3 << 20)), CloseCode::Size),
    ] {
        let mut client = Client::ready(&served, update()).await;
        let is_large = message.len() > 1 << 20;
        // The server may stop to read before all of a large message was sent. Its code is lost
        // then.
        let _ = client.0.send(message).await;
        let closed = client.closed().await;
        assert!(closed == Some(code) || is_large && closed.is_none(), "{closed:?}");
    }
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_are_bounded_and_need_a_key_and_an_origin() {
    let config = ServerConfig {
        max_realtime_sessions: 1,
        // The second session must be asked for within this time.
        realtime_idle_timeout_secs: 4,
        api_keys: vec!["secret".to_owned()],
        ..ServerConfig::default()
    };
    let served = served(config).await;
    assert_eq!(refused(&served, None).await, 401);
    let key = Some(("authorization", "Bearer secret"));
    let mut first = opened(&served, key).await.unwrap();
    assert_eq!(refused(&served, key).await, 503);
    assert_eq!(first.event().await["type"], "session.created");
    assert_eq!(first.closed().await, Some(CloseCode::Policy), "no event came for 4 seconds");
    let plain = reqwest::Client::new().get(format!("{}/v1/realtime", served.url));
    let plain = plain.header("authorization", "Bearer secret").send().await.unwrap();
    assert_eq!(plain.status(), 400, "no WebSocket");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_other_sites_are_refused() {
    let served = served(ServerConfig::default()).await;
    assert_eq!(refused(&served, Some(("origin", "https://evil.example"))).await, 403);
    let own = served.url.clone();
    assert!(opened(&served, Some(("origin", &own))).await.is_ok());
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_aborts_its_request_and_a_drain_ends_idle_sessions() {
    let served = served(ServerConfig::default()).await;
    let mut client = Client::ready(&served, update()).await;
    client.commit(false).await;
    client.append(&[0; 1 << 18]).await;
    for _ in 0..8 {
        client.append(&vec![0; 1 << 18]).await;
    }
    while client.event().await["type"] != "transcription.delta" {}
    drop(client);
    timeout(LIMIT, async {
        while served.engine.open_requests() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("the request ends");
    let mut idle = Client::ready(&served, update()).await;
    let stopping = tokio::spawn(served.stop());
    assert_eq!(idle.closed().await, Some(CloseCode::Away));
    drop(idle);
    stopping.await.unwrap();
}
