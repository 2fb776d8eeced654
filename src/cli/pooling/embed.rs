//! `playhouse embed`: a vector for each text or image.

use clap::Args;
use serde_json::json;

use super::{PoolingFlags, Row, inputs::Input, pool, with_engine, writer::spaced};
use crate::{
    api::{PoolingParams, PoolingTask, Prompt, RawRequest},
    cli::CliError,
    config::EngineConfig,
    engine::Engine,
};

const EXAMPLES: &str = "\
Examples:
  playhouse embed \"A small theatre\"
  playhouse embed -m models/qwen3-embedding --prompt-name query --output json \"Where is it?\"
  playhouse embed --late-chunking \"A stage.\" \" It is small.\"
  playhouse embed -f texts.txt --output npy -o vectors.npy
  playhouse embed -m models/clip --image stage.png \"A small theatre\"
  cat texts.jsonl | playhouse embed --jsonl --output json";

/// Make a vector of each text.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct EmbedArgs {
    /// Texts; without any, and without -f or --image, each line of standard input is one
    #[arg(value_name = "TEXT")]
    texts: Vec<String>,
    /// Number of elements that vectors keep, of models that were trained for it
    #[arg(long, value_name = "N")]
    dimensions: Option<u32>,
    /// Read all texts as one, and make a vector of the tokens of each, of models that pool by the
    /// mean
    #[arg(long)]
    late_chunking: bool,
    /// Kind of the texts, for models with a prompt for each kind (query, document, ...)
    #[arg(long, value_name = "KIND")]
    prompt_name: Option<String>,
    #[command(flatten)]
    pub(crate) flags: PoolingFlags,
}

/// Embeds and prints.
pub(crate) fn run(args: &EmbedArgs, config: EngineConfig) -> Result<(), CliError> {
    if args.late_chunking && !args.flags.image.is_empty() {
        let message = "--late-chunking reads texts as one, and takes no --image";
        return Err(CliError::Usage(message.to_owned()));
    }
    let inputs = args.flags.sources(&args.texts).inputs()?;
    with_engine(config, async |engine| embed(engine, args, inputs).await)
}

async fn embed(engine: &Engine, args: &EmbedArgs, inputs: Vec<Input>) -> Result<(), CliError> {
    let prefix = match &args.prompt_name {
        None => "",
        Some(kind) => engine.prompt_of(kind).map_err(|known| {
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            CliError::Usage(format!(
                "--prompt-name must be one of the model's ({known}), got {kind}"
            ))
        })?,
    };
    let params = args.flags.params(PoolingParams {
        dimensions: args.dimensions,
        in_pieces: true,
        num_left_out: engine.num_left_out(prefix)?,
        ..PoolingParams::new(PoolingTask::Embed)
    });
    // An image has no prompt before it.
    let request = |input: &Input| {
        args.flags.complete(match input {
            Input::Text(text) => {
                RawRequest::pool(Prompt::Text(format!("{prefix}{text}")), params.clone())
            }
            Input::Image(..) => {
                input.content().request(PoolingParams { num_left_out: 0, ..params.clone() })
            }
        })
    };
    if args.late_chunking {
        return embed_late(engine, args, &inputs, prefix, params).await;
    }
    let requests: Vec<RawRequest> = inputs.iter().map(request).collect();
    let mut writer = args.flags.writer(inputs.len(), false)?;
    pool(engine, requests, |index, result| {
        let values = &result.pooled.values[..];
        let usage = json!({"prompt_tokens": result.prompt_token_ids.len()});
        let text = inputs.get(index).map(Input::name);
        writer.write(&Row {
            text: spaced(values),
            json: json!({"index": index, "text": text, "embedding": values, "usage": usage}),
            values,
        })
    })
    .await?;
    writer.finish()
}

/// Embeds texts that are read as one.
async fn embed_late(
    engine: &Engine,
    args: &EmbedArgs,
    inputs: &[Input],
    prefix: &str,
    params: PoolingParams,
) -> Result<(), CliError> {
    let mut chunks: Vec<String> = inputs.iter().map(|it| it.name().to_owned()).collect();
    chunks.first_mut().into_iter().for_each(|first| first.insert_str(0, prefix));
    let request = RawRequest::pool(Prompt::Chunks(chunks.into()), params);
    let mut writer = args.flags.writer(inputs.len(), false)?;
    pool(engine, vec![args.flags.complete(request)], |_, result| {
        for (index, (values, input)) in result.pooled.rows().zip(inputs).enumerate() {
            let json = json!({"index": index, "text": input.name(), "embedding": values});
            writer.write(&Row { text: spaced(values), json, values })?;
        }
        Ok(())
    })
    .await?;
    writer.finish()
}
