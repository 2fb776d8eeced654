//! `playhouse embed`: a vector for each text.

use clap::Args;
use serde_json::json;

use super::{PoolingFlags, Row, pool, texts::Sources, with_engine, writer::spaced};
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
  cat texts.jsonl | playhouse embed --jsonl --output json";

/// Make a vector of each text.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct EmbedArgs {
    /// Texts; without any, and without -f, each line of standard input is one
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
    let flags = &args.flags;
    let sources = Sources { arguments: &args.texts, files: &flags.file, is_jsonl: flags.jsonl };
    let texts = sources.texts()?;
    with_engine(config, async |engine| embed(engine, args, texts).await)
}

async fn embed(engine: &Engine, args: &EmbedArgs, texts: Vec<String>) -> Result<(), CliError> {
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
    let request = |text: &String| {
        let prompt = Prompt::Text(format!("{prefix}{text}"));
        args.flags.complete(RawRequest::pool(prompt, params.clone()))
    };
    if args.late_chunking {
        return embed_late(engine, args, &texts, prefix, params).await;
    }
    let requests: Vec<RawRequest> = texts.iter().map(request).collect();
    let mut writer = args.flags.writer(texts.len(), false)?;
    pool(engine, requests, |index, result| {
        let values = &result.pooled.values[..];
        let usage = json!({"prompt_tokens": result.prompt_token_ids.len()});
        let text = texts.get(index);
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
    texts: &[String],
    prefix: &str,
    params: PoolingParams,
) -> Result<(), CliError> {
    let mut chunks = texts.to_vec();
    chunks.first_mut().into_iter().for_each(|first| first.insert_str(0, prefix));
    let request = RawRequest::pool(Prompt::Chunks(chunks.into()), params);
    let mut writer = args.flags.writer(texts.len(), false)?;
    pool(engine, vec![args.flags.complete(request)], |_, result| {
        for (index, (values, text)) in result.pooled.rows().zip(texts).enumerate() {
            let json = json!({"index": index, "text": text, "embedding": values});
            writer.write(&Row { text: spaced(values), json, values })?;
        }
        Ok(())
    })
    .await?;
    writer.finish()
}
