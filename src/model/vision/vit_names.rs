//! The names of the tensors in towers of images of one size.

use super::block::BlockNames;
use super::vit::VitNames;

/// Pre-norm layers of CLIP, SigLIP and Idefics 3.
const CLIP_BLOCK: BlockNames = BlockNames {
    attention_norm: "layer_norm1",
    mlp_norm: "layer_norm2",
    qkv: &["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
    o: "self_attn.out_proj",
    inner: &["mlp.fc1"],
    down: "mlp.fc2",
    factors: None,
    head_norms: None,
};
/// HF `CLIPVisionModel`.
pub(super) const CLIP: VitNames = VitNames {
    patches: "embeddings.patch_embedding",
    patch_bias: false,
    class: Some(("embeddings.class_embedding", 1)),
    positions: ("embeddings.position_embedding.weight", 2),
    first_norm: Some("pre_layrnorm"),
    last_norm: "post_layernorm",
    layer: "encoder.layers",
    block: CLIP_BLOCK,
};
/// HF `SiglipVisionModel` and `Idefics3VisionTransformer`.
pub(super) const SIGLIP: VitNames =
    VitNames { patch_bias: true, class: None, first_norm: None, ..CLIP };
/// HF `InternVLVisionModel`.
pub(super) const INTERNVL: VitNames = VitNames {
    patches: "embeddings.patch_embeddings.projection",
    patch_bias: true,
    class: Some(("embeddings.cls_token", 3)),
    positions: ("embeddings.position_embeddings", 3),
    first_norm: None,
    last_norm: "layernorm",
    layer: "encoder.layer",
    block: BlockNames {
        attention_norm: "layernorm_before",
        mlp_norm: "layernorm_after",
        qkv: &["attention.q_proj", "attention.k_proj", "attention.v_proj"],
        o: "attention.projection_layer",
        inner: &["mlp.fc1"],
        down: "mlp.fc2",
        factors: Some(["lambda_1", "lambda_2"]),
        head_norms: Some(["attention.q_norm", "attention.k_norm"]),
    },
};
/// HF `Blip2VisionModel`.
pub(super) const BLIP2: VitNames = VitNames {
    patches: "embeddings.patch_embedding",
    patch_bias: true,
    class: Some(("embeddings.class_embedding", 3)),
    positions: ("embeddings.position_embedding", 3),
    first_norm: None,
    last_norm: "post_layernorm",
    layer: "encoder.layers",
    block: BlockNames { qkv: &["self_attn.qkv"], o: "self_attn.projection", ..CLIP_BLOCK },
};
/// `InternVisionModel` of InternVL's authors.
pub(super) const INTERNVL_CHAT: VitNames = VitNames {
    patches: "embeddings.patch_embedding",
    class: Some(("embeddings.class_embedding", 3)),
    positions: ("embeddings.position_embedding", 3),
    layer: "encoder.layers",
    block: BlockNames {
        attention_norm: "norm1",
        mlp_norm: "norm2",
        qkv: &["attn.qkv"],
        o: "attn.proj",
        inner: &["mlp.fc1"],
        down: "mlp.fc2",
        factors: Some(["ls1", "ls2"]),
        head_norms: Some(["attn.q_norm", "attn.k_norm"]),
    },
    ..INTERNVL
};
