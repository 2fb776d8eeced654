//! Molmo 2: HF `Molmo2ForConditionalGeneration` (<https://arxiv.org/abs/2601.10611>). Its text
//! model is Qwen3, or OLMo 3 without windows, with names of its own.
//!
//! The embedding has more rows than the output layer: those of the tokens around and between the
//! embeddings of images. A prompt may have these tokens, and an output has none of them.

use super::wrappers::sizes;
use super::{
    AttentionNames, Bias, ConfigError, Defaults, Family, Fields, HeadNormRule, LayerNorms,
    MlpNames, ModelConfig, QkvNames, RopeScaling, TextModel, TextPlace, VisionFamily, WeightNames,
    Wrapper, llama,
};

const CLASS: &str = "Molmo2ForConditionalGeneration";

/// HF `Molmo2TextConfig`.
const TEXT: Family = Family {
    architecture: CLASS,
    model_type: "molmo2_text",
    aliases: &[("layer_norm_eps", "rms_norm_eps"), ("qkv_bias", "attention_bias")],
    defaults: Defaults {
        num_key_value_heads: Some(8),
        head_dim: Some(128),
        max_position_embeddings: 36_864,
        ..llama::DEFAULTS
    },
    o_bias: Bias::Never,
    mlp_bias: Bias::Never,
    names: WeightNames { place: Some(TextPlace::INSIDE), ..llama::WITH_HEAD_NORMS },
    other_names: Some(&PUBLISHED),
    adjust,
    ..llama::FAMILY
};

/// The names of published checkpoints, which transformers 5 writes, too.
const PUBLISHED: WeightNames = WeightNames {
    embed_tokens: "model.transformer.wte",
    layer: "model.transformer.blocks",
    norms: LayerNorms {
        before_attention: Some("attn_norm"),
        after_attention: None,
        before_mlp: Some("ff_norm"),
        after_mlp: None,
    },
    attention: AttentionNames {
        qkv: QkvNames::Stacked("self_attn.att_proj"),
        o_proj: "self_attn.attn_out",
        ..llama::WITH_HEAD_NORMS.attention
    },
    mlp: MlpNames { inner: &["mlp.ff_proj"], down_proj: "mlp.ff_out" },
    norm: "model.transformer.ln_f",
    is_gate_last: true,
    // Norms that are behind attention and the MLP keep their names in the config.
    renamed: &[("input_layernorm", "attn_norm"), ("post_attention_layernorm", "ff_norm")],
    ..llama::WITH_HEAD_NORMS
};

/// The same norms over the outputs of attention and MLP.
const AFTER: LayerNorms = LayerNorms {
    before_attention: None,
    after_attention: Some("input_layernorm"),
    before_mlp: None,
    after_mlp: Some("post_attention_layernorm"),
};

/// The class.
pub(super) const WRAPPER: Wrapper = Wrapper {
    architecture: CLASS,
    model_type: "molmo2",
    models: "Molmo 2",
    texts: &[TextModel {
        family: TEXT,
        sizes: sizes([151_936, 4_096, 12_288, 36, 32]),
        experts: &[],
    }],
    may_be_flat: false,
    places: &[TextPlace::INSIDE],
    unread: &["model.vision_backbone", "model.vision_tower", "model.multi_modal_projector"],
    vision: &[VisionFamily::Molmo2],
    audio: None,
};

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    const NORMS: &str = "use_qk_norm";
    const NORM_TYPE: &str = "qk_norm_type";
    const SCALED: &str = "rope_scaling_layers";
    if !fields.flag_or(NORMS, true)? {
        return Err(fields.invalid(NORMS, "true: the heads of published models have norms"));
    }
    match fields.text(NORM_TYPE)? {
        None | Some("qwen3") => {}
        Some("olmo") => {
            let across = Some(HeadNormRule::RmsAcrossHeads);
            config.attentions().for_each(|attention| attention.head_norm = across);
        }
        Some(_) => return Err(fields.invalid(NORM_TYPE, "\"qwen3\" or \"olmo\"")),
    }
    if fields.flag_or("norm_after", false)? {
        config.norms = AFTER;
    }
    if fields.value(SCALED).is_some() {
        let scaled = fields.indices(SCALED)?;
        let others = config.attentions().enumerate().filter(|(layer, _)| !scaled.contains(layer));
        for rope in others.filter_map(|(_, attention)| attention.rope.as_mut()) {
            rope.scaling = RopeScaling::Default;
        }
    }
    config.num_unscored = fields.count("additional_vocab_size")?.unwrap_or(128);
    config.vocab_size = config.vocab_size.saturating_add(config.num_unscored);
    // As in transformers and vLLM, whatever the field says.
    config.tie_word_embeddings = false;
    Ok(())
}
