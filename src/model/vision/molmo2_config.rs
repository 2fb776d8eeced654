//! The tower of Molmo 2 as `config.json` describes it: HF `Molmo2VisionConfig`,
//! `Molmo2AdapterConfig`, and the fields of published folders.

use playhouse_kernels::Activation;
use serde_json::Value;

use super::activation;
use super::block::{BlockConfig, BlockNames, HeadNorms};
use super::molmo2_layout::{Molmo2Layout, vision_fields};
use super::pixels::PatchSize;
use crate::model::config::{ConfigError, Fields, NormConfig};
use crate::model::family::NormKind;

/// The names of the tensors beside the text model.
#[derive(Debug)]
pub(super) struct Names {
    pub(super) patches: &'static str,
    pub(super) positions: &'static str,
    pub(super) layer: &'static str,
    pub(super) block: BlockNames,
    /// The projections of queries, keys, values and results.
    pub(super) pooling: [&'static str; 4],
    /// The gate, what it gates, and the projection back.
    pub(super) projector: [&'static str; 3],
}

/// Those of published checkpoints, which transformers 5 writes, too.
pub(super) const PUBLISHED: Names = Names {
    patches: "model.vision_backbone.image_vit.patch_embedding",
    positions: "model.vision_backbone.image_vit.positional_embedding",
    layer: "model.vision_backbone.image_vit.transformer.resblocks",
    block: BlockNames {
        attention_norm: "attention_norm",
        mlp_norm: "ffn_norm",
        qkv: &["attention.wq", "attention.wk", "attention.wv"],
        o: "attention.wo",
        inner: &["feed_forward.w1"],
        down: "feed_forward.w2",
        factors: None,
        head_norms: None,
    },
    pooling: [
        "model.vision_backbone.image_pooling_2d.wq",
        "model.vision_backbone.image_pooling_2d.wk",
        "model.vision_backbone.image_pooling_2d.wv",
        "model.vision_backbone.image_pooling_2d.wo",
    ],
    projector: [
        "model.vision_backbone.image_projector.w1",
        "model.vision_backbone.image_projector.w3",
        "model.vision_backbone.image_projector.w2",
    ],
};

/// Those of the classes of transformers.
pub(super) const OF_TRANSFORMERS: Names = Names {
    patches: "model.vision_tower.patch_embedding",
    positions: "model.vision_tower.positional_embedding",
    layer: "model.vision_tower.layers",
    block: BlockNames {
        attention_norm: "layer_norm1",
        mlp_norm: "layer_norm2",
        qkv: &["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
        o: "self_attn.o_proj",
        inner: &["mlp.fc1"],
        down: "mlp.fc2",
        factors: None,
        head_norms: None,
    },
    pooling: [
        "model.multi_modal_projector.image_pooling_2d.q_proj",
        "model.multi_modal_projector.image_pooling_2d.k_proj",
        "model.multi_modal_projector.image_pooling_2d.v_proj",
        "model.multi_modal_projector.image_pooling_2d.o_proj",
    ],
    projector: [
        "model.multi_modal_projector.image_projector.gate_proj",
        "model.multi_modal_projector.image_projector.up_proj",
        "model.multi_modal_projector.image_projector.down_proj",
    ],
};

/// The attention of a window's mean to its patches: HF `Molmo2Adapter.image_pooling_2d`.
#[derive(Debug, Clone, Copy)]
pub(super) struct PoolingConfig {
    pub(super) num_heads: usize,
    pub(super) num_kv_heads: usize,
    pub(super) head_dim: usize,
    pub(super) has_bias: bool,
}

/// The shape of a tower with its projector.
#[derive(Debug, Clone)]
pub(super) struct Molmo2Config {
    /// The layers, with the names of transformers.
    pub(super) block: BlockConfig,
    pub(super) layout: Molmo2Layout,
    pub(super) patch: PatchSize,
    /// The states that are the features of a patch, one beside the other: those after these numbers
    /// of layers.
    pub(super) feature_layers: Vec<usize>,
    pub(super) pooling: PoolingConfig,
    pub(super) projector_size: usize,
    pub(super) projector_bias: bool,
    pub(super) projector_activation: Activation,
    /// The width of the text model.
    pub(super) outputs: usize,
}

impl Molmo2Config {
    /// Reads the tower of a model whose `config.json` has the fields `outer`, for a text model of
    /// the width `outputs`.
    ///
    /// # Errors
    /// [`ConfigError`] if a field has no valid value.
    pub(super) fn read(
        outer: &Fields,
        layout: Molmo2Layout,
        outputs: usize,
    ) -> Result<Self, ConfigError> {
        const CHANNELS: &str = "num_channels";
        const PLACES: &str = "num_position_embeddings";
        const HIDDEN: &str = "hidden_size";
        const TEXT: &str = "text_hidden_size";
        const MASK: &str = "pooling_attention_mask";
        let fields = vision_fields(outer)?;
        let adapter = outer.nested("adapter_config")?.unwrap_or_else(|| Fields::empty_in(outer));
        let adapter = adapter.with_aliases(&[("vit_layers", "vision_feature_layer")]);
        let size = |field: &str, default: usize| {
            Ok::<usize, ConfigError>(fields.size(field)?.unwrap_or(default))
        };
        let hidden_size = size(HIDDEN, 1_152)?;
        let [num_heads, num_kv_heads, head_dim] = heads(&fields)?;
        if num_heads.saturating_mul(head_dim) != hidden_size {
            let expected = format!("{hidden_size} / {num_heads}, hidden_size by heads");
            return Err(fields.invalid("head_dim", &expected));
        }
        if size(CHANNELS, 3)? != 3 {
            return Err(fields.invalid(CHANNELS, "3"));
        }
        let places = layout.patches * layout.patches;
        if size(PLACES, places)? != places {
            return Err(fields.invalid(PLACES, &format!("{places}, the patches of a crop")));
        }
        let feature_layers = feature_layers(&adapter, size("num_hidden_layers", 25)?)?;
        if adapter.size(HIDDEN)?.unwrap_or(1_152) != hidden_size {
            let expected = format!("{hidden_size}, that of the tower");
            return Err(adapter.invalid(HIDDEN, &expected));
        }
        if adapter.size(TEXT)?.is_some_and(|size| size != outputs) {
            return Err(adapter.invalid(TEXT, &format!("{outputs}, that of the text model")));
        }
        // vLLM then averages places without a patch, too. transformers never does.
        if !adapter.flag_or(MASK, true)? {
            return Err(adapter.invalid(MASK, "true: places without a patch do not count"));
        }
        let [num_pooling_heads, num_pooling_kv_heads, pooling_head_dim] = heads(&adapter)?;
        let has_bias = fields.flag_or("attention_bias", true)?;
        let eps = fields.positive("layer_norm_eps")?.unwrap_or(1e-6) as f32;
        Ok(Self {
            block: BlockConfig {
                names: &OF_TRANSFORMERS.block,
                hidden_size,
                intermediate_size: size("intermediate_size", 4_304)?,
                num_heads,
                num_kv_heads,
                norm: NormConfig { kind: NormKind::Layer { has_bias: true }, eps },
                activation: activation(&fields, "hidden_act", Activation::GeluTanh)?,
                qkv_bias: has_bias,
                o_bias: has_bias,
                mlp_bias: true,
                head_norms: HeadNorms::None,
                has_neighbour_pairs: false,
            },
            patch: PatchSize { side: layout.patch, frames: 1 },
            layout,
            feature_layers,
            pooling: PoolingConfig {
                num_heads: num_pooling_heads,
                num_kv_heads: num_pooling_kv_heads,
                head_dim: pooling_head_dim,
                has_bias: adapter.flag_or("attention_bias", true)?,
            },
            projector_size: adapter.size("intermediate_size")?.unwrap_or(18_944),
            projector_bias: adapter.flag_or("mlp_bias", false)?,
            projector_activation: activation(&adapter, "hidden_act", Activation::Silu)?,
            outputs,
        })
    }
}

/// Returns the heads of queries, those of keys and values, and their width.
fn heads(fields: &Fields) -> Result<[usize; 3], ConfigError> {
    const KV_HEADS: &str = "num_key_value_heads";
    let num_heads = fields.size("num_attention_heads")?.unwrap_or(16);
    let num_kv_heads = fields.size(KV_HEADS)?.unwrap_or(16);
    if !num_heads.is_multiple_of(num_kv_heads) {
        return Err(fields.invalid(KV_HEADS, &format!("a divisor of {num_heads}, the heads")));
    }
    Ok([num_heads, num_kv_heads, fields.size("head_dim")?.unwrap_or(72)])
}

/// Returns after how many of `num_layers` layers the states are features. Fields count layers from
/// 0 on, and negative ones from the last layer.
fn feature_layers(adapter: &Fields, num_layers: usize) -> Result<Vec<usize>, ConfigError> {
    const FIELD: &str = "vision_feature_layer";
    let layer = |value: &Value| {
        let index = value.as_i64()?;
        let index = if index < 0 { index + num_layers as i64 } else { index };
        (0..num_layers as i64).contains(&index).then_some(index as usize + 1)
    };
    let layers: Option<Vec<usize>> = match adapter.value(FIELD) {
        None => [24, 18].iter().map(|index| layer(&Value::from(*index))).collect(),
        Some(value) => value.as_array().and_then(|list| list.iter().map(layer).collect()),
    };
    layers.filter(|layers| !layers.is_empty()).ok_or_else(|| {
        adapter
            .invalid(FIELD, &format!("a list of layers from -{num_layers} to below {num_layers}"))
    })
}
