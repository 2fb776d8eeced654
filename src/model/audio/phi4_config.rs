//! The tower of sounds of Phi-4-multimodal, as `config.json` describes it: HF
//! `Phi4MultimodalAudioConfig`, or the objects `audio_processor` and `embd_layer` of the authors'
//! code.

use playhouse_kernels::Activation;

use crate::model::config::{ActivationName, ConfigError, Fields};
use crate::model::layers::plain_activation;

/// The states that attend to each other: HF `Phi4MultimodalAudioModel.forward`.
pub(super) const PIECE: usize = 500;

/// The tower of sounds of Phi-4-multimodal with its projectors.
#[derive(Debug, Clone)]
pub(crate) struct Phi4Sounds {
    pub(super) hidden_size: usize,
    pub(super) intermediate_size: usize,
    pub(super) num_layers: usize,
    pub(super) num_heads: usize,
    /// The activation of the MLPs.
    pub(super) activation: Activation,
    /// That of the gates of convolutions, and the one after a convolution.
    pub(super) glu_activation: Activation,
    pub(super) conv_activation: Activation,
    /// The times that a convolution of a layer sees.
    pub(super) kernel_size: usize,
    /// The channels of the convolutions before the layers, and their activation.
    pub(super) channels: usize,
    pub(super) first_activation: Activation,
    /// The convolutions that halve times and bins.
    pub(super) num_halvings: usize,
    /// The distances with a bias of their own, to each side, or in both directions together.
    pub(super) max_distance: usize,
    pub(super) is_symmetric: bool,
    /// The width of the text model.
    pub(super) outputs: usize,
    /// Numbers of a spectrogram at a time.
    pub(crate) num_mel_bins: usize,
    /// The token in the places of embeddings.
    pub(crate) placeholder: u32,
}

impl Phi4Sounds {
    /// Reads the tower of a model whose `config.json` has the fields `outer`.
    ///
    /// # Errors
    /// [`ConfigError`] if a field has no valid value.
    pub(crate) fn read(outer: &Fields, outputs: usize) -> Result<Self, ConfigError> {
        const HEADS: &str = "num_attention_heads";
        const REDUCTION: &str = "time_reduction";
        const DISTANCE: &str = "bias_max_distance";
        const SYMMETRIC: &str = "bias_symmetric";
        let fields = &audio_fields(outer)?;
        let size = |field: &str, default: usize| {
            Ok::<usize, ConfigError>(fields.size(field)?.unwrap_or(default))
        };
        let hidden_size = size("hidden_size", 1_024)?;
        let num_heads = size(HEADS, 16)?;
        if !hidden_size.is_multiple_of(num_heads) {
            return Err(fields.invalid(HEADS, &format!("a divisor of {hidden_size}")));
        }
        for field in ["ext_pw_out_channel", "depthwise_separable_out_channel"] {
            if size(field, 1_024)? != hidden_size {
                return Err(fields.invalid(field, &format!("{hidden_size}, as hidden_size")));
            }
        }
        for field in ["depthwise_multiplier", "downsample_rate"] {
            if size(field, 1)? != 1 {
                return Err(fields.invalid(field, "1"));
            }
        }
        // Without chunks, every state sees all others.
        if fields.integer("chunk_size")?.unwrap_or(-1) >= 0 {
            return Err(fields.invalid("chunk_size", "-1"));
        }
        let reduction = size(REDUCTION, 8)?;
        if !reduction.is_power_of_two() || reduction < 2 {
            return Err(fields.invalid(REDUCTION, "a power of 2, from 2 on"));
        }
        let max_distance = size(DISTANCE, 1_000)?;
        let is_symmetric = fields.flag_or(SYMMETRIC, false)?;
        if is_symmetric && max_distance < PIECE {
            return Err(fields.invalid(DISTANCE, &format!("at least {PIECE}, as {SYMMETRIC}")));
        }
        let token = fields.count("audio_token_id")?.unwrap_or(200_011);
        Ok(Self {
            hidden_size,
            intermediate_size: size("intermediate_size", 1_536)?,
            num_layers: size("num_blocks", 24)?,
            num_heads,
            activation: activation(fields, "activation", "swish")?,
            glu_activation: activation(fields, "conv_glu_type", "swish")?,
            conv_activation: activation(fields, "conv_activation", "swish")?,
            kernel_size: size("kernel_size", 3)?,
            channels: size("nemo_conv_channels", 1_024)?,
            first_activation: activation(fields, "nemo_activation", "relu")?,
            num_halvings: reduction.trailing_zeros() as usize,
            max_distance,
            is_symmetric,
            outputs,
            num_mel_bins: size("input_size", 80)?,
            placeholder: u32::try_from(token)
                .map_err(|_| fields.invalid("audio_token_id", "a token id"))?,
        })
    }

    /// Returns the times of a spectrogram that become one embedding.
    pub(crate) fn reduction(&self) -> usize {
        1 << self.num_halvings
    }

    /// Returns the embeddings of a spectrogram of `times`.
    pub(crate) fn num_embeds(&self, times: usize) -> usize {
        times.div_ceil(self.reduction())
    }

    /// Returns the place in the table of biases for a distance between query and key.
    pub(super) fn bias_place(&self, distance: i64) -> usize {
        let most = self.max_distance as i64;
        let distance = distance.clamp(-most, most - 1);
        match self.is_symmetric {
            true => distance.unsigned_abs().min(most as u64 - 1) as usize,
            false => (distance + most) as usize,
        }
    }

    /// Returns the rows of the table of biases.
    pub(super) fn num_biases(&self) -> usize {
        if self.is_symmetric { self.max_distance } else { 2 * self.max_distance }
    }
}

/// Returns the activation that `field` names.
fn activation(fields: &Fields, field: &str, default: &str) -> Result<Activation, ConfigError> {
    let name = ActivationName::from_name(fields.text(field)?.unwrap_or(default));
    let found = name.and_then(plain_activation);
    found.ok_or_else(|| fields.invalid(field, "an activation of transformers without weights"))
}

/// Returns the fields of the tower under the names of transformers.
fn audio_fields(outer: &Fields) -> Result<Fields, ConfigError> {
    if let Some(audio) = outer.nested("audio_config")? {
        return Ok(audio);
    }
    let nested = |fields: Option<Fields>, field: &str| {
        Ok::<_, ConfigError>(fields.map(|fields| fields.nested(field)).transpose()?.flatten())
    };
    let processor = outer.nested("audio_processor")?;
    let mut audio = match nested(processor, "config")? {
        None => Fields::empty_in(outer),
        Some(config) => {
            const INPUT: &str = "input_layer";
            const KERNEL: &str = "ext_pw_kernel_size";
            if config.text(INPUT)?.is_some_and(|value| value != "nemo_conv") {
                return Err(config.invalid(INPUT, "\"nemo_conv\""));
            }
            if config.size(KERNEL)?.unwrap_or(1) != 1 {
                return Err(config.invalid(KERNEL, "1"));
            }
            for (field, expected) in [
                ("causal", true),
                ("bias_in_glu", true),
                ("cnn_layer_norm", true),
                ("batch_norm", false),
            ] {
                if config.flag_or(field, expected)? != expected {
                    return Err(config.invalid(field, &expected.to_string()));
                }
            }
            config.with_aliases(&[
                ("attention_dim", "hidden_size"),
                ("attention_heads", "num_attention_heads"),
                ("linear_units", "intermediate_size"),
                ("depthwise_seperable_out_channel", "depthwise_separable_out_channel"),
            ])
        }
    };
    let of_config = |field: &str| nested(Some(audio.clone()), field);
    let (convs, biases) =
        (of_config("nemo_conv_settings")?, of_config("relative_attention_bias_args")?);
    if let Some(convs) = convs {
        audio.replace("nemo_conv_channels", &convs, "conv_channels");
    }
    if let Some(biases) = biases {
        const TYPE: &str = "type";
        if biases.text(TYPE)?.is_some_and(|value| value != "t5") {
            return Err(biases.invalid(TYPE, "\"t5\""));
        }
        audio.replace("bias_max_distance", &biases, "t5_bias_max_distance");
        audio.replace("bias_symmetric", &biases, "t5_bias_symmetric");
    }
    let layer = nested(nested(Some(outer.clone()), "embd_layer")?, "audio_embd_layer")?;
    if let Some(layer) = layer {
        audio.replace("downsample_rate", &layer, "downsample_rate");
        for field in ["use_qformer", "use_conv_downsample"] {
            if layer.flag_or(field, false)? {
                return Err(layer.invalid(field, "false"));
            }
        }
    }
    Ok(audio)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::model::config::fields;

    fn of_authors() -> Value {
        json!({
            "audio_processor": { "name": "cascades", "config": {
                "activation": "swish", "attention_dim": 64, "attention_heads": 4,
                "batch_norm": false, "bias_in_glu": true, "causal": true, "chunk_size": -1,
                "cnn_layer_norm": true, "conv_activation": "swish", "conv_glu_type": "swish",
                "depthwise_multiplier": 1, "depthwise_seperable_out_channel": 64,
                "dropout_rate": 0.0, "encoder_embedding_config": { "input_size": 80 },
                "ext_pw_kernel_size": 1, "ext_pw_out_channel": 64, "input_layer": "nemo_conv",
                "input_size": 80, "kernel_size": 3, "left_chunk": 18, "linear_units": 96,
                "nemo_conv_settings": { "conv_channels": 32 }, "num_blocks": 2,
                "relative_attention_bias_args": { "t5_bias_max_distance": 500, "type": "t5" },
                "time_reduction": 8,
            } },
            "embd_layer": { "audio_embd_layer": {
                "compression_rate": 8, "downsample_rate": 1, "use_qformer": false,
            } },
        })
    }

    #[test]
    fn the_authors_objects_have_other_names() {
        let found = Phi4Sounds::read(&fields(of_authors()), 8).unwrap();
        assert_eq!((found.hidden_size, found.intermediate_size, found.num_heads), (64, 96, 4));
        assert_eq!((found.channels, found.max_distance, found.num_layers), (32, 500, 2));
        assert_eq!((found.reduction(), found.num_embeds(17), found.placeholder), (8, 3, 200_011));
    }

    #[test]
    fn other_towers_are_refused() {
        for (place, value, field) in [
            ("/audio_processor/config/chunk_size", json!(18), "chunk_size"),
            ("/audio_processor/config/time_reduction", json!(6), "time_reduction"),
            ("/audio_processor/config/input_layer", json!("conv2d"), "input_layer"),
            ("/audio_processor/config/causal", json!(false), "causal"),
            ("/audio_processor/config/linear_units", json!(0), "linear_units"),
            ("/audio_processor/config/depthwise_multiplier", json!(2), "depthwise_multiplier"),
            ("/embd_layer/audio_embd_layer/downsample_rate", json!(2), "downsample_rate"),
            ("/embd_layer/audio_embd_layer/use_qformer", json!(true), "use_qformer"),
        ] {
            let mut config = of_authors();
            *config.pointer_mut(place).unwrap() = value;
            let why = Phi4Sounds::read(&fields(config), 8).err().unwrap().to_string();
            assert!(why.contains(field), "{why}");
        }
    }

    #[test]
    fn distances_without_a_bias_of_their_own_have_the_last() {
        let mut sounds = Phi4Sounds::read(&fields(json!({})), 8).unwrap();
        sounds.max_distance = 3;
        let of = |sounds: &Phi4Sounds| [-9, -3, 0, 2, 9].map(|at| sounds.bias_place(at));
        assert_eq!((of(&sounds), sounds.num_biases()), ([0, 0, 3, 5, 5], 6));
        sounds.is_symmetric = true;
        assert_eq!((of(&sounds), sounds.num_biases()), ([2, 2, 0, 2, 2], 3));
    }
}
