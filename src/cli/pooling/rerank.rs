//! `playhouse rerank`: documents by their relevance to a query.

use clap::Args;
use serde_json::json;

use super::{PoolingFlags, Row, inputs::Input, score::scores, with_engine};
use crate::{
    cli::{CliError, style::harmless},
    config::EngineConfig,
    engine::{RankedDocument, ranked},
};

const EXAMPLES: &str = "\
Examples:
  playhouse rerank \"Who opened the curtain?\" \"It rained.\" \"The curtain rose.\"
  playhouse rerank -m models/reranker -f documents.txt --top-n 3 \"Who opened the curtain?\"
  cat documents.jsonl | playhouse rerank --jsonl --output json \"Who opened the curtain?\"";

/// Sort documents by their relevance to a query.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RerankArgs {
    /// The query
    #[arg(value_name = "QUERY")]
    query: String,
    /// Documents; without any, and without -f or --image, each line of standard input is one
    #[arg(value_name = "DOCUMENT")]
    documents: Vec<String>,
    /// Number of documents to show [default: all]
    #[arg(long, short = 'n', value_name = "N")]
    top_n: Option<usize>,
    #[command(flatten)]
    pub(crate) flags: PoolingFlags,
}

/// Ranks and prints.
pub(crate) fn run(args: &RerankArgs, config: EngineConfig) -> Result<(), CliError> {
    let flags = &args.flags;
    let documents = flags.sources(&args.documents).inputs()?;
    with_engine(config, async |engine| {
        let queries = vec![args.query.as_str().into()];
        let contents = documents.iter().map(Input::content).collect();
        let scores = scores(engine, flags, queries, contents).await?;
        let ranking = ranked(&scores, args.top_n);
        let mut writer = flags.writer(ranking.len(), true)?;
        for RankedDocument { index, score } in ranking {
            let text = documents.get(index).map(Input::name).unwrap_or_default();
            writer.write(&Row {
                text: format!("{score:.4}\t{}", harmless(text)),
                json: json!({"index": index, "document": text, "relevance_score": score}),
                values: &[score],
            })?;
        }
        writer.finish()
    })
}
