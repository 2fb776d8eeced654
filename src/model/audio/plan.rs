//! The tower of sounds of a multimodal class, by its class.

use std::path::Path;
use std::sync::Arc;

use super::granite_config::GraniteSounds;
use super::hearing::{AudioFamily, AudioPlan};
use crate::model::config::{ConfigError, Fields};
use crate::model::families::WRAPPERS;
use crate::model::weight_loader::WeightLoader;
use crate::model::{MediaEncoder, ModelError};
use crate::model_files;

/// The files that may have the settings of the feature extractor.
pub(crate) const EXTRACTOR_FILES: [&str; 2] = ["preprocessor_config.json", "processor_config.json"];

/// The tower of sounds of a multimodal class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SoundTower {
    /// One of [`super::hearing`].
    Hearing(AudioFamily),
    /// That of Granite Speech, also in its Plus form.
    GraniteSpeech,
}

impl SoundTower {
    /// Returns the tower of a multimodal class, by the fields of its `config.json`.
    pub(crate) fn of(outer: &Fields) -> Option<Self> {
        let listed = outer.value("architectures").and_then(serde_json::Value::as_array);
        let name = listed.and_then(|names| names.first()?.as_str());
        WRAPPERS.iter().find(|wrapper| Some(wrapper.architecture) == name)?.audio
    }
}

/// A tower that `config.json` describes, before its weights are read.
#[derive(Debug, Clone)]
pub(in crate::model) enum SoundPlan {
    Hearing(Box<AudioPlan>),
    GraniteSpeech(Box<GraniteSounds>),
}

impl SoundPlan {
    /// Reads the tower of the model in the folder `model`, if its class has one. A model without
    /// the files of a feature extractor takes text alone.
    ///
    /// # Errors
    /// [`ConfigError`] if a field of the tower has no valid value.
    pub(in crate::model) fn read(
        model: &Path,
        outer: &Fields,
        text_width: usize,
    ) -> Result<Option<Self>, ConfigError> {
        let Some(kind) = SoundTower::of(outer) else { return Ok(None) };
        if !EXTRACTOR_FILES.iter().any(|file| model_files::exists(&model.join(file))) {
            tracing::info!("without the files of a feature extractor, the model takes text alone");
            return Ok(None);
        }
        Ok(Some(match kind {
            SoundTower::Hearing(family) => {
                Self::Hearing(Box::new(AudioPlan::of(family, outer, text_width)?))
            }
            SoundTower::GraniteSpeech => {
                Self::GraniteSpeech(Box::new(GraniteSounds::read(outer, text_width)?))
            }
        }))
    }

    /// Loads the tower.
    ///
    /// # Errors
    /// [`ModelError`] if a tensor is missing or has another shape, or the device rejects one.
    pub(in crate::model) fn load(
        &self,
        loader: &mut WeightLoader<'_>,
    ) -> Result<Arc<dyn MediaEncoder>, ModelError> {
        match self {
            Self::Hearing(plan) => plan.load(loader),
            Self::GraniteSpeech(sounds) => sounds.load(loader),
        }
    }
}
