//! `playhouse run-batch`: answers a file of requests, in the format of OpenAI's batch API.
//!
//! The requests use the server's own routes, without a socket, so their answers are those that
//! `playhouse serve` would give.

mod answers;
mod request;
mod requests;
mod work;

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use clap::Args;
use futures_util::StreamExt;
use indicatif::{ProgressBar, ProgressStyle};

use self::{answers::Answers, request::Abilities, requests::Requests, work::Worker};
use super::{
    CliError, engine, flags::EngineFlags, interrupt::or_interrupt, serve::metrics,
    style::shows_bars,
};
use crate::{
    config::{Config, ServerSettings, layer::Entry},
    engine::Speech,
    server::InProcess,
};

const EXAMPLES: &str = "\
Examples:
  playhouse run-batch -i requests.jsonl -o answers.jsonl -m models/qwen3 --served-model-name qwen3
  playhouse run-batch -i - -o - < requests.jsonl > answers.jsonl

A line of the input is a request:
  {\"custom_id\": \"1\", \"method\": \"POST\", \"url\": \"/v1/chat/completions\",
   \"body\": {\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}}
Its url is /v1/chat/completions, /v1/completions, or for models that pool /v1/embeddings, /classify,
/pooling, /score or /rerank. Models of speech have /v1/audio/transcriptions and translations, with
the URL of the sound, also a data URL, as file_url. Answers stand in the order in which they are
complete; what the output file holds already is not asked again, so a run that was interrupted goes
on where it was.
Exit codes: 0 every request succeeded, 1 some did not: their lines have an error.";

/// Answer a file of requests (JSON lines of OpenAI's batch API).
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RunBatchArgs {
    /// File of requests, one a line; - for standard input
    #[arg(long, short = 'i', value_name = "FILE")]
    input_file: PathBuf,
    /// File that answers are appended to, one a line; - for standard output
    #[arg(long, short = 'o', value_name = "FILE")]
    output_file: PathBuf,
    /// Maximum number of requests in progress at a time
    #[arg(long, value_name = "N", default_value_t = 128)]
    max_concurrency: usize,
    #[command(flatten)]
    pub(crate) engine: EngineFlags,
}

/// The outcomes of a file's requests, including those of earlier runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Tally {
    answered: usize,
    failed: usize,
}

/// Returns the settings that a batch starts from. The log does not repeat the requests, because
/// each has its line in the output.
pub(crate) fn defaults() -> Vec<Entry> {
    vec![Entry::of_command("log", "level", "warn")]
}

/// Answers all requests.
pub(crate) fn run(args: RunBatchArgs, config: Config) -> Result<(), CliError> {
    if args.max_concurrency == 0 {
        return Err(CliError::Usage("--max-concurrency must be at least 1".to_owned()));
    }
    if is_same_file(&args.input_file, &args.output_file) {
        let message = "--input-file and --output-file must not be the same file";
        return Err(CliError::Usage(message.to_owned()));
    }
    // Files that cannot be used are reported now, not after the model is loaded.
    let requests = Requests::open(&args.input_file, config.server.body_limit_bytes)?;
    let answers = Answers::open(&args.output_file)?;
    let tally = engine::run(async {
        let recorder = metrics::install(&config.engine)?;
        let server = ServerSettings { request_timeout_secs: None, ..config.server_with_limits() };
        let engine = or_interrupt(engine::start(config.engine)).await?;
        let routes = InProcess::new(engine.clone(), server, recorder)?;
        let (generates, loaded) = (engine.model_info().heads.generates, engine.loaded());
        let speech = Speech::of(&loaded.architecture, &loaded.codec);
        let abilities = Abilities {
            generates: generates && speech.as_ref().is_none_or(Speech::does_chat),
            pooling: engine.pooling_task(),
            compares: engine.compares(),
            hears: generates && speech.is_some(),
        };
        let worker = Worker::new(routes, abilities);
        let outcome = or_interrupt(answer(worker, requests, answers, args.max_concurrency)).await;
        engine.shutdown().await;
        outcome
    })?;
    match tally.failed {
        0 => Ok(()),
        failed => Err(CliError::Batch { failed, total: tally.answered + failed }),
    }
}

/// Returns whether both are one file, because then answers would become requests.
fn is_same_file(one: &Path, other: &Path) -> bool {
    let file = |path: &Path| {
        let found = path.canonicalize().ok()?;
        (found.is_file() && path != Path::new("-")).then_some(found)
    };
    file(one).is_some_and(|found| file(other) == Some(found))
}

/// Writes answers in order of completion. A dropped run leaves complete lines behind.
async fn answer(
    worker: Worker,
    requests: Requests,
    mut answers: Answers,
    max_concurrency: usize,
) -> Result<Tally, CliError> {
    let bar = progress_bar(requests.total());
    let done: BTreeSet<_> = answers.done().clone();
    let mut tally = answers.tally();
    let work = requests.stream()?.map(|line| {
        let is_done = line.as_ref().is_ok_and(|line| done.contains(&line.key()));
        let worker = &worker;
        async move {
            match line? {
                _ if is_done => Ok(None),
                line => Ok::<_, CliError>(Some(worker.answer(line).await)),
            }
        }
    });
    let mut work = std::pin::pin!(work.buffer_unordered(max_concurrency));
    while let Some(answer) = work.next().await {
        bar.inc(1);
        let Some(answer) = answer? else { continue };
        tally.count(!answer.is_success());
        answers.write(&answer)?;
    }
    bar.finish_and_clear();
    Ok(tally)
}

/// Returns a bar on a terminal. In a pipe, the bar shows nothing.
fn progress_bar(total: Option<u64>) -> ProgressBar {
    if !shows_bars() {
        return ProgressBar::hidden();
    }
    let (bar, template) = match total {
        Some(total) => (ProgressBar::new(total), "{bar:32} {pos} of {len} requests, {eta} to go"),
        None => (ProgressBar::new_spinner(), "{spinner} {pos} requests, {elapsed}"),
    };
    let style = ProgressStyle::with_template(template);
    let bar = bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(std::time::Duration::from_millis(100));
    bar
}
