//! The answers in one piece.

use std::sync::Arc;

use serde::Serialize;
use utoipa::ToSchema;

use super::segments::{Segment, segments};
use crate::{
    api::TextCodec,
    engine::Speech,
    server::{generate::choices::FinishedChoice, http::error::ApiError},
};

/// The facts about a sound.
pub(super) struct Heard {
    pub(super) seconds: f64,
    /// `None` if the client named none and the model's prompt needs none.
    pub(super) language: Option<&'static str>,
    pub(super) temperature: f32,
    /// Where its pieces begin, in seconds.
    pub(super) starts: Vec<f64>,
}

/// The answer to `/v1/audio/transcriptions`.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::server) struct Transcription {
    text: String,
    usage: AudioUsage,
}

/// The answer to `/v1/audio/translations`.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::server) struct Translation {
    text: String,
}

/// The length of a sound.
#[derive(Debug, Serialize, ToSchema)]
struct AudioUsage {
    r#type: &'static str,
    seconds: u64,
}

/// The answer `verbose_json`.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::server) struct VerboseTranscription {
    duration: f64,
    language: Option<&'static str>,
    text: String,
    segments: Vec<Segment>,
    /// Words have no times.
    #[schema(value_type = Option<Object>)]
    words: Option<()>,
}

/// Returns the answer of a transcription.
pub(super) fn transcription(
    speech: &Speech,
    heard: &Heard,
    finished: &[FinishedChoice],
) -> Transcription {
    let seconds = heard.seconds.ceil() as u64;
    let usage = AudioUsage { r#type: "duration", seconds };
    Transcription { text: text(speech, heard, finished), usage }
}

/// Returns the answer of a translation.
pub(super) fn translation(
    speech: &Speech,
    heard: &Heard,
    finished: &[FinishedChoice],
) -> Translation {
    Translation { text: text(speech, heard, finished) }
}

/// Returns the answer with segments.
///
/// # Errors
/// 500 if the tokenizer fails.
pub(super) fn verbose(
    speech: &Speech,
    codec: &Arc<dyn TextCodec>,
    heard: &Heard,
    finished: &[FinishedChoice],
) -> Result<VerboseTranscription, ApiError> {
    let mut all = Vec::new();
    for (choice, start) in finished.iter().zip(&heard.starts) {
        let found = segments(speech, codec, &choice.tokens, *start, heard.temperature)?;
        all.extend(found);
    }
    for (id, segment) in all.iter_mut().enumerate() {
        segment.id = id;
    }
    let texts: Vec<&str> = all.iter().map(|segment| segment.text.as_str()).collect();
    Ok(VerboseTranscription {
        duration: heard.seconds,
        language: heard.language,
        text: texts.join(speech.joint(heard.language)),
        segments: all,
        words: None,
    })
}

/// Returns the texts of all pieces.
fn text(speech: &Speech, heard: &Heard, finished: &[FinishedChoice]) -> String {
    let texts: Vec<&str> = finished.iter().map(|choice| speech.text(&choice.text)).collect();
    texts.join(speech.joint(heard.language))
}
