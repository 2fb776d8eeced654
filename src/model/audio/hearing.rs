//! Towers of sounds whose states take the places of embeddings: Qwen2-Audio and Voxtral.
//!
//! | tensor | shape |
//! |---|---|
//! | spectrograms of an item | `[num_mel_bins, 2 * num_frames]` each; Qwen2-Audio has one |
//! | second tensor of Qwen2-Audio, without elements | `[frames]`: those that hold sound |
//! | embeddings of Qwen2-Audio | `[frames / 2, text_hidden_size]`: the means of pairs |
//! | embeddings of Voxtral | `[frames / merge, text_hidden_size]`: neighbours side by side |

use std::path::Path;
use std::sync::Arc;

use burn::tensor::Tensor;
use playhouse_kernels::{Activation, activate, add};

use super::audio_tower::{AudioTower, TowerConfig};
use crate::model::config::{ActivationName, ConfigError, Fields};
use crate::model::encoder_decoder::{NORM, StackConfig, activation};
use crate::model::families::WRAPPERS;
use crate::model::layers::{Linear, Norm, Part, plain_activation};
use crate::model::weight_loader::WeightLoader;
use crate::model::{
    Adapters, EncoderOutput, MediaEncoder, MediaInput, MediaTensorView, ModelError,
};
use crate::model_files;

/// The places of towers and projectors in checkpoints of different versions of transformers.
const TOWERS: [&str; 2] = ["audio_tower", "model.audio_tower"];
const PROJECTORS: [&str; 2] = ["multi_modal_projector", "model.multi_modal_projector"];

/// The files that may have the settings of the feature extractor.
pub(crate) const EXTRACTOR_FILES: [&str; 2] = ["preprocessor_config.json", "processor_config.json"];

/// The tower of sounds of a multimodal class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AudioFamily {
    /// Whisper's encoder. Two states become one embedding: their mean.
    Qwen2Audio,
    /// Whisper's encoder. Several states become one embedding, side by side.
    Voxtral,
}

impl AudioFamily {
    /// Returns the tower of a multimodal class, by the fields of its `config.json`.
    pub(crate) fn of(outer: &Fields) -> Option<Self> {
        let listed = outer.value("architectures").and_then(serde_json::Value::as_array);
        let name = listed.and_then(|names| names.first()?.as_str());
        WRAPPERS.iter().find(|wrapper| Some(wrapper.architecture) == name)?.audio
    }
}

/// The facts about sounds that the processor of a model needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sounds {
    pub(crate) family: AudioFamily,
    /// The token in the places of embeddings.
    pub(crate) placeholder: u32,
    pub(crate) num_mel_bins: usize,
    /// States of a spectrogram, each of which has two windows.
    pub(crate) num_frames: usize,
    /// States that become one embedding.
    pub(crate) merge: usize,
}

impl Sounds {
    /// Reads the facts of a model whose `config.json` has the fields `outer`.
    ///
    /// # Errors
    /// [`ConfigError`] if a field has no valid value.
    pub(crate) fn read(family: AudioFamily, outer: &Fields) -> Result<Self, ConfigError> {
        let plan = AudioPlan::of(family, outer, 1)?;
        let TowerConfig { num_mel_bins, num_frames, .. } = plan.audio_tower;
        let AudioPlan { placeholder, merge, .. } = plan;
        Ok(Self { family, placeholder, num_mel_bins, num_frames, merge })
    }
}

/// A tower that `config.json` describes, before its weights are read.
#[derive(Debug, Clone)]
pub(crate) struct AudioPlan {
    family: AudioFamily,
    audio_tower: TowerConfig,
    placeholder: u32,
    merge: usize,
    activation: Activation,
    /// The width of the text model.
    outputs: usize,
}

impl AudioPlan {
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
        let Some(family) = AudioFamily::of(outer) else { return Ok(None) };
        if !EXTRACTOR_FILES.iter().any(|file| model_files::exists(&model.join(file))) {
            tracing::info!("without the files of a feature extractor, the model takes text alone");
            return Ok(None);
        }
        Self::of(family, outer, text_width).map(Some)
    }

    fn of(family: AudioFamily, outer: &Fields, outputs: usize) -> Result<Self, ConfigError> {
        const CONFIG: &str = "audio_config";
        const MODEL_TYPE: &str = "model_type";
        let fields = outer.nested(CONFIG)?.unwrap_or_else(|| Fields::empty_in(outer));
        let expected = match family {
            AudioFamily::Qwen2Audio => "qwen2_audio_encoder",
            AudioFamily::Voxtral => "voxtral_encoder",
        };
        if fields.text(MODEL_TYPE)?.is_some_and(|name| name != expected) {
            return Err(fields.invalid(MODEL_TYPE, &format!("\"{expected}\"")));
        }
        let audio_tower = tower_config(&fields)?;
        let width = audio_tower.hidden_size;
        let merge = match family {
            AudioFamily::Qwen2Audio => 2,
            AudioFamily::Voxtral => audio_tower.stack.intermediate_size / width,
        };
        if family == AudioFamily::Voxtral
            && (audio_tower.stack.intermediate_size != merge * width
                || merge == 0
                || !audio_tower.num_frames.is_multiple_of(merge))
        {
            let expected = format!("a multiple of {width} that divides the states of a sound");
            return Err(fields.invalid("intermediate_size", &expected));
        }
        let token = |field: &str| {
            let id = outer.count(field)?;
            id.map(|id| u32::try_from(id).map_err(|_| outer.invalid(field, "a token id")))
                .transpose()
        };
        let default = match family {
            AudioFamily::Qwen2Audio => 151_646,
            AudioFamily::Voxtral => 24,
        };
        let placeholder = match token("audio_token_index")? {
            Some(token) => token,
            None => token("audio_token_id")?.unwrap_or(default),
        };
        const ACT: &str = "projector_hidden_act";
        let name = ActivationName::from_name(outer.text(ACT)?.unwrap_or("gelu"));
        let activation = name.and_then(plain_activation);
        let activation =
            activation.ok_or_else(|| outer.invalid(ACT, "an activation of transformers"))?;
        Ok(Self { family, audio_tower, placeholder, merge, activation, outputs })
    }

    /// Loads the tower.
    ///
    /// # Errors
    /// [`ModelError`] if a tensor is missing or has another shape, or the device rejects one.
    pub(in crate::model) fn load(
        &self,
        loader: &mut WeightLoader<'_>,
    ) -> Result<Arc<dyn MediaEncoder>, ModelError> {
        let place = |modules: [&'static str; 2], name: &str| {
            let has = |module: &&str| loader.has(&format!("{module}.{name}.weight"));
            modules.into_iter().find(has).unwrap_or(modules[0])
        };
        let module = place(TOWERS, "conv1");
        let (names, has_bias): (&[&str], bool) = match self.family {
            AudioFamily::Qwen2Audio => (&["linear"], true),
            AudioFamily::Voxtral => (&["linear_1", "linear_2"], false),
        };
        let projector = place(PROJECTORS, names[0]);
        let hidden = self.audio_tower.hidden_size;
        let audio_tower = AudioTower::load(loader, module, &self.audio_tower, Linear::of_media)?;
        let norm = Norm::load(loader, &format!("{module}.layer_norm"), hidden, NORM)?;
        let mut inputs = match self.family {
            AudioFamily::Qwen2Audio => hidden,
            AudioFamily::Voxtral => hidden * self.merge,
        };
        let mut layers = Vec::new();
        for name in names {
            let part = [Part::new(format!("{projector}.{name}"), self.outputs)];
            layers.push(Linear::of_media(loader, &part, inputs, has_bias)?);
            inputs = self.outputs;
        }
        Ok(Arc::new(HearingEncoder { audio_tower, norm, projector: layers, plan: self.clone() }))
    }
}

/// Reads the sizes of a tower, whose fields have the names of Whisper or of other classes.
fn tower_config(fields: &Fields) -> Result<TowerConfig, ConfigError> {
    let size = |name: &str, other: &str, default: usize| {
        Ok::<_, ConfigError>(fields.size(name)?.or(fields.size(other)?).unwrap_or(default))
    };
    const HEADS: [&str; 2] = ["encoder_attention_heads", "num_attention_heads"];
    let hidden_size = size("d_model", "hidden_size", 1_280)?;
    let num_heads = size(HEADS[0], HEADS[1], 20)?;
    if !hidden_size.is_multiple_of(2 * num_heads) {
        let field = if fields.value(HEADS[0]).is_some() { HEADS[0] } else { HEADS[1] };
        let expected = format!("a number of heads of even width: a divisor of {hidden_size}/2");
        return Err(fields.invalid(field, &expected));
    }
    Ok(TowerConfig {
        hidden_size,
        num_mel_bins: fields.size("num_mel_bins")?.unwrap_or(128),
        num_frames: fields.size("max_source_positions")?.unwrap_or(1_500),
        stack: StackConfig {
            num_layers: size("encoder_layers", "num_hidden_layers", 32)?,
            num_heads,
            intermediate_size: size("encoder_ffn_dim", "intermediate_size", 5_120)?,
        },
        activation: activation(fields)?,
    })
}

/// A tower with its projector.
#[derive(Debug)]
struct HearingEncoder {
    audio_tower: AudioTower,
    norm: Norm,
    projector: Vec<Linear>,
    plan: AudioPlan,
}

impl HearingEncoder {
    fn encode_one(&self, item: &MediaInput<'_>) -> Result<EncoderOutput, String> {
        let features = match self.plan.family {
            AudioFamily::Qwen2Audio => self.means(&item.tensors)?,
            AudioFamily::Voxtral => self.side_by_side(&item.tensors)?,
        };
        let embeddings = self.projected(features);
        let (found, expected) = (embeddings.dims()[0], item.num_embeds);
        match found == expected {
            true => Ok(EncoderOutput { embeddings, by_layer: Vec::new() }),
            false => Err(format!("the item has {found} embeddings, and {expected} placeholders")),
        }
    }

    /// Returns the norms of the means of pairs of states: HF `Qwen2AudioEncoder`.
    fn means(&self, tensors: &[MediaTensorView<'_>]) -> Result<Tensor<2>, String> {
        let [mel, MediaTensorView { shape: [frames], .. }] = tensors else {
            return Err("a sound is a spectrogram and its number of frames".to_owned());
        };
        let most = self.audio_tower.num_frames();
        if !(2..=most).contains(frames) {
            return Err(format!("a sound of {frames} frames; expected 2 to {most}"));
        }
        let (x, stream) = self.audio_tower.states(self.audio_tower.spectrogram(mel)?, *frames);
        let states = match stream {
            Some(stream) => add(x, stream),
            None => x,
        };
        let (pairs, width) = (frames / 2, states.dims()[1]);
        let states = states.slice([0..2 * pairs, 0..width]).reshape([pairs, 2, width]);
        Ok(self.norm.forward(states.mean_dim(1).reshape([pairs, width])))
    }

    /// Returns neighbouring states of all spectrograms side by side: HF
    /// `VoxtralModel.get_audio_features`.
    fn side_by_side(&self, tensors: &[MediaTensorView<'_>]) -> Result<Tensor<2>, String> {
        let (frames, merge) = (self.audio_tower.num_frames(), self.plan.merge);
        let of_one = |mel: &MediaTensorView<'_>| {
            let (x, stream) = self.audio_tower.states(self.audio_tower.spectrogram(mel)?, frames);
            let (states, _) = self.norm.add_forward(x, stream);
            let width = states.dims()[1];
            Ok::<_, String>(states.reshape([frames / merge, merge * width]))
        };
        let all: Vec<Tensor<2>> = tensors.iter().map(of_one).collect::<Result<_, _>>()?;
        match all.is_empty() {
            true => Err("the item has no spectrogram".to_owned()),
            false => Ok(Tensor::cat(all, 0)),
        }
    }

    fn projected(&self, features: Tensor<2>) -> Tensor<2> {
        let mut layers = self.projector.iter();
        let first = layers.next().map(|layer| layer.forward(features.clone(), Adapters::none()));
        layers.fold(first.unwrap_or(features), |x, layer| {
            layer.forward(activate(x, self.plan.activation), Adapters::none())
        })
    }
}

impl MediaEncoder for HearingEncoder {
    fn encode(&self, items: &[MediaInput<'_>]) -> Vec<Result<EncoderOutput, String>> {
        items.iter().map(|item| self.encode_one(item)).collect()
    }

    fn is_placeholder(&self, token_id: u32) -> bool {
        token_id == self.plan.placeholder
    }

    fn mapped_bytes(&self) -> u64 {
        self.audio_tower.mapped_bytes()
            + self.projector.iter().map(Linear::mapped_bytes).sum::<u64>()
    }
}
