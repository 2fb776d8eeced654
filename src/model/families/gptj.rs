//! GPT-J: HF `GPTJForCausalLM`.
//!
//! Attention and MLP read the same hidden state. Rotary pairs are neighbours, in the first elements
//! of a head (<https://github.com/kingoflolz/mesh-transformer-jax>).

use super::{
    AttentionNames, Bias, ConfigError, Defaults, Family, Fields, LayerNorms, MlpNames, ModelConfig,
    PositionRule, QkvNames, WeightNames, gpt2,
};

pub(super) const FAMILY: Family = Family {
    architecture: "GPTJForCausalLM",
    model_type: "gptj",
    models: "GPT-J",
    defaults: Defaults {
        max_position_embeddings: 2_048,
        tie_word_embeddings: false,
        ..gpt2::FAMILY.defaults
    },
    qkv_bias: Bias::Never,
    o_bias: Bias::Never,
    positions: PositionRule::Rotary { is_interleaved: true, percent: 100 },
    is_parallel: true,
    names: WeightNames {
        embed_positions: "",
        norms: LayerNorms {
            before_attention: Some("ln_1"),
            after_attention: None,
            before_mlp: None,
            after_mlp: None,
        },
        attention: AttentionNames {
            qkv: QkvNames::Separate(["attn.q_proj", "attn.k_proj", "attn.v_proj"]),
            q_norm: None,
            k_norm: None,
            o_proj: "attn.out_proj",
        },
        mlp: MlpNames { inner: &["mlp.fc_in"], down_proj: "mlp.fc_out" },
        is_transposed: false,
        ..gpt2::FAMILY.names
    },
    adjust,
    ..gpt2::FAMILY
};

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    const FIELD: &str = "rotary_dim";
    let given = fields.size(FIELD)?;
    if given.is_none() && fields.has(FIELD) {
        return Err(fields.invalid(FIELD, "the rotating elements of a head"));
    }
    let rotary_dim = given.unwrap_or(64);
    for attention in config.attentions() {
        let head_dim = attention.head_dim;
        if rotary_dim > head_dim || !rotary_dim.is_multiple_of(2) {
            return Err(fields.invalid(FIELD, &format!("an even number up to {head_dim}")));
        }
        if let Some(rope) = &mut attention.rope {
            (rope.rotary_dim, rope.frequency_dim) = (rotary_dim, rotary_dim);
        }
    }
    config.logits.has_bias = true;
    Ok(())
}
