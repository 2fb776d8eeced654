//! `playhouse score`: how well the texts of pairs go together.

use clap::Args;
use serde_json::{Map, json};

use super::{PoolingFlags, Row, inputs::Input, pool, with_engine};
use crate::{
    api::{PoolingParams, RawRequest},
    cli::CliError,
    config::EngineConfig,
    engine::{Engine, MediaText, PairSide, PooledPrompt},
};

const EXAMPLES: &str = "\
Examples:
  playhouse score \"Who opened the curtain?\" \"The curtain rose.\" \"It rained.\"
  playhouse score -m models/reranker -f pairs.jsonl --output json
  cat documents.txt | playhouse score \"Who opened the curtain?\"

Without a query, each line of the input is a pair: {\"text_1\": \"...\", \"text_2\": \"...\"}.";

/// Score a query with each document, or the texts of pairs.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ScoreArgs {
    /// Text to compare with each document
    #[arg(value_name = "QUERY")]
    query: Option<String>,
    /// Documents; without any, and without -f or --image, each line of standard input is one
    #[arg(value_name = "DOCUMENT")]
    documents: Vec<String>,
    #[command(flatten)]
    pub(crate) flags: PoolingFlags,
}

/// Scores and prints.
pub(crate) fn run(args: &ScoreArgs, config: EngineConfig) -> Result<(), CliError> {
    let flags = &args.flags;
    let sources = flags.sources(&args.documents);
    let texts = |texts: Vec<String>| texts.into_iter().map(MediaText::from).collect();
    let (queries, documents): (Vec<MediaText>, Vec<MediaText>) = match &args.query {
        Some(query) => {
            (vec![query.as_str().into()], sources.inputs()?.iter().map(Input::content).collect())
        }
        None => {
            let (firsts, seconds) = sources.pairs()?;
            (texts(firsts), texts(seconds))
        }
    };
    with_engine(config, async |engine| {
        let scores = scores(engine, flags, queries, documents).await?;
        let mut writer = flags.writer(scores.len(), true)?;
        for (index, score) in scores.iter().enumerate() {
            writer.write(&Row {
                text: score.to_string(),
                json: json!({"index": index, "score": score}),
                values: std::slice::from_ref(score),
            })?;
        }
        writer.finish()
    })
}

/// Returns the score of each pair.
pub(super) async fn scores(
    engine: &Engine,
    flags: &PoolingFlags,
    queries: Vec<MediaText>,
    documents: Vec<MediaText>,
) -> Result<Vec<f32>, CliError> {
    let sides = |contents: Vec<MediaText>| contents.into_iter().map(PairSide::from).collect();
    let (scoring, prompts) = engine.scoring_of(sides(queries), sides(documents), &Map::new())?;
    let task = engine.pooling_task().unwrap_or_default();
    let params = flags.params(PoolingParams::new(task));
    let request = |(prompt, media)| {
        let add_special_tokens = scoring.adds_special_tokens();
        let request = RawRequest::pool(prompt, params.clone());
        let end_token = scoring.end_token();
        flags.complete(RawRequest { media, add_special_tokens, end_token, ..request })
    };
    let requests: Vec<RawRequest> = prompts.into_iter().map(request).collect();
    let mut results: Vec<PooledPrompt> = Vec::with_capacity(requests.len());
    pool(engine, requests, |_, result| {
        results.push(result);
        Ok(())
    })
    .await?;
    let pairs = results.iter().map(|result| (&*result.prompt_token_ids, &result.pooled));
    Ok(scoring.scores(pairs))
}
