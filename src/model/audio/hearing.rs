//! Towers of sounds whose states take the places of embeddings: Qwen2-Audio, Audio Flamingo 3,
//! Music Flamingo, Voxtral, GLM-ASR and Qwen2.5-Omni. That of Qwen3-ASR and Qwen3-Omni is in
//! [`super::qwen3`].
//!
//! | tensor | shape |
//! |---|---|
//! | spectrograms of an item | `[num_mel_bins, 2 * num_frames]` each; Qwen2-Audio has one |
//! | last tensor, without elements | `[frames]`: those of the last spectrogram that hold sound |
//! | embeddings | `[frames / merge, text_hidden_size]` |
//!
//! The embeddings of Qwen2-Audio, Audio Flamingo 3 and Qwen2.5-Omni are of the means of pairs of
//! frames. Those of the others are of neighbours side by side. Voxtral has no last tensor, and
//! neither has Qwen2.5-Omni: its last spectrogram is as long as the sound.

use std::sync::Arc;

use burn::tensor::Tensor;
use playhouse_kernels::{Activation, activate, add};

use super::audio_tower::{AudioTower, TowerConfig};
use super::qwen3::{Modules, PartConfig, Qwen3Hearing};
use super::rotary_time::RotaryTime;
use super::tower_config::{WINDOW, tower_config};
use crate::model::config::{ActivationName, ConfigError, Fields};
use crate::model::encoder_decoder::NORM;
use crate::model::layers::{Linear, Norm, Part, plain_activation};
use crate::model::weight_loader::WeightLoader;
use crate::model::{
    Adapters, EncoderOutput, MediaEncoder, MediaInput, MediaTensorView, ModelError,
};

/// The places of towers and projectors in checkpoints of different versions of transformers.
const TOWERS: [&str; 3] = ["audio_tower", "model.audio_tower", "thinker.audio_tower"];
const PROJECTORS: [&str; 2] = ["multi_modal_projector", "model.multi_modal_projector"];

/// The tower of sounds of a class whose processor is that of Whisper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AudioFamily {
    /// Whisper's encoder. Two states become one embedding: their mean.
    Qwen2Audio,
    /// Whisper's encoder. Several states become one embedding, side by side.
    Voxtral,
    /// Whisper's encoder. Two states become one embedding: their mean, behind two layers.
    AudioFlamingo3,
    /// The same, and states turn with their times.
    MusicFlamingo,
    /// An encoder with rotary positions. Four states become one embedding, side by side.
    GlmAsr,
    /// Whisper's encoder of short parts of a sound. Two states become one embedding: their mean.
    Qwen2_5Omni,
    /// Convolutions over times and bins, and layers that see some seconds.
    Qwen3Asr,
    /// The same, with other names.
    Qwen3Omni,
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
    /// The tokens before and behind embeddings, which the text of a sound's place lacks.
    pub(crate) marks: Option<[u32; 2]>,
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
        let marks = match family {
            AudioFamily::MusicFlamingo => Some([
                token(outer, "audio_bos_token_id")?.unwrap_or(151_670),
                token(outer, "audio_eos_token_id")?.unwrap_or(151_671),
            ]),
            _ => None,
        };
        Ok(Self { family, placeholder, num_mel_bins, num_frames, merge, marks })
    }
}

/// A tower that `config.json` describes, before its weights are read.
#[derive(Debug, Clone)]
pub(crate) struct AudioPlan {
    family: AudioFamily,
    audio_tower: TowerConfig,
    placeholder: u32,
    merge: usize,
    /// Those of Qwen3-ASR and Qwen3-Omni.
    parts: PartConfig,
    /// That of Music Flamingo.
    times: Option<RotaryTime>,
    activation: Activation,
    /// Whether the layers of the projector have biases.
    has_bias: bool,
    /// The width of the text model.
    outputs: usize,
}

impl AudioPlan {
    /// Reads the tower of a model whose `config.json` has the fields `outer`. `outputs` is the
    /// width of its text model.
    ///
    /// # Errors
    /// [`ConfigError`] if a field of the tower has no valid value.
    pub(super) fn of(
        family: AudioFamily,
        outer: &Fields,
        outputs: usize,
    ) -> Result<Self, ConfigError> {
        const CONFIG: &str = "audio_config";
        const MODEL_TYPE: &str = "model_type";
        let fields = outer.nested(CONFIG)?.unwrap_or_else(|| Fields::empty_in(outer));
        let expected = match family {
            AudioFamily::Qwen2Audio => "qwen2_audio_encoder",
            AudioFamily::Voxtral => "voxtral_encoder",
            AudioFamily::AudioFlamingo3 | AudioFamily::MusicFlamingo => "audioflamingo3_encoder",
            AudioFamily::GlmAsr => "glmasr_encoder",
            AudioFamily::Qwen2_5Omni => "qwen2_5_omni_audio_encoder",
            AudioFamily::Qwen3Asr => "qwen3_asr_encoder",
            AudioFamily::Qwen3Omni => "qwen3_omni_moe_audio_encoder",
        };
        let published = match family {
            AudioFamily::Qwen3Asr => "qwen3_asr_audio_encoder",
            AudioFamily::MusicFlamingo => "musicflamingo_encoder",
            _ => expected,
        };
        let is_of_family = |name: &str| name == expected || name == published;
        if fields.text(MODEL_TYPE)?.is_some_and(|name| !is_of_family(name)) {
            return Err(fields.invalid(MODEL_TYPE, &format!("\"{expected}\"")));
        }
        let audio_tower = tower_config(family, &fields)?;
        let merge = merge(family, &fields, &audio_tower)?;
        let default = match family {
            AudioFamily::Qwen2Audio | AudioFamily::Qwen2_5Omni | AudioFamily::Qwen3Omni => 151_646,
            AudioFamily::Voxtral => 24,
            AudioFamily::AudioFlamingo3 | AudioFamily::MusicFlamingo => 151_669,
            AudioFamily::GlmAsr => 59_260,
            AudioFamily::Qwen3Asr => 151_676,
        };
        let placeholder = match token(outer, "audio_token_index")? {
            Some(token) => token,
            None => token(outer, "audio_token_id")?.unwrap_or(default),
        };
        const ACT: &str = "projector_hidden_act";
        let name = ActivationName::from_name(outer.text(ACT)?.unwrap_or("gelu"));
        let activation = name.and_then(plain_activation);
        let activation =
            activation.ok_or_else(|| outer.invalid(ACT, "an activation of transformers"))?;
        let has_bias = match family {
            AudioFamily::Qwen2Audio
            | AudioFamily::GlmAsr
            | AudioFamily::Qwen2_5Omni
            | AudioFamily::Qwen3Asr
            | AudioFamily::Qwen3Omni => true,
            AudioFamily::Voxtral => false,
            AudioFamily::AudioFlamingo3 | AudioFamily::MusicFlamingo => {
                outer.flag_or("projector_bias", true)?
            }
        };
        let parts = match family {
            AudioFamily::Qwen3Asr => PartConfig::read(&fields, true)?,
            AudioFamily::Qwen3Omni => PartConfig::read(&fields, false)?,
            _ => PartConfig::default(),
        };
        let times = match family {
            AudioFamily::MusicFlamingo => {
                let TowerConfig { hidden_size, num_frames, .. } = audio_tower;
                Some(RotaryTime::read(outer, hidden_size, num_frames / merge)?)
            }
            _ => None,
        };
        Ok(Self {
            family,
            audio_tower,
            placeholder,
            merge,
            parts,
            times,
            activation,
            has_bias,
            outputs,
        })
    }

    /// Loads the tower.
    ///
    /// # Errors
    /// [`ModelError`] if a tensor is missing or has another shape, or the device rejects one.
    pub(in crate::model) fn load(
        &self,
        loader: &mut WeightLoader<'_>,
    ) -> Result<Arc<dyn MediaEncoder>, ModelError> {
        let place = |modules: &[&'static str], name: &str| {
            let has = |module: &&&str| loader.has(&format!("{module}.{name}.weight"));
            modules.iter().find(has).or(modules.first()).copied().unwrap_or_default()
        };
        let module = place(&TOWERS, "conv1");
        let two = |width: usize| vec![("linear_1", width), ("linear_2", self.outputs)];
        let (parts, joining) = match self.family {
            AudioFamily::Qwen2Audio => (vec![("linear", self.outputs)], Joining::Means),
            AudioFamily::AudioFlamingo3 | AudioFamily::MusicFlamingo => {
                (two(self.outputs), Joining::Means)
            }
            AudioFamily::Qwen2_5Omni => (vec![("proj", self.outputs)], Joining::MeansInWindows),
            AudioFamily::Voxtral => (two(self.outputs), Joining::WholeSideBySide),
            AudioFamily::GlmAsr => (two(2 * self.outputs), Joining::SideBySide),
            AudioFamily::Qwen3Asr | AudioFamily::Qwen3Omni => {
                let encoder = place(&TOWERS, "conv_out");
                let within = ["proj1", "proj2"];
                // Qwen3-ASR as published has the projector in the tower, too.
                let modules = match loader.has(&format!("{encoder}.{}.weight", within[0])) {
                    true => Modules { encoder, projector: encoder, layers: within },
                    false => Modules {
                        encoder,
                        projector: place(&PROJECTORS, "linear_1"),
                        layers: ["linear_1", "linear_2"],
                    },
                };
                return self.load_qwen3(loader, modules);
            }
        };
        let projector = match joining {
            Joining::MeansInWindows => module,
            _ => place(&PROJECTORS, parts[0].0),
        };
        let hidden = self.audio_tower.hidden_size;
        let audio_tower = AudioTower::load(loader, module, &self.audio_tower, Linear::of_media)?;
        let last_norm = format!("{module}.{}", self.audio_tower.form.last_norm());
        let norm = Norm::load(loader, &last_norm, hidden, NORM)?;
        let mut inputs = match joining {
            Joining::Means | Joining::MeansInWindows => hidden,
            Joining::SideBySide | Joining::WholeSideBySide => hidden * self.merge,
        };
        let mut layers = Vec::new();
        for (name, width) in parts {
            let part = [Part::new(format!("{projector}.{name}"), width)];
            layers.push(Linear::of_media(loader, &part, inputs, self.has_bias)?);
            inputs = width;
        }
        let (projector, plan) = (layers, self.clone());
        Ok(Arc::new(HearingEncoder { audio_tower, norm, projector, joining, plan }))
    }

    fn load_qwen3(
        &self,
        loader: &mut WeightLoader<'_>,
        modules: Modules<'_>,
    ) -> Result<Arc<dyn MediaEncoder>, ModelError> {
        let Self { audio_tower, parts, outputs, placeholder, .. } = self;
        let hearing =
            Qwen3Hearing::load(loader, modules, audio_tower, *parts, *outputs, *placeholder)?;
        Ok(Arc::new(hearing))
    }
}

/// Returns the id of a token in `config.json`.
fn token(outer: &Fields, field: &str) -> Result<Option<u32>, ConfigError> {
    let id = outer.count(field)?;
    id.map(|id| u32::try_from(id).map_err(|_| outer.invalid(field, "a token id"))).transpose()
}

/// Returns the number of states that become one embedding.
fn merge(
    family: AudioFamily,
    fields: &Fields,
    audio_tower: &TowerConfig,
) -> Result<usize, ConfigError> {
    /// HF `GlmAsrProcessor` counts by this number, whatever the config says.
    const GLM_ASR: usize = 4;
    let TowerConfig { hidden_size: width, num_frames, ref stack, .. } = *audio_tower;
    match family {
        AudioFamily::Qwen2Audio => Ok(2),
        AudioFamily::AudioFlamingo3 | AudioFamily::MusicFlamingo | AudioFamily::Qwen2_5Omni
            if num_frames.is_multiple_of(2) =>
        {
            Ok(2)
        }
        AudioFamily::AudioFlamingo3 | AudioFamily::MusicFlamingo => {
            Err(fields.invalid("max_source_positions", "an even number"))
        }
        AudioFamily::Qwen2_5Omni => Err(fields.invalid(WINDOW, "an even number")),
        AudioFamily::Qwen3Asr | AudioFamily::Qwen3Omni => Ok(1),
        AudioFamily::Voxtral | AudioFamily::GlmAsr => {
            let merge = stack.intermediate_size / width;
            let is_whole = stack.intermediate_size == merge * width && merge > 0;
            let is_known = family == AudioFamily::Voxtral || merge == GLM_ASR;
            if is_whole && is_known && num_frames.is_multiple_of(merge) {
                return Ok(merge);
            }
            let expected = match family {
                AudioFamily::GlmAsr => format!("{}, and a multiple of 4 frames", GLM_ASR * width),
                _ => format!("a multiple of {width} that divides the states of a sound"),
            };
            Err(fields.invalid("intermediate_size", &expected))
        }
    }
}

/// A tower with its projector.
#[derive(Debug)]
struct HearingEncoder {
    audio_tower: AudioTower,
    norm: Norm,
    projector: Vec<Linear>,
    joining: Joining,
    plan: AudioPlan,
}

/// The embeddings that are made of states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Joining {
    /// Means of pairs.
    Means,
    /// The same, of short parts of a sound.
    MeansInWindows,
    /// Neighbours side by side.
    SideBySide,
    /// The same, also of silence behind the sound.
    WholeSideBySide,
}

impl HearingEncoder {
    fn encode_one(&self, item: &MediaInput<'_>) -> Result<EncoderOutput, String> {
        let whole = self.audio_tower.num_frames();
        let features = match self.joining {
            Joining::Means => self.means(&self.parts(&item.tensors)?)?,
            Joining::MeansInWindows => self.means(&self.in_windows(&item.tensors)?)?,
            Joining::SideBySide => self.side_by_side(&self.parts(&item.tensors)?)?,
            Joining::WholeSideBySide => {
                let parts: Vec<_> = item.tensors.iter().map(|mel| (mel, whole)).collect();
                self.side_by_side(&parts)?
            }
        };
        let features = match &self.plan.times {
            Some(times) => times.rotated(features, whole / self.plan.merge),
            None => features,
        };
        let embeddings = self.projected(features);
        let (found, expected) = (embeddings.dims()[0], item.num_embeds);
        match found == expected {
            true => Ok(EncoderOutput { embeddings, by_layer: Vec::new() }),
            false => Err(format!("the item has {found} embeddings, and {expected} placeholders")),
        }
    }

    /// Returns the spectrograms of an item, each with its number of frames that hold sound.
    fn parts<'t, 'v>(
        &self,
        tensors: &'t [MediaTensorView<'v>],
    ) -> Result<Vec<(&'t MediaTensorView<'v>, usize)>, String> {
        let (mels, last) = match tensors {
            [mels @ .., MediaTensorView { shape: [last], .. }] if !mels.is_empty() => (mels, *last),
            _ => return Err("a sound is a spectrogram and its number of frames".to_owned()),
        };
        let whole = self.audio_tower.num_frames();
        let least = if mels.len() == 1 { self.plan.merge } else { 0 };
        if !(least..=whole).contains(&last) {
            return Err(format!("a sound of {last} frames; expected {least} to {whole}"));
        }
        let frames = |index: usize| if index + 1 < mels.len() { whole } else { last };
        Ok(mels.iter().enumerate().map(|(index, mel)| (mel, frames(index))).collect())
    }

    /// Returns the spectrograms of an item, each with its number of frames. All but the last are
    /// whole, because frames of two of them are no pair.
    fn in_windows<'t, 'v>(
        &self,
        tensors: &'t [MediaTensorView<'v>],
    ) -> Result<Vec<(&'t MediaTensorView<'v>, usize)>, String> {
        let whole = self.audio_tower.num_frames();
        let frames = |(index, mel): (usize, &'t MediaTensorView<'v>)| match *mel.shape {
            [_, times] if index + 1 == tensors.len() || times == 2 * whole => {
                Ok((mel, times.div_ceil(2)))
            }
            _ => Err(format!("a part of a sound of {:?}; expected {} times", mel.shape, 2 * whole)),
        };
        tensors.iter().enumerate().map(frames).collect()
    }

    /// Returns the norms of the means of pairs of states: HF `Qwen2AudioEncoder`,
    /// `AudioFlamingo3Encoder` and `Qwen2_5OmniAudioEncoder`.
    fn means(&self, parts: &[(&MediaTensorView<'_>, usize)]) -> Result<Tensor<2>, String> {
        let of_one = |(mel, frames): &(&MediaTensorView<'_>, usize)| {
            let (x, stream) = self.audio_tower.states(self.audio_tower.spectrogram(mel)?, *frames);
            let states = match stream {
                Some(stream) => add(x, stream),
                None => x,
            };
            let (pairs, width) = (frames / 2, states.dims()[1]);
            let states = states.slice([0..2 * pairs, 0..width]).reshape([pairs, 2, width]);
            Ok::<_, String>(self.norm.forward(states.mean_dim(1).reshape([pairs, width])))
        };
        self.joined(parts, of_one)
    }

    /// Returns neighbouring states of all spectrograms side by side: HF
    /// `VoxtralModel.get_audio_features`, and those of GLM-ASR. Each frame of a spectrogram sees
    /// all others.
    fn side_by_side(&self, parts: &[(&MediaTensorView<'_>, usize)]) -> Result<Tensor<2>, String> {
        let (whole, merge) = (self.audio_tower.num_frames(), self.plan.merge);
        let of_one = |(mel, frames): &(&MediaTensorView<'_>, usize)| {
            let (x, stream) = self.audio_tower.states(self.audio_tower.spectrogram(mel)?, whole);
            let (states, _) = self.norm.add_forward(x, stream);
            let width = merge * states.dims()[1];
            let states = states.reshape([whole / merge, width]);
            Ok::<_, String>(states.slice([0..frames / merge, 0..width]))
        };
        self.joined(parts, of_one)
    }

    /// Returns the features of all spectrograms with an embedding, one after the other.
    fn joined<'t, 'v>(
        &self,
        parts: &[(&'t MediaTensorView<'v>, usize)],
        of_one: impl Fn(&(&'t MediaTensorView<'v>, usize)) -> Result<Tensor<2>, String>,
    ) -> Result<Tensor<2>, String> {
        let heard = parts.iter().filter(|(_, frames)| *frames >= self.plan.merge);
        let all: Vec<Tensor<2>> = heard.map(of_one).collect::<Result<_, _>>()?;
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
