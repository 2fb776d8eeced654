//! From a mel spectrogram to states, and to keys and values for the decoder: HF `WhisperEncoder`.

use playhouse_kernels::recycle;

use super::config::WhisperConfig;
use crate::model::audio::audio_tower::{AudioTower, TowerConfig, TowerForm};
use crate::model::encoder_decoder::{AttentionForm, KvProjection, NORM};
use crate::model::layers::{Linear, Norm};
use crate::model::weight_loader::WeightLoader;
use crate::model::{EncoderOutput, MediaEncoder, MediaInput, ModelError};

/// The encoder, with the projections of the decoder that read its states.
#[derive(Debug)]
pub(super) struct Encoder {
    audio_tower: AudioTower,
    norm: Norm,
    for_decoder: Vec<KvProjection>,
}

impl Encoder {
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        config: &WhisperConfig,
    ) -> Result<Self, ModelError> {
        const MODULE: &str = "model.encoder";
        let WhisperConfig { hidden_size, num_mel_bins, num_frames, activation, .. } = *config;
        let sizes = TowerConfig {
            hidden_size,
            num_mel_bins,
            num_frames,
            stack: config.encoder,
            activation,
            form: TowerForm::Whisper,
        };
        let audio_tower = AudioTower::load(loader, MODULE, &sizes, Linear::load)?;
        let form = AttentionForm::of_whisper(hidden_size, config.decoder.num_heads);
        let for_decoder = (0..config.decoder.num_layers).map(|index| {
            let module = format!("model.decoder.layers.{index}.encoder_attn");
            KvProjection::load(loader, &module, &form)
        });
        Ok(Self {
            audio_tower,
            for_decoder: for_decoder.collect::<Result<_, _>>()?,
            norm: Norm::load(loader, &format!("{MODULE}.layer_norm"), hidden_size, NORM)?,
        })
    }

    fn encode_one(&self, item: &MediaInput<'_>) -> Result<EncoderOutput, String> {
        let [tensor] = &item.tensors[..] else {
            let count = item.tensors.len();
            return Err(format!("a sound is one spectrogram of f32, not {count} tensors"));
        };
        let mel = self.audio_tower.spectrogram(tensor)?;
        let (x, stream) = self.audio_tower.states(mel, self.audio_tower.num_frames());
        let (embeddings, stream) = self.norm.add_forward(x, stream);
        recycle(stream);
        let by_layer = self.for_decoder.iter().flat_map(|layer| layer.of(&embeddings)).collect();
        Ok(EncoderOutput { embeddings, by_layer })
    }
}

impl MediaEncoder for Encoder {
    fn encode(&self, items: &[MediaInput<'_>]) -> Vec<Result<EncoderOutput, String>> {
        items.iter().map(|item| self.encode_one(item)).collect()
    }

    fn is_placeholder(&self, _: u32) -> bool {
        false
    }

    fn mapped_bytes(&self) -> u64 {
        let for_decoder: u64 = self.for_decoder.iter().map(KvProjection::mapped_bytes).sum();
        self.audio_tower.mapped_bytes() + for_decoder
    }
}
