//! The encoders of T5 and mT5: HF `T5EncoderModel` and `MT5EncoderModel`
//! (<https://arxiv.org/abs/1910.10683>, <https://arxiv.org/abs/2010.11934>).
//!
//! RMS norms before the parts of a layer, relative positions, no biases, and scores without a
//! scale.

use super::{
    AttentionNames, Bias, ConfigError, Defaults, EncoderClass, EncoderHead, Family, Fields,
    LayerNorms, MixerKind, MlpNames, MlpRule, ModelConfig, NormKind, NormRule, PositionRule,
    QkvNames, WeightNames, attend_to_both_sides, distance_biases, llama,
};

pub(super) const FAMILY: Family = Family {
    architecture: "T5EncoderModel",
    model_type: "t5",
    models: "Sentence-T5, GTR, Instructor",
    aliases: &[
        ("d_model", "hidden_size"),
        ("d_ff", "intermediate_size"),
        ("d_kv", "head_dim"),
        ("num_layers", "num_hidden_layers"),
        ("num_heads", "num_attention_heads"),
        ("n_positions", "max_position_embeddings"),
    ],
    harmless_fields: &["is_encoder_decoder"],
    defaults: Defaults {
        head_dim: Some(64),
        intermediate_size: Some(2_048),
        max_position_embeddings: 512,
        tie_word_embeddings: true,
        norm_eps: 1e-6,
        ..llama::DEFAULTS
    },
    qkv_bias: Bias::Never,
    o_bias: Bias::Never,
    mlp_bias: Bias::Never,
    norm: NormRule { kind: NormKind::Rms, eps: "layer_norm_epsilon" },
    positions: PositionRule::None,
    mixers: &[MixerKind::RelativePositions],
    mlp: MlpRule { is_gated: false, field: "dense_act_fn", activation: "relu" },
    names: WeightNames {
        embed_tokens: "shared",
        layer: "encoder.block",
        norms: LayerNorms {
            before_attention: Some("layer.0.layer_norm"),
            after_attention: None,
            before_mlp: Some("layer.1.layer_norm"),
            after_mlp: None,
        },
        attention: AttentionNames {
            qkv: QkvNames::Separate([
                "layer.0.SelfAttention.q",
                "layer.0.SelfAttention.k",
                "layer.0.SelfAttention.v",
            ]),
            q_norm: None,
            k_norm: None,
            o_proj: "layer.0.SelfAttention.o",
        },
        mlp: MlpNames {
            inner: &["layer.1.DenseReluDense.wi"],
            down_proj: "layer.1.DenseReluDense.wo",
        },
        norm: "encoder.final_layer_norm",
        ..llama::NAMES
    },
    adjust,
    ..llama::FAMILY
};

/// The same with the defaults of its config class.
const MULTILINGUAL: Family = Family {
    architecture: "MT5EncoderModel",
    model_type: "mt5",
    models: "the encoders of mT5",
    defaults: Defaults { intermediate_size: Some(1_024), ..FAMILY.defaults },
    adjust: adjust_multilingual,
    ..FAMILY
};

pub(super) const CLASSES: &[EncoderClass] = &[
    EncoderClass { architecture: "T5EncoderModel", family: &FAMILY, head: EncoderHead::Vectors },
    EncoderClass {
        architecture: "MT5EncoderModel",
        family: &MULTILINGUAL,
        head: EncoderHead::Vectors,
    },
];

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    of_t5(fields, config, "relu")
}

fn adjust_multilingual(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    of_t5(fields, config, "gated-gelu")
}

/// Reads the fields of both. `default` is the feed-forward part without a field.
fn of_t5(fields: &Fields, config: &mut ModelConfig, default: &str) -> Result<(), ConfigError> {
    let projection = fields.text("feed_forward_proj")?.unwrap_or(default);
    let (is_gated, activation) = match projection.strip_prefix("gated-") {
        // HF computes the approximation with tanh by this name.
        Some("gelu") => (true, "gelu_new"),
        Some(activation) => (true, activation),
        None => (false, projection),
    };
    if !config.set_activation(activation) {
        let expected = "the name of an activation, or one behind \"gated-\"";
        return Err(fields.invalid("feed_forward_proj", expected));
    }
    if is_gated {
        config.names.mlp.inner = &["layer.1.DenseReluDense.wi_0", "layer.1.DenseReluDense.wi_1"];
        config.mlps().for_each(|mlp| mlp.is_gated = true);
    }
    attend_to_both_sides(config);
    let module = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias";
    let biases = distance_biases(fields, module, Some("relative_attention_max_distance"), false)?;
    for attention in config.attentions() {
        attention.scale = 1.0;
        attention.distance_biases = Some(biases);
    }
    Ok(())
}
