//! MPT: HF `MptForCausalLM`.
//!
//! ALiBi in place of positions, layer norms without biases, and no bias anywhere.

use super::{
    AttentionNames, Bias, ConfigError, Defaults, Family, Fields, LayerNorms, MlpNames, MlpRule,
    ModelConfig, NormKind, NormRule, PositionRule, QkvNames, WeightNames, llama,
};

pub(super) const FAMILY: Family = Family {
    architecture: "MptForCausalLM",
    model_type: "mpt",
    models: "MPT",
    aliases: &[
        ("d_model", "hidden_size"),
        ("n_layers", "num_hidden_layers"),
        ("n_heads", "num_attention_heads"),
        ("max_seq_len", "max_position_embeddings"),
    ],
    defaults: Defaults { tie_word_embeddings: true, norm_eps: 1e-5, ..llama::DEFAULTS },
    qkv_bias: Bias::Never,
    o_bias: Bias::Never,
    mlp_bias: Bias::Never,
    norm: NormRule { kind: NormKind::Layer { has_bias: false }, eps: "layer_norm_epsilon" },
    positions: PositionRule::None,
    // The class has no field for it.
    mlp: MlpRule { is_gated: false, field: "", activation: "gelu" },
    names: WeightNames {
        embed_tokens: "transformer.wte",
        layer: "transformer.blocks",
        norms: LayerNorms {
            before_attention: Some("norm_1"),
            after_attention: None,
            before_mlp: Some("norm_2"),
            after_mlp: None,
        },
        attention: AttentionNames {
            qkv: QkvNames::Stacked("attn.Wqkv"),
            q_norm: None,
            k_norm: None,
            o_proj: "attn.out_proj",
        },
        mlp: MlpNames { inner: &["ffn.up_proj"], down_proj: "ffn.down_proj" },
        norm: "transformer.norm_f",
        ..llama::NAMES
    },
    adjust,
    ..llama::FAMILY
};

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    // HF's class always has four times the width, and neither of the others.
    for (field, accepted) in [("expansion_ratio", 4), ("logit_scale", 1)] {
        if fields.value(field).is_some_and(|value| value.as_f64() != Some(f64::from(accepted))) {
            return Err(fields.invalid(field, &accepted.to_string()));
        }
    }
    // HF's class has no bias, whatever `no_bias` says. A checkpoint with biases is refused.
    fields.flag("no_bias")?;
    let nested = fields.nested("attn_config")?;
    let attn = nested.unwrap_or_else(|| Fields::empty_in(fields));
    for (field, accepted) in [("prefix_lm", false), ("qk_ln", false), ("alibi", true)] {
        if attn.flag(field)?.is_some_and(|flag| flag != accepted) {
            return Err(attn.invalid(field, &accepted.to_string()));
        }
    }
    if !matches!(attn.text("attn_type")?, None | Some("multihead_attention")) {
        return Err(attn.invalid("attn_type", "\"multihead_attention\""));
    }
    let scale = attn.positive("softmax_scale")?;
    let clip = attn.positive("clip_qkv")?.map(|clip| clip as f32);
    let bias_max = attn.positive("alibi_bias_max")?.unwrap_or(8.0);
    for attention in config.attentions() {
        attention.scale = scale.map_or(attention.scale, |scale| scale as f32);
        attention.clip = clip;
        attention.alibi = Some(slopes(attention.num_heads, bias_max).into());
    }
    Ok(())
}

/// Returns the slope of each head: HF `build_mpt_alibi_tensor`.
fn slopes(num_heads: usize, bias_max: f64) -> Vec<f32> {
    let whole = num_heads.next_power_of_two();
    let of = |head: usize| 2f64.powf(-(head as f64) * bias_max / whole as f64) as f32;
    let all: Vec<f32> = (1..=whole).map(of).collect();
    if whole == num_heads {
        return all;
    }
    let (even, odd) = (all.iter().step_by(2), all.iter().skip(1).step_by(2));
    odd.chain(even).copied().take(num_heads).collect()
}

#[cfg(test)]
mod tests {
    use super::slopes;

    #[test]
    fn the_odd_slopes_come_first_unless_heads_are_a_power_of_two() {
        assert_eq!(slopes(4, 8.0), [0.25, 0.0625, 0.015_625, 0.003_906_25]);
        assert_eq!(slopes(3, 8.0), [0.0625, 0.003_906_25, 0.25]);
    }
}
