//! The events of a session, as JSON: vLLM's realtime API.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::server::generate::usage::Usage;

/// The integer of full scale.
const FULL_SCALE: f32 = 32_768.0;

/// An event of a client.
#[derive(Debug, PartialEq)]
pub(super) enum ClientEvent {
    /// `session.update`
    Update {
        /// The model to use.
        model: String,
        /// The language of the sound. Without one, the model finds it.
        language: Option<String>,
    },
    /// `input_audio_buffer.append`
    Append(Vec<f32>),
    /// `input_audio_buffer.commit`
    Commit {
        /// Whether the sound is complete.
        is_final: bool,
    },
}

/// An event of the server.
#[derive(Debug, Serialize)]
#[serde(tag = "type")]
pub(super) enum ServerEvent<'a> {
    /// The connection is ready.
    #[serde(rename = "session.created")]
    Created { id: &'a str, created: u64 },
    /// New text.
    #[serde(rename = "transcription.delta")]
    Delta { delta: &'a str },
    /// The whole text of a sound.
    #[serde(rename = "transcription.done")]
    Done { text: &'a str, usage: Usage },
    /// An event was refused, or a transcription failed.
    #[serde(rename = "error")]
    Error { error: &'a str, code: &'static str },
}

/// The reason why an event has no effect.
#[derive(Debug, PartialEq)]
pub(super) struct Refused {
    /// The kind of error, in vLLM's words.
    pub(super) code: &'static str,
    pub(super) message: String,
}

impl Refused {
    pub(super) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// Returns the error of a value that is missing or has another type.
    fn field(name: &str, expected: &str) -> Self {
        Self::new("processing_error", format!("{name}: {expected}"))
    }
}

/// Reads an event of a client.
///
/// # Errors
/// [`Refused`] if it is no event that the API has.
pub(super) fn read(text: &str) -> Result<ClientEvent, Refused> {
    let value: Value =
        serde_json::from_str(text).map_err(|_| Refused::new("invalid_json", "Invalid JSON"))?;
    let Value::Object(fields) = value else {
        return Err(Refused::new("processing_error", "an event is an object with a `type`"));
    };
    match fields.get("type").and_then(Value::as_str) {
        Some("session.update") => update(&fields),
        Some("input_audio_buffer.append") => {
            let audio = fields.get("audio").and_then(Value::as_str);
            let audio = audio.ok_or_else(|| Refused::field("audio", "a string is required"))?;
            let samples = samples(audio);
            let samples = samples.ok_or(Refused::new("invalid_audio", "Invalid audio data"))?;
            Ok(ClientEvent::Append(samples))
        }
        Some("input_audio_buffer.commit") => match fields.get("final") {
            None => Ok(ClientEvent::Commit { is_final: false }),
            Some(Value::Bool(is_final)) => Ok(ClientEvent::Commit { is_final: *is_final }),
            Some(_) => Err(Refused::field("final", "true or false is required")),
        },
        other => {
            let shown: String = other.unwrap_or("None").chars().take(100).collect();
            Err(Refused::new("unknown_event", format!("Unknown event type: {shown}")))
        }
    }
}

fn update(fields: &Map<String, Value>) -> Result<ClientEvent, Refused> {
    let text = |name: &str| match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(Refused::field(name, "a string is required")),
    };
    let Some(model) = text("model")? else {
        return Err(Refused::new("invalid_event", "Missing required field: model"));
    };
    Ok(ClientEvent::Update { model, language: text("language")? })
}

/// Returns the samples of base64 of 16-bit integers. `None` if it is none, or has no samples.
fn samples(audio: &str) -> Option<Vec<f32>> {
    let bytes = STANDARD.decode(audio).ok()?;
    let (pairs, rest) = bytes.as_chunks::<2>();
    let sample = |pair: &[u8; 2]| f32::from(i16::from_le_bytes(*pair)) / FULL_SCALE;
    (rest.is_empty() && !pairs.is_empty()).then(|| pairs.iter().map(sample).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn code(event: &str) -> &'static str {
        read(event).unwrap_err().code
    }

    #[test]
    fn events_are_read() {
        let update = json!({"type": "session.update", "model": "m", "further": 1});
        let event = ClientEvent::Update { model: "m".to_owned(), language: None };
        assert_eq!(read(&update.to_string()), Ok(event));
        let audio = STANDARD.encode([0, 0, 0, 0x40, 0, 0x80, 0xff, 0x7f]);
        let append = json!({"type": "input_audio_buffer.append", "audio": audio});
        let samples = vec![0.0, 0.5, -1.0, 32_767.0 / 32_768.0];
        assert_eq!(read(&append.to_string()), Ok(ClientEvent::Append(samples)));
        let commit =
            |fields: &str| read(&format!("{{\"type\": \"input_audio_buffer.commit\"{fields}}}"));
        assert_eq!(commit(""), Ok(ClientEvent::Commit { is_final: false }));
        assert_eq!(commit(", \"final\": true"), Ok(ClientEvent::Commit { is_final: true }));
    }

    #[test]
    fn broken_events_are_refused_with_vllms_codes() {
        assert_eq!(code("{\"type\": "), "invalid_json");
        for text in ["[]", "3", "null", "\"session.update\""] {
            assert_eq!(code(text), "processing_error", "{text}");
        }
        for text in ["{}", "{\"type\": 7}", "{\"type\": \"response.create\"}"] {
            assert_eq!(code(text), "unknown_event", "{text}");
        }
        assert_eq!(code(r#"{"type": "session.update"}"#), "invalid_event");
        assert_eq!(code(r#"{"type": "session.update", "model": 7}"#), "processing_error");
        assert_eq!(code(r#"{"type": "input_audio_buffer.append"}"#), "processing_error");
        let commit = r#"{"type": "input_audio_buffer.commit", "final": "yes"}"#;
        assert_eq!(code(commit), "processing_error");
        for audio in ["", "?", "AA", "AA==", "AAAA", "AAA=\n"] {
            let event = json!({"type": "input_audio_buffer.append", "audio": audio}).to_string();
            let is_even = STANDARD.decode(audio).is_ok_and(|bytes| bytes.len() == 2);
            assert!(is_even || code(&event) == "invalid_audio", "{audio}");
        }
    }

    #[test]
    fn events_of_the_server_have_vllms_fields() {
        let written = |event: ServerEvent<'_>| serde_json::to_value(event).unwrap();
        let created = written(ServerEvent::Created { id: "sess-1", created: 7 });
        assert_eq!(created, json!({"type": "session.created", "id": "sess-1", "created": 7}));
        let delta = written(ServerEvent::Delta { delta: "a" });
        assert_eq!(delta, json!({"type": "transcription.delta", "delta": "a"}));
        let done = written(ServerEvent::Done { text: "a", usage: Usage::new(2, 1) });
        assert_eq!((&done["type"], &done["text"]), (&json!("transcription.done"), &json!("a")));
        assert_eq!(done["usage"]["total_tokens"], 3);
        let error = written(ServerEvent::Error { error: "no", code: "invalid_json" });
        assert_eq!(error, json!({"type": "error", "error": "no", "code": "invalid_json"}));
    }
}
