//! Parts of a text with their times: from one timestamp to the next pair of them.

use std::io::Write;
use std::sync::Arc;

use flate2::{Compression, write::ZlibEncoder};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    api::{SampledToken, TextCodec},
    engine::Speech,
    server::http::error::ApiError,
};

/// A part of a text.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::server) struct Segment {
    pub(super) id: usize,
    /// Mean log-probability of its tokens.
    avg_logprob: f64,
    /// Bytes of the text for each byte of the compressed text. It is large if words repeat.
    compression_ratio: f64,
    end: f64,
    #[schema(value_type = Option<f64>)]
    no_speech_prob: Option<()>,
    /// Where its piece begins, in whole seconds.
    seek: u64,
    start: f64,
    temperature: f32,
    pub(super) text: String,
    tokens: Vec<u32>,
}

/// Returns the segments of a piece that begins at `start`. Tokens after the last pair of timestamps
/// are in no segment.
///
/// # Errors
/// 500 if the tokenizer fails.
pub(super) fn segments(
    speech: &Speech,
    codec: &Arc<dyn TextCodec>,
    tokens: &[SampledToken],
    start: f64,
    temperature: f32,
) -> Result<Vec<Segment>, ApiError> {
    let mut marks = marks(speech, codec, tokens);
    if let [.., before, last] = marks[..]
        && before.time.is_none()
        && last.time.is_some()
    {
        marks.push(last);
    }
    let (mut segments, mut first, mut sum) = (Vec::new(), 0, 0.0);
    for (index, mark) in marks.iter().enumerate().skip(1) {
        if mark.time.is_none() || marks[index - 1].time.is_none() {
            sum += mark.logprob;
            continue;
        }
        let part = &marks[first..index];
        let seconds = |mark: Option<&Mark>| {
            let steps = mark.and_then(|mark| mark.time).unwrap_or_default();
            start + Speech::SECONDS_OF_A_STEP * f64::from(steps)
        };
        let inner = part.get(1..part.len().saturating_sub(1)).unwrap_or_default();
        let tokens: Vec<u32> = inner.iter().map(|mark| mark.token).collect();
        let spoken: Vec<u32> =
            inner.iter().filter(|mark| mark.time.is_none()).map(|mark| mark.token).collect();
        let text = codec.decode(&spoken, false);
        let text = text.map_err(|error| ApiError::internal(error.to_string()))?;
        segments.push(Segment {
            id: segments.len(),
            avg_logprob: sum / part.len() as f64,
            compression_ratio: compression_ratio(&text),
            end: seconds(part.last()),
            no_speech_prob: None,
            seek: start as u64,
            start: seconds(part.first()),
            temperature,
            text,
            tokens,
        });
        (first, sum) = (index, 0.0);
    }
    Ok(segments)
}

/// A token, and its time if it is a timestamp.
#[derive(Debug, Clone, Copy)]
struct Mark {
    token: u32,
    time: Option<u32>,
    logprob: f64,
}

/// Returns the tokens without that of the end. The first is the timestamp that ends the prompt.
fn marks(speech: &Speech, codec: &Arc<dyn TextCodec>, tokens: &[SampledToken]) -> Vec<Mark> {
    let end = codec.eos_token().map(|(_, token)| token);
    let tokens = match tokens {
        [tokens @ .., last] if Some(last.token_id) == end => tokens,
        tokens => tokens,
    };
    let mark = |drawn: &SampledToken| {
        let logprob = drawn.logprobs.as_ref().and_then(|all| all.first());
        Mark {
            token: drawn.token_id,
            time: speech.timestamp(drawn.token_id),
            logprob: logprob.map_or(0.0, |first| f64::from(first.logprob)),
        }
    };
    let opening = speech.first_timestamp();
    let opening = opening.map(|token| Mark { token, time: Some(0), logprob: 0.0 });
    opening.into_iter().chain(tokens.iter().map(mark)).collect()
}

fn compression_ratio(text: &str) -> f64 {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    // Writing to memory does not fail.
    let compressed = encoder.write_all(text.as_bytes()).and_then(|()| encoder.finish());
    match compressed {
        Ok(bytes) if !bytes.is_empty() => text.len() as f64 / bytes.len() as f64,
        _ => 0.0,
    }
}
