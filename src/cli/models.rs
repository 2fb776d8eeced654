//! `playhouse models`: the models that this build supports, and those on this machine.

use std::fmt::Write;

use clap::Args;
use indicatif::HumanBytes;
use serde_json::json;

use super::{
    CliError,
    flags::HubFlags,
    output::{self, Format},
};
use crate::{
    config::EngineConfig,
    hub::{CachedModel, cached_models},
    model::{SupportedModels, SupportedPoolers, supported_models, supported_poolers},
};

const EXAMPLES: &str = "\
Examples:
  playhouse models
  playhouse models gemma
  playhouse models --downloaded
  playhouse models --output json";

/// List the model families that are supported, or the models on this machine.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ModelsArgs {
    /// Show only families or models whose names contain this text
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// List the models in the cache that `playhouse pull` fills
    #[arg(long)]
    downloaded: bool,
    /// How to write the result
    #[arg(long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    pub(crate) hub: HubFlags,
}

/// Prints the families, or the models in the cache.
pub(crate) fn run(args: &ModelsArgs, config: &EngineConfig) -> Result<(), CliError> {
    let wanted = args.name.as_deref().unwrap_or_default().to_lowercase();
    if args.downloaded {
        let mut models = cached_models(config)?;
        models.retain(|model| model.name.to_lowercase().contains(&wanted));
        if models.is_empty() {
            output::tell("no such model is in the cache; `playhouse pull org/name` fetches one");
        }
        return match args.output {
            Format::Json => output::show_json(&json!(models)),
            Format::Text => output::show(&as_table(&models)),
        };
    }
    let is_wanted = |family: &SupportedModels| {
        let names = [family.architecture, family.model_type, family.models];
        names.iter().any(|name| name.to_lowercase().contains(&wanted))
    };
    let is_named = |pooler: &SupportedPoolers| pooler.architecture.to_lowercase().contains(&wanted);
    let families: Vec<_> = supported_models().into_iter().filter(is_wanted).collect();
    let poolers: Vec<_> = supported_poolers().into_iter().filter(is_named).collect();
    if families.is_empty() && poolers.is_empty() {
        output::tell(format_args!(
            "no name contains {wanted}; `playhouse models` without one lists all families"
        ));
    }
    match args.output {
        Format::Json => {
            let families = families.iter().map(|family| json!(family));
            output::show_json(&families.chain(poolers.iter().map(|pooler| json!(pooler))).collect())
        }
        Format::Text => output::show(&as_text(&families, &poolers)),
    }
}

/// Returns a line for each model: name, size, revision and folder.
fn as_table(models: &[CachedModel]) -> String {
    let width = models.iter().map(|model| model.name.len()).max().unwrap_or_default();
    let mut text = String::new();
    for CachedModel { name, revision, refs, bytes, path } in models {
        let revision = match refs.is_empty() {
            true => revision.clone(),
            false => refs.join(","),
        };
        let bytes = HumanBytes(*bytes).to_string();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name:<width$}  {bytes:>10}  {revision}  {}", path.display());
    }
    text
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
