//! Nomic Embed: HF `NomicBertModel`, and the code in its authors' folders
//! (<https://arxiv.org/abs/2402.01613>, <https://arxiv.org/abs/2502.07972>).
//!
//! BERT with rotary embeddings in place of learned positions. Versions 1 have a gated feed-forward
//! part and no biases. Version 2 has no gate, and experts in every second layer. The folders of the
//! authors have GPT-2's fields and names of their own.

use super::{
    AttentionNames, Bias, ClassHead, ConfigError, Defaults, EncoderClass, EncoderHead, ExpertNames,
    Family, Fields, HeadModule, LayerNorms, MlpNames, MlpRule, ModelConfig, MoeConfig, MoeNames,
    PositionRule, QkvNames, RopeRule, Scoring, WeightNames, attend_to_both_sides, bert, dense,
    llama, norm_after_sums, require_flag, require_number, sum_embeddings,
};

pub(super) const FAMILY: Family = Family {
    architecture: "NomicBertModel",
    model_type: "nomic_bert",
    models: "Nomic Embed 1, 1.5 and 2 (MoE)",
    aliases: &[
        ("n_embd", "hidden_size"),
        ("n_layer", "num_hidden_layers"),
        ("n_head", "num_attention_heads"),
        ("n_inner", "intermediate_size"),
        ("n_positions", "max_position_embeddings"),
        ("layer_norm_epsilon", "layer_norm_eps"),
        ("moe_top_k", "num_experts_per_tok"),
    ],
    defaults: Defaults {
        max_position_embeddings: 2_048,
        rope_theta: 1_000.0,
        ..bert::FAMILY.defaults
    },
    qkv_bias: Bias::IfSet("qkv_proj_bias"),
    o_bias: Bias::IfSet("qkv_proj_bias"),
    mlp_bias: Bias::IfSet("mlp_fc1_bias"),
    positions: PositionRule::Rotary { is_interleaved: false, percent: 100 },
    rope: RopeRule { theta: "rotary_emb_base", ..llama::ROPE },
    mlp: MlpRule { is_gated: true, field: "hidden_act", activation: "silu" },
    names: NAMES,
    other_names: Some(&OF_THE_AUTHORS),
    adjust,
    ..bert::FAMILY
};

const NAMES: WeightNames = WeightNames {
    embed_tokens: "nomic_bert.embeddings.word_embeddings",
    embed_norm: "nomic_bert.embeddings.LayerNorm",
    layer: "nomic_bert.layers",
    norms: LayerNorms {
        before_attention: None,
        after_attention: Some("post_attention_layernorm"),
        before_mlp: None,
        after_mlp: Some("post_mlp_layernorm"),
    },
    ..llama::NAMES
};

const OF_THE_AUTHORS: WeightNames = WeightNames {
    embed_norm: "nomic_bert.emb_ln",
    layer: "nomic_bert.encoder.layers",
    norms: LayerNorms { after_attention: Some("norm1"), after_mlp: Some("norm2"), ..NAMES.norms },
    attention: AttentionNames {
        qkv: QkvNames::Stacked("attn.Wqkv"),
        q_norm: None,
        k_norm: None,
        o_proj: "attn.out_proj",
    },
    // The gate is the second one of them.
    mlp: MlpNames { inner: &["mlp.fc12", "mlp.fc11"], down_proj: "mlp.fc2" },
    ..NAMES
};

/// The activation without a gate, which only the folders of the authors have.
pub(super) const UNGATED_ACTIVATION: &str = "gelu";

/// The same without a gate, with the defaults of the authors' config class.
pub(super) const UNGATED: Family = Family {
    models: "Nomic Embed 2 (MoE)",
    defaults: Defaults {
        intermediate_size: None,
        max_position_embeddings: 1_024,
        rope_theta: 10_000.0,
        norm_eps: 1e-5,
        ..FAMILY.defaults
    },
    qkv_bias: Bias::UnlessUnset("qkv_proj_bias"),
    o_bias: Bias::UnlessUnset("qkv_proj_bias"),
    mlp_bias: Bias::UnlessUnset("mlp_fc1_bias"),
    mlp: MlpRule { is_gated: false, field: "activation_function", activation: UNGATED_ACTIVATION },
    names: WeightNames {
        mlp: MlpNames { inner: &["mlp.fc1"], down_proj: "mlp.fc2" },
        moe: MoeNames {
            router: "mlp.router.layer",
            experts: ExpertNames::Rows {
                inner: &["mlp.experts.mlp.w1"],
                down_proj: "mlp.experts.mlp.w2",
            },
            output_bias: "mlp.experts.bias",
            ..llama::MOE
        },
        ..OF_THE_AUTHORS
    },
    other_names: None,
    adjust: adjust_ungated,
    ..FAMILY
};

const POOLER: &[HeadModule] = &[dense("nomic_bert.pooler.dense", "tanh")];

pub(super) const CLASSES: &[EncoderClass] = &[
    EncoderClass { architecture: "NomicBertModel", family: &FAMILY, head: EncoderHead::Vectors },
    EncoderClass {
        architecture: "NomicBertForSequenceClassification",
        family: &FAMILY,
        head: EncoderHead::Sequence(ClassHead::plain("classifier").behind(POOLER)),
    },
    EncoderClass {
        architecture: "NomicBertForTokenClassification",
        family: &FAMILY,
        head: EncoderHead::Tokens(ClassHead::plain("classifier")),
    },
];

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    if fields.count("num_experts")?.is_some_and(|count| count > 0) {
        let expected = "0, as only the activation_function \"gelu\" has experts";
        return Err(fields.invalid("num_experts", expected));
    }
    match fields.text("activation_function")? {
        None | Some("swiglu") => {}
        Some("geglu") => {
            config.set_activation("gelu");
        }
        Some(_) => {
            let expected = "\"swiglu\", \"geglu\" or \"gelu\"";
            return Err(fields.invalid("activation_function", expected));
        }
    }
    if let Some(bias) = fields.flag("mlp_fc2_bias")? {
        config.mlps().for_each(|mlp| mlp.down_bias = bias);
    }
    of_nomic(fields, config)
}

fn adjust_ungated(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    // Without the field, the authors' code does not rotate.
    if fields.value("rotary_emb_fraction").is_none() {
        return Err(fields.missing("rotary_emb_fraction", "1"));
    }
    let bias = fields.flag_or("mlp_fc2_bias", true)?;
    config.mlps().for_each(|mlp| mlp.down_bias = bias);
    if fields.count("num_experts")?.is_some_and(|count| count > 0) {
        set_experts(fields, config)?;
    }
    of_nomic(fields, config)
}

/// Gives experts to every `moe_every_n_layers`th layer, from the second one on.
fn set_experts(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    // Fields whose other values change the results.
    require_flag(fields, "moe_normalize_expert_weights", false)?;
    require_flag(fields, "expert_choice_router", false)?;
    require_number(fields, "num_shared_experts", 0.0)?;
    require_number(fields, "ffn_div", 1.0)?;
    let step = fields.required_size("moe_every_n_layers")?;
    if step == 1 {
        let expected = "at least 2, as 1 gives experts to no layer";
        return Err(fields.invalid("moe_every_n_layers", expected));
    }
    let moe = MoeConfig {
        num_experts: fields.required_size("num_experts")?,
        top_k: fields.required_size("num_experts_per_tok")?,
        scoring: Scoring::Softmax,
        has_output_bias: true,
        ..MoeConfig::of_dense(config)
    };
    config.set_experts(fields, &moe, |layer| layer % step == 1)
}

/// Reads what the models of all versions have in common.
fn of_nomic(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    // Fields of the authors' code, whose other values change the results.
    for (field, expected) in [
        ("prenorm", false),
        ("causal", false),
        ("parallel_block", false),
        ("use_rms_norm", false),
        ("rotary_emb_interleaved", false),
    ] {
        require_flag(fields, field, expected)?;
    }
    require_number(fields, "rotary_emb_fraction", 1.0)?;
    for field in ["rotary_scaling_factor", "rotary_emb_scale_base"] {
        if fields.value(field).is_some() {
            return Err(fields.invalid(field, "null: positions are not scaled"));
        }
    }
    let types = "nomic_bert.embeddings.token_type_embeddings";
    sum_embeddings(fields, config, Some((types, 2)))?;
    norm_after_sums(config);
    attend_to_both_sides(config);
    Ok(())
}
