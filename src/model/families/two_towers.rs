//! Models of two towers, one of texts and one of images, whose vectors can be compared. They are
//! HF `CLIPModel` (<https://arxiv.org/abs/2103.00020>) and `SiglipModel`
//! (<https://arxiv.org/abs/2303.15343>). The latter is also SigLIP 2 with images of one size.
//!
//! Both towers have norms before the parts of a layer, learned positions and biases. The text tower
//! of CLIP is causal, and that of SigLIP attends to both sides.

use super::wrappers::sizes;
use super::{
    AttentionNames, Bias, ConfigError, Defaults, Family, Fields, LayerNorms, MlpNames, MlpRule,
    ModelConfig, NormKind, NormRule, PositionRule, TextModel, TextPlace, VisionFamily, WeightNames,
    Wrapper, llama,
};

const CLIP_CLASS: &str = "CLIPModel";
const SIGLIP_CLASS: &str = "SiglipModel";

/// The modules and tensors of all parts but the layers of the text tower.
const UNREAD: &[&str] = &[
    "vision_model",
    "visual_projection",
    "text_projection",
    "text_model.head",
    "text_model.embeddings.position_ids",
    "logit_scale",
    "logit_bias",
];
const PLACES: &[TextPlace] = &[TextPlace { base: "text_model", lm_head: "lm_head" }];

/// HF `CLIPTextConfig`.
const CLIP_TEXT: Family = Family {
    architecture: CLIP_CLASS,
    model_type: "clip_text_model",
    models: "CLIP",
    defaults: Defaults {
        intermediate_size: Some(2_048),
        max_position_embeddings: 77,
        tie_word_embeddings: true,
        norm_eps: 1e-5,
        ..llama::DEFAULTS
    },
    qkv_bias: Bias::Always,
    o_bias: Bias::Always,
    mlp_bias: Bias::Always,
    norm: NormRule { kind: NormKind::Layer { has_bias: true }, eps: "layer_norm_eps" },
    positions: PositionRule::None,
    mlp: MlpRule { is_gated: false, field: "hidden_act", activation: "quick_gelu" },
    names: WeightNames {
        embed_tokens: "text_model.embeddings.token_embedding",
        embed_positions: "text_model.embeddings.position_embedding",
        layer: "text_model.encoder.layers",
        norms: LayerNorms {
            before_attention: Some("layer_norm1"),
            after_attention: None,
            before_mlp: Some("layer_norm2"),
            after_mlp: None,
        },
        attention: AttentionNames { o_proj: "self_attn.out_proj", ..llama::NAMES.attention },
        mlp: MlpNames { inner: &["mlp.fc1"], down_proj: "mlp.fc2" },
        norm: "text_model.final_layer_norm",
        ..llama::NAMES
    },
    adjust: learned_positions,
    ..llama::FAMILY
};

/// HF `SiglipTextConfig`.
const SIGLIP_TEXT: Family = Family {
    architecture: SIGLIP_CLASS,
    model_type: "siglip_text_model",
    models: "SigLIP, SigLIP 2 with images of one size",
    defaults: Defaults {
        intermediate_size: Some(3_072),
        max_position_embeddings: 64,
        norm_eps: 1e-6,
        ..CLIP_TEXT.defaults
    },
    mlp: MlpRule { activation: "gelu_pytorch_tanh", ..CLIP_TEXT.mlp },
    adjust: both_sides,
    ..CLIP_TEXT
};

/// The classes of two towers. They only pool.
pub(in crate::model) const TWO_TOWERS: &[Wrapper] = &[
    Wrapper {
        architecture: CLIP_CLASS,
        model_type: "clip",
        models: "CLIP",
        texts: &[TextModel {
            family: CLIP_TEXT,
            sizes: sizes([49_408, 512, 2_048, 12, 8]),
            experts: &[],
        }],
        may_be_flat: false,
        places: PLACES,
        unread: UNREAD,
        vision: &[VisionFamily::ClipModel],
        audio: None,
    },
    Wrapper {
        architecture: SIGLIP_CLASS,
        model_type: "siglip",
        models: "SigLIP, SigLIP 2 with images of one size",
        texts: &[TextModel {
            family: SIGLIP_TEXT,
            sizes: sizes([32_000, 768, 3_072, 12, 12]),
            experts: &[],
        }],
        may_be_flat: false,
        places: PLACES,
        unread: UNREAD,
        vision: &[VisionFamily::SiglipModel],
        audio: None,
    },
];

fn learned_positions(_: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    config.embedding.learned_positions = Some(0);
    Ok(())
}

fn both_sides(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    learned_positions(fields, config)?;
    config.attentions().for_each(|attention| attention.is_causal = false);
    Ok(())
}
