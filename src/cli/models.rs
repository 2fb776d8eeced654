//! `playhouse models`: the models that this build supports.

use std::fmt::Write;

use clap::Args;
use serde_json::json;

use super::{
    CliError,
    output::{self, Format},
};
use crate::model::{SupportedModels, supported_models};

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
    let families: Vec<_> = supported_models().into_iter().filter(is_wanted).collect();
    match args.output {
        Format::Json => output::show_json(&json!(families)),
        Format::Text => output::show(&as_text(&families)),
    }
}

fn as_text(families: &[SupportedModels]) -> String {
    let mut text = String::new();
    for SupportedModels { architecture, models, options, .. } in families {
        let options = match options.is_empty() {
            true => "as Llama".to_owned(),
            false => options.join(", "),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{architecture}\n  {models}\n  {options}");
    }
    match families.is_empty() {
        true => text.push_str("no such family; `playhouse models` lists all\n"),
        false => text.push_str(
            "\nEach family is compared with Hugging Face transformers in float32: at least two small \
             models of\ndifferent settings, with log-probabilities within 1e-4 and equal greedy tokens.\n",
        ),
    }
    text
}
