//! `playhouse classify`: the class of each text.

use clap::Args;
use serde_json::json;

use super::{PoolingFlags, Row, pool, texts::Sources, with_engine};
use crate::{
    api::{PoolingParams, PoolingTask, Prompt, RawRequest},
    cli::{CliError, style::harmless},
    config::EngineConfig,
    engine::Engine,
};

const EXAMPLES: &str = "\
Examples:
  playhouse classify -m models/classifier \"What a play!\"
  playhouse classify -m models/classifier -f texts.txt --output json
  cat texts.txt | playhouse classify -m models/classifier --output npy > probabilities.npy";

/// Find the class of each text.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ClassifyArgs {
    /// Texts; without any, and without -f, each line of standard input is one
    #[arg(value_name = "TEXT")]
    texts: Vec<String>,
    #[command(flatten)]
    pub(crate) flags: PoolingFlags,
}

/// Classifies and prints.
pub(crate) fn run(args: &ClassifyArgs, config: EngineConfig) -> Result<(), CliError> {
    let flags = &args.flags;
    let sources = Sources { arguments: &args.texts, files: &flags.file, is_jsonl: flags.jsonl };
    let texts = sources.texts()?;
    with_engine(config, async |engine| classify(engine, args, texts).await)
}

async fn classify(
    engine: &Engine,
    args: &ClassifyArgs,
    texts: Vec<String>,
) -> Result<(), CliError> {
    let params = args.flags.params(PoolingParams::new(PoolingTask::Classify));
    let request = |text: &String| {
        let request = RawRequest::pool(Prompt::Text(text.clone()), params.clone());
        args.flags.complete(request)
    };
    let requests: Vec<RawRequest> = texts.iter().map(request).collect();
    let mut writer = args.flags.writer(texts.len(), false)?;
    pool(engine, requests, |index, result| {
        let values = &result.pooled.values[..];
        let label = engine.label_of(values);
        let best = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let text = texts.get(index).map(String::as_str).unwrap_or_default();
        writer.write(&Row {
            text: format!("{label}\t{best:.4}\t{}", harmless(text)),
            json: json!({"index": index, "text": text, "label": label, "probs": values}),
            values,
        })
    })
    .await?;
    writer.finish()
}
