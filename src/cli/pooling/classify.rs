//! `playhouse classify`: the class of each text or image.

use clap::Args;
use serde_json::json;

use super::{PoolingFlags, Row, inputs::Input, pool, with_engine};
use crate::{
    api::{PoolingParams, PoolingTask, RawRequest},
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
    /// Texts; without any, and without -f or --image, each line of standard input is one
    #[arg(value_name = "TEXT")]
    texts: Vec<String>,
    #[command(flatten)]
    pub(crate) flags: PoolingFlags,
}

/// Classifies and prints.
pub(crate) fn run(args: &ClassifyArgs, config: EngineConfig) -> Result<(), CliError> {
    let inputs = args.flags.sources(&args.texts).inputs()?;
    with_engine(config, async |engine| classify(engine, args, inputs).await)
}

async fn classify(
    engine: &Engine,
    args: &ClassifyArgs,
    inputs: Vec<Input>,
) -> Result<(), CliError> {
    let params = args.flags.params(PoolingParams::new(PoolingTask::Classify));
    let request = |input: &Input| args.flags.complete(input.content().request(params.clone()));
    let requests: Vec<RawRequest> = inputs.iter().map(request).collect();
    let mut writer = args.flags.writer(inputs.len(), false)?;
    pool(engine, requests, |index, result| {
        let values = &result.pooled.values[..];
        let label = engine.label_of(values);
        let best = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let text = inputs.get(index).map(Input::name).unwrap_or_default();
        writer.write(&Row {
            text: format!("{label}\t{best:.4}\t{}", harmless(text)),
            json: json!({"index": index, "text": text, "label": label, "probs": values}),
            values,
        })
    })
    .await?;
    writer.finish()
}
