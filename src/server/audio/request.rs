//! The meaning of a form.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::form::SpeechForm;
use crate::{
    api::{Prompt, RawMedia, RawRequest, SamplingParams},
    engine::SpeechTask,
    server::{
        ServerConfig,
        generate::{
            sampling::{SamplingFields, output_tokens},
            usage::UsageReports,
        },
        http::{error::ApiError, fields::Int},
        state::AppState,
    },
};

/// Largest file, bytes.
const FILE_BYTES_MAX: usize = 25 << 20;

/// The fields that decide how tokens are drawn.
const SAMPLING: [&str; 8] = [
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
];

/// The form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResponseFormat {
    /// The text.
    Plain,
    /// The text in parts, with their times.
    Verbose,
}

/// A request that has the right fields.
pub(super) struct SpeechRequest {
    pub(super) file: Arc<[u8]>,
    pub(super) model: String,
    pub(super) format: ResponseFormat,
    pub(super) language: Option<&'static str>,
    /// The language of a translation.
    pub(super) to_language: Option<&'static str>,
    /// Text that comes before the sound's.
    pub(super) before: String,
    pub(super) is_streamed: bool,
    pub(super) reports: UsageReports,
    pub(super) temperature: f32,
    sampling: SamplingFields,
    max_tokens: Option<u32>,
}

impl SpeechRequest {
    /// Checks the fields of a form.
    ///
    /// # Errors
    /// 400 for the first field that cannot be served, 404 for an unknown model.
    pub(super) fn new(
        form: &SpeechForm,
        state: &AppState,
        task: SpeechTask,
    ) -> Result<Self, ApiError> {
        refuse(form)?;
        let name = format_name(form.text("response_format").unwrap_or("json"), task)?;
        let is_streamed = form.flag("stream")?;
        let reports = reports(form, is_streamed, &state.config)?;
        let sampling = sampling(form)?;
        let max_tokens = form.integer("max_completion_tokens")?.map(Int);
        let max_tokens = output_tokens("max_completion_tokens", max_tokens)?;
        let file = form.file.clone().ok_or_else(|| match form.text("file") {
            None => ApiError::validation("body.file", "Field required"),
            Some(_) => {
                let message = "Value error, Expected UploadFile, received: <class 'str'>";
                ApiError::validation("body.file", message)
            }
        })?;
        let model = state.model_name(form.text("model"))?;
        let speech = state.speech()?;
        if !speech.has_task(task) {
            let message = "The model does not support Translations API";
            return Err(ApiError::not_found_object(message));
        }
        let format = format(name, &model, is_streamed, speech.has_timestamps())?;
        if file.len() > FILE_BYTES_MAX {
            return Err(ApiError::invalid("audio_filesize_mb", "Maximum file size exceeded"));
        }
        let language = |field: &str| {
            let found = form.text(field).map(|code| speech.language(code)).transpose();
            found.map_err(|error| ApiError::bad_request(error.to_string()))
        };
        Ok(Self {
            file,
            model,
            format,
            language: language("language")?,
            to_language: language("to_language")?,
            before: form.text("prompt").unwrap_or_default().to_owned(),
            is_streamed,
            reports,
            temperature: sampling.params(state.engine.default_sampling())?.temperature,
            sampling,
            max_tokens,
        })
    }

    /// Returns the engine's request for one piece of the sound.
    ///
    /// # Errors
    /// 400 for a parameter that the engine's types cannot hold.
    pub(super) fn raw_request(
        &self,
        state: &AppState,
        prompt: String,
        media: RawMedia,
    ) -> Result<RawRequest, ApiError> {
        let params = SamplingParams {
            logprobs: (self.format == ResponseFormat::Verbose).then_some(1),
            ..self.sampling.params(state.engine.default_sampling())?
        };
        let request = about_a_sound(&self.sampling, params, prompt, media)?;
        // A limit beyond the context is none.
        Ok(RawRequest { max_tokens_default: self.max_tokens, ..request })
    }
}

/// Rejects fields of vLLM that an answer would have to ignore. As in vLLM, the wish for times of
/// words adds none.
fn refuse(form: &SpeechForm) -> Result<(), ApiError> {
    const TIMES: &str = "timestamp_granularities[]";
    for name in ["use_beam_search", "watermarking"] {
        if form.flag(name)? {
            return Err(ApiError::unsupported(name));
        }
    }
    if form.integer("n")?.is_some_and(|n| n != 1) {
        return Err(ApiError::invalid("n", "n must be 1: a sound has one text"));
    }
    let is_given =
        |name: &&&str| form.text(name).is_some_and(|text| !matches!(text, "{}" | "null"));
    if let Some(name) = ["hotwords", "vllm_xargs"].iter().find(is_given) {
        return Err(ApiError::unsupported(name));
    }
    let mut times = form.fields.iter().filter(|(name, _)| name == TIMES);
    match times.find(|(_, text)| !matches!(text.as_str(), "word" | "segment" | "")) {
        None => Ok(()),
        Some(_) => {
            let message = "Input should be 'word' or 'segment'";
            Err(ApiError::validation(&format!("body.{TIMES}"), message))
        }
    }
}

/// Returns the engine's request for one piece of a sound whose client sets no parameters.
///
/// # Errors
/// As [`SpeechRequest::raw_request`].
pub(super) fn plain_request(
    state: &AppState,
    prompt: String,
    media: RawMedia,
) -> Result<RawRequest, ApiError> {
    let sampling = sampling(&SpeechForm::default())?;
    let params = sampling.params(state.engine.default_sampling())?;
    about_a_sound(&sampling, params, prompt, media)
}

fn about_a_sound(
    sampling: &SamplingFields,
    params: SamplingParams,
    prompt: String,
    media: RawMedia,
) -> Result<RawRequest, ApiError> {
    let request = sampling.raw_request(Prompt::Text(prompt), params, None)?;
    Ok(RawRequest { media: [media].into(), add_special_tokens: false, ..request })
}

/// Returns the parameters of drawing tokens. By default the likeliest one is taken.
fn sampling(form: &SpeechForm) -> Result<SamplingFields, ApiError> {
    let mut fields = Map::new();
    fields.insert("temperature".to_owned(), Value::from(0.0));
    for name in SAMPLING {
        if let Some(number) = form.number(name)? {
            fields.insert(name.to_owned(), number);
        }
    }
    serde_path_to_error::deserialize(Value::Object(fields))
        .map_err(|error| ApiError::validation(&format!("body.{}", error.path()), error.inner()))
}

/// Returns the chunks of a stream that report usage.
fn reports(
    form: &SpeechForm,
    is_streamed: bool,
    config: &ServerConfig,
) -> Result<UsageReports, ApiError> {
    let at_end = form.flag("stream_include_usage")?;
    let continuous = form.flag("stream_continuous_usage_stats")?;
    for (name, is_set) in
        [("stream_include_usage", at_end), ("stream_continuous_usage_stats", continuous)]
    {
        if is_set && !is_streamed {
            let message = "Stream options can only be defined when `stream=True`.";
            return Err(ApiError::invalid(name, message));
        }
    }
    if config.enable_force_include_usage {
        return Ok(UsageReports { at_end: true, continuous: true });
    }
    Ok(UsageReports { at_end, continuous: at_end && continuous })
}

/// Returns the name of a format that the API knows.
fn format_name(name: &str, task: SpeechTask) -> Result<&str, ApiError> {
    let is_known = matches!(name, "json" | "text" | "srt" | "verbose_json" | "vtt");
    if is_known || task == SpeechTask::Transcribe && name == "diarized_json" {
        return Ok(name);
    }
    let more = match task {
        SpeechTask::Transcribe => ", or 'diarized_json'",
        SpeechTask::Translate => "",
    };
    let message = format!("Input should be 'json', 'text', 'srt', 'verbose_json' or 'vtt'{more}");
    Err(ApiError::validation("body.response_format", message))
}

/// Returns the format, if the model has it.
fn format(
    name: &str,
    model: &str,
    is_streamed: bool,
    has_timestamps: bool,
) -> Result<ResponseFormat, ApiError> {
    let refused = |message: String| Err(ApiError::bad_request(message));
    match name {
        "json" | "text" => Ok(ResponseFormat::Plain),
        "verbose_json" if !has_timestamps => {
            refused(format!("Currently do not support verbose_json for {model}"))
        }
        "verbose_json" if is_streamed => {
            refused("verbose_json format doesn't support streaming case".to_owned())
        }
        "verbose_json" => Ok(ResponseFormat::Verbose),
        "diarized_json" => refused(format!("Currently do not support diarized_json for {model}")),
        _ => refused(
            "Currently only support response_format: `text`, `json`, `verbose_json` or \
             `diarized_json`"
                .to_owned(),
        ),
    }
}
