//! BLOOM: HF `BloomForCausalLM`.
//!
//! ALiBi in place of positions, layer norms, and a norm of the embeddings
//! (<https://arxiv.org/abs/2211.05100>).

use super::{
    AttentionNames, Bias, ConfigError, Defaults, Family, Fields, MlpNames, MlpRule, ModelConfig,
    NormKind, NormRule, NormedResidual, PositionRule, QkvNames, WeightNames, llama,
};

pub(super) const FAMILY: Family = Family {
    architecture: "BloomForCausalLM",
    model_type: "bloom",
    models: "BLOOM, BLOOMZ",
    aliases: &[
        ("n_embed", "hidden_size"),
        ("n_layer", "num_hidden_layers"),
        ("n_head", "num_attention_heads"),
        ("seq_length", "max_position_embeddings"),
    ],
    defaults: Defaults { tie_word_embeddings: true, norm_eps: 1e-5, ..llama::DEFAULTS },
    qkv_bias: Bias::Always,
    o_bias: Bias::Always,
    mlp_bias: Bias::Always,
    norm: NormRule { kind: NormKind::Layer { has_bias: true }, eps: "layer_norm_epsilon" },
    positions: PositionRule::None,
    // The class has no field for it.
    mlp: MlpRule { is_gated: false, field: "", activation: "gelu_new" },
    names: WeightNames {
        embed_tokens: "transformer.word_embeddings",
        embed_norm: "transformer.word_embeddings_layernorm",
        layer: "transformer.h",
        attention: AttentionNames {
            qkv: QkvNames::Grouped("self_attention.query_key_value"),
            q_norm: None,
            k_norm: None,
            o_proj: "self_attention.dense",
        },
        mlp: MlpNames { inner: &["mlp.dense_h_to_4h"], down_proj: "mlp.dense_4h_to_h" },
        norm: "transformer.ln_f",
        ..llama::NAMES
    },
    adjust,
    ..llama::FAMILY
};

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    if fields.flag("apply_residual_connection_post_layernorm")?.unwrap_or(false) {
        let sum = [1.0, 1.0];
        config.normed_residual =
            Some(NormedResidual { attention: sum, recurrent: sum, feed_forward: sum });
    }
    config.embedding.has_norm = true;
    config.attentions().for_each(|attention| {
        attention.alibi = Some(slopes(attention.num_heads).into());
    });
    Ok(())
}

/// Returns the slope of each head: HF `_get_alibi_slopes`. Heads beyond a power of two take every
/// other slope of twice as many heads.
pub(super) fn slopes(num_heads: usize) -> Vec<f32> {
    let of = |count: usize| {
        let base = 2f64.powf(-(2f64.powf(-((count as f64).log2() - 3.0))));
        (1..=count).map(move |power| base.powi(power as i32) as f32)
    };
    let whole = 1 << num_heads.max(1).ilog2();
    of(whole).chain(of(2 * whole).step_by(2)).take(num_heads).collect()
}

#[cfg(test)]
mod tests {
    use super::slopes;

    #[test]
    fn slopes_halve_by_equal_steps() {
        assert_eq!(slopes(8)[..3], [0.5, 0.25, 0.125]);
        assert_eq!(slopes(3), [0.0625, 0.003_906_25, 0.25]);
    }
}
