//! Nomic Embed: HF `NomicBertModel`, and the code in its authors' folders
//! (<https://arxiv.org/abs/2402.01613>).
//!
//! BERT with rotary embeddings in place of learned positions, a gated feed-forward part, and no
//! biases. The folders of the authors have GPT-2's fields and names of their own.

use super::{
    AttentionNames, Bias, ClassHead, ConfigError, Defaults, EncoderClass, EncoderHead, Family,
    Fields, HeadModule, LayerNorms, MlpNames, MlpRule, ModelConfig, PositionRule, QkvNames,
    RopeRule, WeightNames, attend_to_both_sides, bert, dense, llama, norm_after_sums, require_flag,
    sum_embeddings,
};

pub(super) const FAMILY: Family = Family {
    architecture: "NomicBertModel",
    model_type: "nomic_bert",
    models: "Nomic Embed 1 and 1.5",
    aliases: &[
        ("n_embd", "hidden_size"),
        ("n_layer", "num_hidden_layers"),
        ("n_head", "num_attention_heads"),
        ("n_inner", "intermediate_size"),
        ("n_positions", "max_position_embeddings"),
        ("layer_norm_epsilon", "layer_norm_eps"),
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

const POOLER: &[HeadModule] = &[dense("nomic_bert.pooler.dense", "tanh")];

pub(super) const CLASSES: &[EncoderClass] = &[
    EncoderClass { architecture: "NomicBertModel", family: &FAMILY, head: EncoderHead::Vectors },
    EncoderClass {
        architecture: "NomicBertForSequenceClassification",
        family: &FAMILY,
        head: EncoderHead::Sequence(ClassHead {
            layers: POOLER,
            classifier: "classifier",
            pooling: None,
        }),
    },
    EncoderClass {
        architecture: "NomicBertForTokenClassification",
        family: &FAMILY,
        head: EncoderHead::Tokens(ClassHead::plain("classifier")),
    },
];

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
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
    for (field, expected) in [("rotary_emb_fraction", 1.0), ("num_experts", 0.0)] {
        if fields.number(field)?.is_some_and(|value| value != expected) {
            return Err(fields.invalid(field, &expected.to_string()));
        }
    }
    for field in ["rotary_scaling_factor", "rotary_emb_scale_base"] {
        if fields.value(field).is_some() {
            return Err(fields.invalid(field, "null: positions are not scaled"));
        }
    }
    match fields.text("activation_function")? {
        None | Some("swiglu") => {}
        Some("geglu") => {
            config.set_activation("gelu");
        }
        Some(_) => return Err(fields.invalid("activation_function", "\"swiglu\" or \"geglu\"")),
    }
    let types = "nomic_bert.embeddings.token_type_embeddings";
    sum_embeddings(fields, config, Some((types, 2)))?;
    norm_after_sums(config);
    attend_to_both_sides(config);
    Ok(())
}
