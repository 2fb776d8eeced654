//! ChatGLM 2 and 3, and GLM-4 of 2024 in the form of its authors: `ChatGLMModel` and
//! `ChatGLMForConditionalGeneration` of their folders' own code, and of vLLM.
//!
//! GLM with other names, and one matrix for queries, keys and values
//! (<https://arxiv.org/abs/2406.12793>). The models with images of the same class are refused.

use serde_json::Value;

use super::{
    AttentionNames, Bias, ConfigError, Defaults, Family, Fields, LayerConfig, LayerRule, MlpNames,
    MlpRule, ModelConfig, PositionRule, QkvNames, RopeRule, RotaryPart, WeightNames, llama,
    read_alike,
};

pub(super) const FAMILY: Family = Family {
    architecture: "ChatGLMForConditionalGeneration",
    model_type: "chatglm",
    models: "ChatGLM 2 and 3, GLM-4 of 2024 in the form of its authors",
    aliases: &[
        ("num_layers", "num_hidden_layers"),
        ("padded_vocab_size", "vocab_size"),
        ("ffn_hidden_size", "intermediate_size"),
        ("kv_channels", "head_dim"),
        ("seq_length", "max_position_embeddings"),
        ("layernorm_epsilon", "rms_norm_eps"),
    ],
    defaults: Defaults {
        head_dim: Some(128),
        intermediate_size: Some(13_696),
        norm_eps: 1e-5,
        ..llama::DEFAULTS
    },
    qkv_bias: Bias::IfSet("add_qkv_bias"),
    o_bias: Bias::Never,
    mlp_bias: Bias::Never,
    positions: PositionRule::Rotary { is_interleaved: true, percent: 50 },
    // `rope_ratio` gives the base. The class has no field for the part.
    rope: RopeRule {
        theta: "",
        part: RotaryPart::Field { name: None, rounds_up: true },
        ..llama::ROPE
    },
    // The class has no field for it.
    mlp: MlpRule { field: "", ..llama::FAMILY.mlp },
    layers: LayerRule::Own(layers),
    names: WeightNames {
        embed_tokens: "transformer.embedding.word_embeddings",
        layer: "transformer.encoder.layers",
        attention: AttentionNames {
            qkv: QkvNames::Stacked("self_attention.query_key_value"),
            q_norm: None,
            k_norm: None,
            o_proj: "self_attention.dense",
        },
        mlp: MlpNames { inner: &["mlp.dense_h_to_4h"], down_proj: "mlp.dense_4h_to_h" },
        norm: "transformer.encoder.final_layernorm",
        lm_head: "transformer.output_layer",
        ..llama::NAMES
    },
    adjust,
    ..llama::FAMILY
};

/// The base of wavelengths at a `rope_ratio` of 1.
const THETA: f64 = 10_000.0;

/// Reads the number of key heads, and then the layers.
fn layers(
    fields: &Fields,
    family: &Family,
    max_position_embeddings: usize,
) -> Result<Vec<LayerConfig>, ConfigError> {
    const HAS_GROUPS: &str = "multi_query_attention";
    const GROUPS: &str = "multi_query_group_num";
    if !fields.flag(HAS_GROUPS)?.unwrap_or(false) {
        // The authors' code then reads the rows head by head, and vLLM all queries first.
        let expected = format!("true, and {GROUPS} the number of key heads");
        return Err(fields.invalid(HAS_GROUPS, &expected));
    }
    let mut own = fields.with("num_key_value_heads", Value::from(1));
    own.replace("num_key_value_heads", fields, GROUPS);
    read_alike(&own, family, max_position_embeddings)
}

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    for (field, accepted) in [
        ("rmsnorm", true),
        ("post_layer_norm", true),
        ("original_rope", true),
        ("apply_residual_connection_post_layernorm", false),
        ("interleaved_qkv", false),
        ("add_bias_linear", false),
        ("prefix_projection", false),
    ] {
        if fields.flag(field)?.is_some_and(|flag| flag != accepted) {
            return Err(fields.invalid(field, &accepted.to_string()));
        }
    }
    for (field, expected) in [
        ("quantization_bit", "0: the quantization of the authors' own code is not supported"),
        ("pre_seq_len", "null: learned prefixes are not supported"),
    ] {
        if fields.count(field)?.unwrap_or(0) > 0 {
            return Err(fields.invalid(field, expected));
        }
    }
    if fields.value("vision_config").is_some() {
        return Err(fields.invalid("vision_config", "null: models of text alone"));
    }
    let ratio = fields.positive("rope_ratio")?.unwrap_or(1.0);
    let ropes = config.attentions().filter_map(|attention| attention.rope.as_mut());
    ropes.for_each(|rope| rope.theta = THETA * ratio);
    Ok(())
}
