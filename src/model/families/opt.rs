//! OPT: HF `OPTForCausalLM`.
//!
//! Learned positions from the third row of their table on, layer norms, and ReLU
//! (<https://arxiv.org/abs/2205.01068>).

use super::{
    AttentionNames, Bias, ConfigError, Defaults, EmbeddingProjections, Family, Fields, LayerNorms,
    MlpNames, MlpRule, ModelConfig, NormKind, NormRule, PositionRule, WeightNames, llama,
};

/// The rows of the table of positions that no position has.
pub(super) const OFFSET: usize = 2;

pub(super) const FAMILY: Family = Family {
    architecture: "OPTForCausalLM",
    model_type: "opt",
    models: "OPT, Galactica",
    aliases: &[("ffn_dim", "intermediate_size")],
    defaults: Defaults {
        intermediate_size: Some(3_072),
        tie_word_embeddings: true,
        norm_eps: 1e-5,
        ..llama::DEFAULTS
    },
    qkv_bias: Bias::UnlessUnset("enable_bias"),
    o_bias: Bias::UnlessUnset("enable_bias"),
    mlp_bias: Bias::UnlessUnset("enable_bias"),
    // HF's class has a constant, and no field.
    norm: NormRule { kind: NormKind::Layer { has_bias: true }, eps: "" },
    positions: PositionRule::None,
    mlp: MlpRule { is_gated: false, field: "activation_function", activation: "relu" },
    names: WeightNames {
        embed_tokens: "model.decoder.embed_tokens",
        embed_positions: "model.decoder.embed_positions",
        embed_norm: "",
        layer: "model.decoder.layers",
        norms: LayerNorms {
            before_attention: Some("self_attn_layer_norm"),
            after_attention: None,
            before_mlp: Some("final_layer_norm"),
            after_mlp: None,
        },
        attention: AttentionNames { o_proj: "self_attn.out_proj", ..llama::NAMES.attention },
        attention_norm: None,
        mlp: MlpNames { inner: &["fc1"], down_proj: "fc2" },
        moe: llama::MOE,
        mamba: "",
        norm: "model.decoder.final_layer_norm",
        lm_head: "lm_head",
        is_transposed: false,
        is_gate_last: false,
        layers_are_pairs: false,
        in_adapters: &[],
        renamed: &[],
        place: None,
    },
    adjust,
    ..llama::FAMILY
};

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    config.embedding.learned_positions = Some(OFFSET);
    // OPT-350m alone has norms after its sums, and embeddings of another width.
    config.is_post_norm = !fields.flag("do_layer_norm_before")?.unwrap_or(true);
    let has_final_norm = !fields.flag("_remove_final_layer_norm")?.unwrap_or(false);
    config.has_final_norm = has_final_norm && !config.is_post_norm;
    if config.is_post_norm {
        let LayerNorms { before_attention, before_mlp, .. } = config.norms;
        config.norms = LayerNorms {
            before_attention: None,
            after_attention: before_attention,
            before_mlp: None,
            after_mlp: before_mlp,
        };
    }
    if fields.flag("layer_norm_elementwise_affine")? == Some(false) {
        config.norm.kind = NormKind::LayerUnweighted;
    }
    let width = fields.size("word_embed_proj_dim")?.filter(|width| *width != config.hidden_size);
    config.embedding.projections = width.map(|width| EmbeddingProjections {
        width,
        project_in: "model.decoder.project_in",
        project_out: "model.decoder.project_out",
    });
    Ok(())
}
