//! Guesses change no byte: outputs with each method equal those without, whatever is asked, and
//! while actors die.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bad_input;
mod bytes;
mod heads;
mod mtp;
mod recorded;
#[path = "../serving/mod.rs"]
mod serving;
mod states;
#[path = "../workload/mod.rs"]
mod workload;

use std::path::PathBuf;

use playhouse::{
    EngineConfig,
    config::{HeadMethod, NgramLookup, SpeculativeConfig, SpeculativeMethod, SuffixConfig},
};

/// Returns the repository's draft model, which guesses for the demo model.
fn draft_model() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("examples/demo-model/draft")
}

/// Returns each method that has weights for the demo model, or needs none.
fn methods() -> [SpeculativeConfig; 6] {
    let config = SpeculativeConfig::new;
    let model = draft_model();
    [
        config(SpeculativeMethod::Ngram(NgramLookup { min: 1, max: 4 }), 5),
        config(SpeculativeMethod::Suffix(SuffixConfig::default()), 8),
        config(SpeculativeMethod::DraftModel { model }, 4),
        heads::config(HeadMethod::Eagle, 4),
        heads::config(HeadMethod::Eagle3, 3),
        // The checkpoint has three guesses.
        heads::config(HeadMethod::MlpSpeculator, 5),
    ]
}

/// Lets an engine guess, or makes sure that it does not.
fn set(config: &mut EngineConfig, speculative: Option<SpeculativeConfig>) {
    config.jump_forward = Some(speculative.is_some());
    config.speculative_config = speculative;
}
