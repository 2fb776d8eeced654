//! `playhouse bench serve`: the speed of a server for its clients, with the flags, definitions,
//! table and fields of vLLM's client of the same name. Any server of OpenAI's API can be measured.
//!
//! The client uses one thread, so that a server on the same machine keeps the others.

mod adapters;
mod arrivals;
mod client;
mod datasets;
mod drafts;
mod metrics;
mod report;
mod run;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde_json::{Map, Value};

use self::{
    adapters::AdapterArgs, arrivals::Rate, datasets::DatasetArgs, metrics::Goodput, report::Shown,
};
use super::{Report, distribution::parse_percentiles};
use crate::cli::{CliError, http::headers};

pub(super) use client::{Client, Target};
pub(super) use datasets::SampleRequest;
pub(super) use run::run;

const EXAMPLES: &str = "\
Examples:
  playhouse bench serve --num-prompts 64 --max-concurrency 8 --random-input-len 128
  playhouse bench serve --base-url http://127.0.0.1:8101 --tokenizer models/qwen3 --request-rate 4
  playhouse bench serve --dataset-name sharegpt --dataset-path conversations.json --goodput ttft:500
  playhouse bench serve --dataset-name prefix_repetition --save-result --percentile-metrics ttft,e2el";

/// Send requests to a server of OpenAI's API, and measure its answers.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ServeArgs {
    /// Protocol of the server
    #[arg(long, value_enum, default_value_t)]
    backend: Backend,
    /// Address of the server, for example https://example.com
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// The server's host, without --base-url
    #[arg(long, default_value = "127.0.0.1")]
    host: String,
    /// The server's port, without --base-url
    #[arg(long, default_value_t = 8000)]
    port: u16,
    /// Path of the route [default: /v1/completions, or /v1/chat/completions for openai-chat]
    #[arg(long, value_name = "PATH")]
    endpoint: Option<String>,
    /// Header of every request, KEY=VALUE; may be repeated. OPENAI_API_KEY is the bearer token
    #[arg(long, value_name = "KEY=VALUE", num_args = 1..)]
    header: Vec<String>,
    /// Name of the model, or its folder [default: the first that the server has]
    #[arg(long, short = 'm')]
    model: Option<String>,
    /// Name of the model in requests [default: --model]
    #[arg(long, value_name = "NAME")]
    served_model_name: Option<String>,
    /// Folder or file of the tokenizer that prompts are made with [default: the model's]
    #[arg(long, value_name = "PATH")]
    tokenizer: Option<PathBuf>,
    /// Seconds to wait until the server is ready
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    ready_check_timeout_sec: u64,
    /// Requests before the measurement
    #[arg(long, value_name = "N", default_value_t = 0)]
    num_warmups: usize,
    #[command(flatten)]
    dataset: DatasetArgs,
    #[command(flatten)]
    traffic: TrafficArgs,
    #[command(flatten)]
    generation: GenerationArgs,
    #[command(flatten)]
    adapters: AdapterArgs,
    #[command(flatten)]
    result: ResultArgs,
}

/// The protocols, by vLLM's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(super) enum Backend {
    /// Completions.
    #[default]
    Openai,
    /// Chat completions.
    OpenaiChat,
}

impl Backend {
    fn name(self) -> &'static str {
        match self {
            Self::Openai => "openai",
            Self::OpenaiChat => "openai-chat",
        }
    }

    pub(super) fn endpoint(self) -> &'static str {
        match self {
            Self::Openai => "/v1/completions",
            Self::OpenaiChat => "/v1/chat/completions",
        }
    }
}

/// Flags about the times of requests.
#[derive(Debug, Args)]
#[command(next_help_heading = "Traffic")]
struct TrafficArgs {
    /// Requests a second; inf sends all at once
    #[arg(long, value_name = "RPS", default_value_t = f64::INFINITY)]
    request_rate: f64,
    /// Below 1 requests bunch, above 1 they come more evenly; 1 is a Poisson process
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    burstiness: f64,
    /// Maximum number of requests that are open at a time
    #[arg(long, value_name = "N")]
    max_concurrency: Option<usize>,
}

/// Flags about the outputs.
#[derive(Debug, Args)]
#[command(next_help_heading = "Generation")]
struct GenerationArgs {
    /// Generate the output's full length even if the model ends it (always so for random prompts)
    #[arg(long)]
    ignore_eos: bool,
    /// Log-probabilities a token
    #[arg(long, value_name = "N")]
    logprobs: Option<u32>,
    /// [default: the server's]
    #[arg(long, value_name = "X")]
    temperature: Option<f64>,
    /// [default: the server's]
    #[arg(long, value_name = "X")]
    top_p: Option<f64>,
    /// [default: the server's]
    #[arg(long, value_name = "N")]
    top_k: Option<i64>,
    /// [default: the server's]
    #[arg(long, value_name = "X")]
    min_p: Option<f64>,
    /// [default: the server's]
    #[arg(long, value_name = "X")]
    frequency_penalty: Option<f64>,
    /// [default: the server's]
    #[arg(long, value_name = "X")]
    presence_penalty: Option<f64>,
    /// [default: the server's]
    #[arg(long, value_name = "X")]
    repetition_penalty: Option<f64>,
    /// Further fields of every request, a JSON object
    #[arg(long, value_name = "JSON")]
    extra_body: Option<String>,
}

/// Flags about the result.
#[derive(Debug, Args)]
#[command(next_help_heading = "Result")]
struct ResultArgs {
    /// Times to show: ttft, tpot, itl, e2el, client_queue_time
    #[arg(long, value_name = "NAMES", default_value = "ttft,tpot,itl")]
    percentile_metrics: String,
    /// Percentiles of them
    #[arg(long, value_name = "NUMBERS", default_value = "99")]
    metric_percentiles: String,
    /// Count requests within these milliseconds, for example ttft:500,tpot:50
    #[arg(long, value_name = "NAME:MS", num_args = 1.., value_delimiter = ',')]
    goodput: Vec<String>,
    /// Save the result as JSON
    #[arg(long)]
    save_result: bool,
    /// With every request's times and text
    #[arg(long)]
    save_detailed: bool,
    /// Folder for it
    #[arg(long, value_name = "FOLDER")]
    result_dir: Option<PathBuf>,
    /// Name of its file [default: label, rate, concurrency, model and time]
    #[arg(long, value_name = "FILE")]
    result_filename: Option<String>,
    /// Name of the run in the result [default: the backend's]
    #[arg(long)]
    label: Option<String>,
    /// Further fields of the result, KEY=VALUE; may be repeated
    #[arg(long, value_name = "KEY=VALUE", num_args = 1..)]
    metadata: Vec<String>,
    /// How to print the result
    #[arg(long, value_enum, default_value_t)]
    output: Report,
}

impl ServeArgs {
    fn target(&self) -> Result<Target, CliError> {
        let local = || format!("http://{}:{}", self.host, self.port);
        let base_url = self.base_url.clone().unwrap_or_else(local);
        let endpoint = self.endpoint.clone();
        Ok(Target {
            base_url: base_url.trim_end_matches('/').to_owned(),
            endpoint: endpoint.unwrap_or_else(|| self.backend.endpoint().to_owned()),
            backend: self.backend,
            headers: headers(&self.header, std::env::var("OPENAI_API_KEY").ok())?,
            body: self.generation.fields(self.backend, self.dataset.ignores_eos())?,
            model: self.model.clone().unwrap_or_default(),
        })
    }

    fn goodput(&self) -> Result<Goodput, CliError> {
        Goodput::parse(&self.result.goodput).map_err(CliError::Usage)
    }

    fn shown(&self) -> Result<Shown, CliError> {
        let metrics = Shown::parse_metrics(&self.result.percentile_metrics);
        let percentiles = parse_percentiles(&self.result.metric_percentiles);
        Ok(Shown {
            metrics: metrics.map_err(CliError::Usage)?,
            percentiles: percentiles.map_err(CliError::Usage)?,
            max_concurrency: self.traffic.max_concurrency,
            request_rate: self.traffic.request_rate,
        })
    }
}

impl TrafficArgs {
    fn rate(&self) -> Result<Rate, CliError> {
        let positive = [
            ("--request-rate", self.request_rate),
            ("--burstiness", self.burstiness),
            ("--max-concurrency", self.max_concurrency.unwrap_or(1) as f64),
        ];
        match positive.into_iter().find(|(_, value)| value.is_nan() || *value <= 0.0) {
            Some((flag, value)) => {
                Err(CliError::Usage(format!("{flag} must be above 0, got {value}")))
            }
            None => Ok(Rate { requests_per_s: self.request_rate, burstiness: self.burstiness }),
        }
    }
}

impl GenerationArgs {
    /// Returns the fields that every request has.
    fn fields(&self, backend: Backend, ignore_eos: bool) -> Result<Map<String, Value>, CliError> {
        let mut fields = Map::new();
        if self.ignore_eos || ignore_eos {
            fields.insert("ignore_eos".to_owned(), true.into());
        }
        if let Some(count) = self.logprobs {
            let of_chat = [("logprobs", Value::from(true)), ("top_logprobs", count.into())];
            match backend {
                Backend::Openai => drop(fields.insert("logprobs".to_owned(), count.into())),
                Backend::OpenaiChat => fields.extend(of_chat.map(|(name, v)| (name.to_owned(), v))),
            }
        }
        let given = [
            ("temperature", self.temperature.map(Value::from)),
            ("top_p", self.top_p.map(Value::from)),
            ("top_k", self.top_k.map(Value::from)),
            ("min_p", self.min_p.map(Value::from)),
            ("frequency_penalty", self.frequency_penalty.map(Value::from)),
            ("presence_penalty", self.presence_penalty.map(Value::from)),
            ("repetition_penalty", self.repetition_penalty.map(Value::from)),
        ];
        let given = given.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        fields.extend(given);
        if let Some(text) = &self.extra_body {
            let extra: Map<String, Value> = serde_json::from_str(text)
                .map_err(|error| CliError::Usage(format!("--extra-body: {error}")))?;
            fields.extend(extra);
        }
        Ok(fields)
    }
}
