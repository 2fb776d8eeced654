//! Models that hear: encoders of sounds, and decoders that attend to their states.

mod audio_tower;
mod conformer;
mod conv;
mod granite;
mod granite_config;
mod granite_layer;
mod halving;
mod hearing;
mod phi4;
mod phi4_config;
mod plan;
mod qwen3;
mod rotary_time;
mod shaw;
mod tower_config;
mod whisper;

use std::sync::Arc;

use super::registry::ModelFamily;
use super::supported::SupportedModels;

pub(crate) use granite_config::GraniteSounds;
pub(crate) use hearing::{AudioFamily, Sounds};
pub(crate) use phi4_config::Phi4Sounds;
pub(super) use plan::SoundPlan;
pub(crate) use plan::{EXTRACTOR_FILES, SoundTower};
pub(crate) use qwen3::{TIMES, num_states};

/// Returns the families of this folder by their entry in `architectures`.
pub(super) fn families() -> impl Iterator<Item = (&'static str, Arc<dyn ModelFamily>)> {
    [(whisper::ARCHITECTURE, Arc::new(whisper::Whisper) as Arc<dyn ModelFamily>)].into_iter()
}

/// Returns their entries in the list of supported models.
pub(super) fn supported() -> impl Iterator<Item = SupportedModels> {
    [SupportedModels {
        architecture: whisper::ARCHITECTURE,
        model_type: whisper::MODEL_TYPE,
        models: "Whisper",
        options: ["speech to text", "encoder and decoder", "learned positions", "layer norms"]
            .map(str::to_owned)
            .to_vec(),
    }]
    .into_iter()
}
