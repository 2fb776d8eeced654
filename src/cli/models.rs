//! `playhouse models`: the models that this build supports.

use std::fmt::Write;

use clap::Args;
use serde_json::json;

use super::{
    CliError,
    output::{self, Format},
};
use crate::model::{SupportedModels, SupportedPoolers, supported_models, supported_poolers};

const EXAMPLES: &str = "\
Examples:
  playhouse models
  playhouse models gemma
  playhouse models --output json";

/// List the model families that are supported, and their options.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ModelsArgs {
    /// Show only families whose names contain this text
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// How to write the result
    #[arg(long, value_enum, default_value_t)]
    output: Format,
}

/// Prints the families.
pub(crate) fn run(args: &ModelsArgs) -> Result<(), CliError> {
    let wanted = args.name.as_deref().unwrap_or_default().to_lowercase();
    let is_wanted = |family: &SupportedModels| {
        let names = [family.architecture, family.model_type, family.models];
        names.iter().any(|name| name.to_lowercase().contains(&wanted))
    };
    let is_named = |pooler: &SupportedPoolers| pooler.architecture.to_lowercase().contains(&wanted);
    let families: Vec<_> = supported_models().into_iter().filter(is_wanted).collect();
    let poolers: Vec<_> = supported_poolers().into_iter().filter(is_named).collect();
    match args.output {
        Format::Json => {
            let families = families.iter().map(|family| json!(family));
            output::show_json(&families.chain(poolers.iter().map(|pooler| json!(pooler))).collect())
        }
        Format::Text => output::show(&as_text(&families, &poolers)),
    }
}

fn as_text(families: &[SupportedModels], poolers: &[SupportedPoolers]) -> String {
    let mut text = String::new();
    for SupportedModels { architecture, models, options, .. } in families {
        let options = match options.is_empty() {
            true => "as Llama".to_owned(),
            false => options.join(", "),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{architecture}\n  {models}\n  {options}");
    }
    for SupportedPoolers { architecture, base, results } in poolers {
        let _ = writeln!(text, "{architecture}\n  {results}, with the backbone of {base}");
    }
    match families.is_empty() && poolers.is_empty() {
        true => text.push_str("no such family; `playhouse models` lists all\n"),
        false if families.is_empty() => text.push_str(
            "\nModels that pool are compared with Hugging Face transformers or sentence-transformers in\n\
             float32, within 1e-4: some architectures of each kind of result.\n",
        ),
        false => text.push_str(
            "\nEach family is compared with Hugging Face transformers in float32: at least two small \
             models of\ndifferent settings, with log-probabilities within 1e-4 and equal greedy tokens.\n",
        ),
    }
    text
}
