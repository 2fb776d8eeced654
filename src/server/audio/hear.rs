//! Hears a sound: cuts it, finds its language, and gives its pieces to the engine.

use std::sync::Arc;

use axum::{
    Json,
    response::{IntoResponse, Response},
};

use super::{
    answer::{self, Heard},
    form::SpeechForm,
    request::{ResponseFormat, SpeechRequest},
    stream,
};
use crate::{
    api::{MediaError, Prompt, RawRequest, SamplingParams},
    engine::{SoundPiece, Speech, SpeechOrder, SpeechTask},
    server::{
        exchange::Exchange,
        generate::{choices::Choices, handler::RequestNames, request_log::RequestLog, run::whole},
        http::{caller::Caller, draws::Draws, error::ApiError, request_id::response_id},
        memory::RequestMemory,
        state::AppState,
        traces::{RequestSpan, TraceParent},
    },
};

/// Bytes of a sample, in the piece and in the model's form of it.
const SAMPLE_BYTES: usize = 4 + 4;

/// The text of all errors of a file, as vLLM has it.
const BROKEN_FILE: &str = "Invalid or corrupted audio data. Ensure the input is a valid audio or \
                           video file (e.g. a complete WAV, MP3, or MP4).";

/// Answers a form.
pub(super) async fn hear(
    exchange: Exchange,
    form: SpeechForm,
    task: SpeechTask,
) -> Result<Response, ApiError> {
    let Exchange { state, caller, headers, memory } = exchange;
    // As in vLLM, `default_mm_loras` has no effect here.
    let adapter = state.adapter(form.text("model")).await?;
    let request = SpeechRequest::new(&form, &state, task)?;
    drop(form);
    let speech = state.speech()?;
    let pieces = caller.deadline.meet(pieces(speech, &request.file, &memory)).await??;
    let draws = Draws::default();
    let (prefix, route) = match task {
        SpeechTask::Transcribe => ("transcribe", "/v1/audio/transcriptions"),
        SpeechTask::Translate => ("translate", "/v1/audio/translations"),
    };
    let id = response_id(prefix, &headers, None, &draws.name);
    let RequestNames { log, abort } = RequestNames::of(&id);
    let names = abort.each_ref().map(String::as_str);
    let mut log = RequestLog::new(log, route, caller.tenant);
    let parent = TraceParent::of(&headers);
    let submitted = async {
        let first = pieces.first().ok_or_else(broken_file)?;
        let language = match request.language {
            language @ Some(_) => language,
            None => language(&state, caller, &names, &memory, first).await?,
        };
        let has_times = request.format == ResponseFormat::Verbose;
        let prompt = speech.prompt(&SpeechOrder {
            task,
            language,
            to_language: request.to_language,
            before: &request.before,
            has_timestamps: has_times,
        });
        let requests = pieces
            .iter()
            .map(|piece| request.raw_request(&state, prompt.clone(), piece.media.clone()));
        let mut requests = requests.collect::<Result<Vec<_>, _>>()?;
        requests.iter_mut().for_each(|request| request.lora.clone_from(&adapter));
        let span = RequestSpan::new(&state, parent, &id, &request.model, &requests);
        let choices = Choices::submit(&state, &names, caller, memory, requests).await?;
        Ok::<_, ApiError>((language, choices, span))
    };
    let (language, mut choices, span) = submitted.await.inspect_err(|_| log.end("refused"))?;
    log.trace(span);
    let starts: Vec<f64> = pieces.iter().map(|piece| piece.start).collect();
    let heard = Heard {
        seconds: pieces.iter().map(|piece| piece.seconds).sum(),
        language,
        temperature: request.temperature,
        starts,
    };
    drop(pieces);
    if request.is_streamed {
        let head = stream::head(id, task, request.model, draws.created);
        return stream::respond(choices, head, request.reports, speech, &heard, log);
    }
    let finished = whole(&mut choices, log).await?;
    Ok(match (request.format, task) {
        (ResponseFormat::Verbose, _) => {
            Json(answer::verbose(speech, state.engine.codec(), &heard, &finished)?).into_response()
        }
        (ResponseFormat::Plain, SpeechTask::Transcribe) => {
            Json(answer::transcription(speech, &heard, &finished)).into_response()
        }
        (ResponseFormat::Plain, SpeechTask::Translate) => {
            Json(answer::translation(speech, &heard, &finished)).into_response()
        }
    })
}

/// Decodes a file. Its memory is leased bit by bit.
async fn pieces(
    speech: &Speech,
    file: &Arc<[u8]>,
    memory: &RequestMemory,
) -> Result<Vec<SoundPiece>, ApiError> {
    let (opened, bytes) = (speech.clone(), Arc::clone(file));
    let mut sound = blocking(move || opened.pieces(bytes)).await?;
    let mut pieces = Vec::new();
    loop {
        let next = blocking(move || {
            let count = sound.decode()?;
            let piece = sound.next_piece();
            Ok((sound, count, piece))
        });
        let (rest, count, piece) = next.await?;
        memory.grow(count * SAMPLE_BYTES).await?;
        sound = rest;
        let Some(piece) = piece else { continue };
        let is_last = piece.is_last;
        pieces.push(piece);
        if is_last {
            return Ok(pieces);
        }
    }
}

/// Returns the memory of a piece.
pub(super) fn piece_bytes(speech: &Speech, piece: &SoundPiece) -> usize {
    let samples = (piece.seconds * f64::from(speech.sampling_rate())) as usize;
    samples * SAMPLE_BYTES
}

/// Returns the output of `work`, which decodes, on a blocking thread.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, MediaError> + Send + 'static,
) -> Result<T, ApiError> {
    let done = tokio::task::spawn_blocking(work).await;
    let done = done.map_err(|error| ApiError::internal(error.to_string()))?;
    done.map_err(|error| match error {
        MediaError::Invalid { reason, .. } => {
            tracing::debug!(reason, "a sound was refused");
            broken_file()
        }
        error => ApiError::bad_request(error.to_string()),
    })
}

fn broken_file() -> ApiError {
    ApiError::bad_request(BROKEN_FILE)
}

/// Returns the language of a piece: the likeliest token after the beginning, among those of
/// languages. `None` if the model's prompt needs none.
pub(super) async fn language(
    state: &AppState,
    caller: Caller,
    names: &[&str],
    memory: &RequestMemory,
    piece: &SoundPiece,
) -> Result<Option<&'static str>, ApiError> {
    let speech = state.speech()?;
    let languages = speech.languages();
    if languages.is_empty() {
        return Ok(speech.language_default());
    }
    let params = SamplingParams {
        temperature: 0.0,
        allowed_token_ids: Some(languages.iter().map(|(_, token)| *token).collect()),
        ..SamplingParams::default()
    };
    let request = RawRequest {
        media: [piece.media.clone()].into(),
        params,
        max_tokens: Some(1),
        add_special_tokens: false,
        ..RawRequest::new(Prompt::Text(speech.language_prompt().to_owned()))
    };
    let memory = memory.another();
    let mut choices = Choices::submit(state, names, caller, memory, vec![request]).await?;
    let finished = choices.finish().await?;
    let token = finished.first().and_then(|choice| choice.tokens.first());
    let found = languages.into_iter().find(|(_, id)| token.is_some_and(|t| t.token_id == *id));
    let found = found.map(|(code, _)| code);
    let found = found.ok_or_else(|| ApiError::internal("the language of the sound was not found"));
    found.map(Some)
}
