//! `playhouse pull`: fetches a model by name into the cache.

use clap::Args;
use serde_json::json;

use super::{
    CliError,
    engine::with_bar,
    flags::HubFlags,
    output::{self, Format},
};
use crate::{
    config::{EngineConfig, Key, Origin, layer::Entry},
    hub,
};

const EXAMPLES: &str = "\
Examples:
  playhouse pull Qwen/Qwen3-0.6B
  playhouse pull Qwen/Qwen3-0.6B@main --download-dir /var/cache/models
  playhouse pull unsloth/Qwen3-0.6B-GGUF:Q4_K_M
  HF_TOKEN=hf_... playhouse pull meta-llama/Llama-3.2-1B-Instruct

A command that is interrupted continues where it was when it is run again.";

/// Fetch a model by name into the cache, or check and update the one there.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PullArgs {
    /// The name: org/name, org/name@revision, or for a GGUF file org/name:file.gguf
    #[arg(value_name = "MODEL")]
    model: String,
    /// How to write the result
    #[arg(long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    hub: HubFlags,
}

impl PullArgs {
    /// Returns the settings given.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        let mut entries = self.hub.entries();
        entries.push(Entry {
            key: Key::new("engine", "model"),
            value: self.model.clone().into(),
            origin: Origin::Flag("MODEL".to_owned()),
        });
        entries
    }
}

/// Fetches the model and prints its folder or file.
pub(crate) fn run(args: &PullArgs, config: &EngineConfig) -> Result<(), CliError> {
    let path = with_bar(|progress| hub::pull(config, progress))?.ok_or_else(|| {
        let model = &args.model;
        CliError::Usage(format!(
            "MODEL = {model:?} is no name; expected org/name, org/name@revision or \
             org/name:file.gguf"
        ))
    })?;
    match args.output {
        Format::Text => output::show(&format!("{}\n", path.display())),
        Format::Json => output::show_json(&json!({ "model": args.model, "path": path })),
    }
}
