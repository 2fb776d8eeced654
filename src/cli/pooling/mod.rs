//! `playhouse embed`, `classify`, `score` and `rerank`: numbers about texts and images, without a
//! server.

mod classify;
mod embed;
mod inputs;
mod npy;
mod rerank;
mod score;
mod writer;

use std::path::PathBuf;

use clap::Args;
use futures_util::{StreamExt, pin_mut};

use self::inputs::Sources;
use self::writer::{Output, Row, Writer};
pub(crate) use self::{
    classify::{ClassifyArgs, run as classify},
    embed::{EmbedArgs, run as embed},
    rerank::{RerankArgs, run as rerank},
    score::{ScoreArgs, run as score},
};
use super::{CliError, bench::progress_bar, engine, flags::EngineFlags, interrupt::or_interrupt};
use crate::{
    api::{PoolingParams, RawRequest},
    config::{EngineConfig, layer::Entry},
    engine::{Engine, PoolError, PooledPrompt},
    model_files,
};

/// The flags that the commands share.
#[derive(Debug, Args)]
pub(crate) struct PoolingFlags {
    /// File of texts, one a line; lines of *.jsonl are JSON; may be repeated
    #[arg(long, short = 'f', value_name = "FILE")]
    file: Vec<PathBuf>,
    /// All lines are JSON: strings, or objects with `text`
    #[arg(long)]
    jsonl: bool,
    /// Image in the place of a text, behind all texts; may be repeated
    #[arg(long, value_name = "FILE")]
    image: Vec<PathBuf>,
    /// How to write the results
    #[arg(long, value_enum, default_value_t)]
    output: Output,
    /// File to write the results to, in place of standard output
    #[arg(long, short = 'o', value_name = "FILE")]
    output_file: Option<PathBuf>,
    /// Tokens of a text to keep, the first ones; -1 keeps as many as the model takes
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    truncate_prompt_tokens: Option<i64>,
    /// Leave vectors unnormalized, and logits as they are
    #[arg(long)]
    no_activation: bool,
    #[command(flatten)]
    pub(crate) engine: EngineFlags,
}

/// Returns the settings that the commands start from. A model that generates makes vectors. The
/// demo model has a head for them.
pub(crate) fn defaults() -> Vec<Entry> {
    let model = model_files::demo_embedder();
    vec![
        Entry::of_command("engine", "model", &model.to_string_lossy()),
        Entry::of_command("engine", "runner", "pooling"),
        Entry::of_command("log", "level", "warn"),
    ]
}

impl PoolingFlags {
    /// Returns the sources of texts and images, of which `arguments` are the first texts.
    fn sources<'a>(&'a self, arguments: &'a [String]) -> Sources<'a> {
        let Self { file, image, jsonl, .. } = self;
        Sources { arguments, files: file, images: image, is_jsonl: *jsonl }
    }

    /// Returns the parameters with those that the flags change.
    fn params(&self, params: PoolingParams) -> PoolingParams {
        let use_activation = self.no_activation.then_some(false);
        PoolingParams { use_activation: use_activation.or(params.use_activation), ..params }
    }

    /// Returns the request with the fields that the flags change.
    fn complete(&self, request: RawRequest) -> RawRequest {
        RawRequest { truncate_prompt_tokens: self.truncate_prompt_tokens, ..request }
    }

    fn writer(&self, total: usize, is_list: bool) -> Result<Writer, CliError> {
        Writer::new(self.output_file.as_deref(), self.output, total, is_list)
    }
}

/// Starts an engine, does the work of a command, and stops the engine.
fn with_engine(
    config: EngineConfig,
    work: impl AsyncFnOnce(&Engine) -> Result<(), CliError>,
) -> Result<(), CliError> {
    engine::run(async {
        let engine = or_interrupt(engine::start(config)).await?;
        let outcome = or_interrupt(work(&engine)).await;
        engine.shutdown().await;
        outcome
    })
}

/// Pools all requests. Calls `each` with every result in order, as soon as it is computed.
async fn pool(
    engine: &Engine,
    requests: Vec<RawRequest>,
    mut each: impl FnMut(usize, PooledPrompt) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let bar = progress_bar(requests.len());
    bar.set_message("inputs");
    let results = engine.pool_stream(requests);
    pin_mut!(results);
    let mut index = 0;
    while let Some(result) = results.next().await {
        let result = result?;
        bar.suspend(|| each(index, result))?;
        bar.inc(1);
        index += 1;
    }
    bar.finish_and_clear();
    Ok(())
}

impl From<PoolError> for CliError {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::Refused(error) => error.into(),
            PoolError::Failed(failure) => Self::Ended(failure.to_string()),
            PoolError::Aborted | PoolError::Lengths => Self::Ended(error.to_string()),
        }
    }
}
