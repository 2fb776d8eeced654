//! DBRX: HF `DbrxForCausalLM`.
//!
//! Llama with layer norms without biases, and clamped queries, keys and values. Its experts are one
//! below the other in one matrix for each projection:
//! <https://www.databricks.com/blog/introducing-dbrx-new-state-art-open-llm>.
//!
//! The base of wavelengths is `rope_theta` of `attn_config` in published checkpoints, which the
//! authors' code and vLLM read. HF's class of transformers 5 reads the fields beside it alone. They
//! have precedence here.

use super::{
    AttentionNames, Bias, ConfigError, Defaults, ExpertNames, Family, Fields, LayerConfig,
    LayerNorms, LayerRule, ModelConfig, MoeConfig, MoeNames, NormKind, NormRule, QkvNames, Scoring,
    WeightNames, llama, read_alike,
};

pub(super) const FAMILY: Family = Family {
    architecture: "DbrxForCausalLM",
    model_type: "dbrx",
    models: "DBRX",
    aliases: &[
        ("d_model", "hidden_size"),
        ("n_layers", "num_hidden_layers"),
        ("n_heads", "num_attention_heads"),
        ("max_seq_len", "max_position_embeddings"),
    ],
    defaults: Defaults {
        num_key_value_heads: Some(1),
        intermediate_size: Some(3_584),
        norm_eps: 1e-5,
        ..llama::DEFAULTS
    },
    qkv_bias: Bias::Never,
    o_bias: Bias::Never,
    mlp_bias: Bias::Never,
    norm: NormRule { kind: NormKind::Layer { has_bias: false }, eps: "" },
    layers: LayerRule::Own(layers),
    names: WeightNames {
        embed_tokens: "transformer.wte",
        layer: "transformer.blocks",
        norms: LayerNorms {
            before_attention: Some("norm_attn_norm.norm_1"),
            before_mlp: Some("norm_attn_norm.norm_2"),
            ..llama::NAMES.norms
        },
        attention: AttentionNames {
            qkv: QkvNames::Stacked("norm_attn_norm.attn.Wqkv"),
            o_proj: "norm_attn_norm.attn.out_proj",
            ..llama::NAMES.attention
        },
        moe: MoeNames {
            router: "ffn.router.layer",
            experts: ExpertNames::Rows {
                inner: &["ffn.experts.mlp.w1", "ffn.experts.mlp.v1"],
                down_proj: "ffn.experts.mlp.w2",
            },
            ..llama::MOE
        },
        norm: "transformer.norm_f",
        ..llama::NAMES
    },
    adjust,
    ..llama::FAMILY
};

/// Returns the fields of an object, under the names of other families.
fn nested(fields: &Fields, object: &str, aliases: &[(&str, &str)]) -> Result<Fields, ConfigError> {
    let nested = fields.nested(object)?.unwrap_or_else(|| Fields::empty_in(fields));
    Ok(nested.with_aliases(aliases))
}

fn layers(
    fields: &Fields,
    family: &Family,
    max_position_embeddings: usize,
) -> Result<Vec<LayerConfig>, ConfigError> {
    // HF's class takes these from the nested objects alone.
    let mut fields = fields.without(&["num_key_value_heads", "intermediate_size", "head_dim"]);
    let attn = nested(&fields, "attn_config", &[])?;
    let ffn = nested(&fields, "ffn_config", &[])?;
    fields.replace("num_key_value_heads", &attn, "kv_n_heads");
    fields.replace("intermediate_size", &ffn, "ffn_hidden_size");
    fields.adopt("rope_theta", &attn, "rope_theta");
    if let Some(activation) = ffn.nested("ffn_act_fn")? {
        fields.replace("hidden_act", &activation, "name");
    }
    read_alike(&fields, family, max_position_embeddings)
}

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    if config.tie_word_embeddings {
        return Err(fields.invalid("tie_word_embeddings", "false"));
    }
    let attn = nested(fields, "attn_config", &[])?;
    let clip = attn.positive("clip_qkv")?.map(|clip| clip as f32);
    config.attentions().for_each(|attention| attention.clip = clip);
    let names = [("moe_num_experts", "num_experts"), ("moe_top_k", "num_experts_per_tok")];
    let ffn = nested(fields, "ffn_config", &names)?;
    let moe = MoeConfig {
        num_experts: ffn.size("num_experts")?.unwrap_or(4),
        top_k: ffn.size("num_experts_per_tok")?.unwrap_or(1),
        renormalize: is_normalized(&ffn)?,
        scoring: Scoring::Softmax,
        ..MoeConfig::of_dense(config)
    };
    config.set_experts(&ffn, &moe, |_| true)
}

/// Returns whether the weights of a token are divided by their norm, which must be the sum. A null
/// means that they are not.
fn is_normalized(ffn: &Fields) -> Result<bool, ConfigError> {
    const FIELD: &str = "moe_normalize_expert_weights";
    match ffn.number(FIELD)? {
        None => Ok(!ffn.has(FIELD)),
        Some(1.0) => Ok(true),
        Some(_) => Err(ffn.invalid(FIELD, "1 or null: weights are divided by their sum")),
    }
}
