//! The tower of Aria as `config.json` describes it: HF `AriaConfig`.

use playhouse_kernels::Activation;

use super::block::{BlockConfig, HeadNorms};
use super::llava::{feature_layers, placeholder};
use super::pixels::PatchSize;
use super::vit_names::SIGLIP;
use super::{VisionFamily, activation};
use crate::model::config::{ConfigError, Fields, NormConfig};
use crate::model::family::NormKind;

/// The norms of the projector: torch's own numbers.
pub(super) const PROJECTOR_NORM: NormConfig =
    NormConfig { kind: NormKind::Layer { has_bias: true }, eps: 1e-5 };
/// Pixels on the longer side of each image: HF `AriaProcessor` asks for it.
const LONGEST: usize = 980;

/// The shape of a tower: HF `Idefics3VisionConfig`.
#[derive(Debug, Clone)]
pub(super) struct AriaConfig {
    pub(super) block: BlockConfig,
    /// The layers whose output is read.
    pub(super) num_layers: usize,
    pub(super) patch: PatchSize,
    /// Places on a side of the grid of learned positions.
    pub(super) positions_side: usize,
    /// The patches of a whole square, and the embeddings of an image in it.
    queries: Vec<[usize; 2]>,
    /// The width of the text model.
    pub(super) outputs: usize,
}

impl AriaConfig {
    /// Reads the tower of a model whose `config.json` has the fields `outer`, for a text model of
    /// the width `outputs`.
    ///
    /// # Errors
    /// [`ConfigError`] if a field has no valid value.
    pub(super) fn read(outer: &Fields, outputs: usize) -> Result<Self, ConfigError> {
        const HEADS: &str = "num_attention_heads";
        const PATCH: &str = "patch_size";
        const LAYER: &str = "vision_feature_layer";
        let fields = outer.nested("vision_config")?.unwrap_or_else(|| Fields::empty_in(outer));
        let size = |field: &str, default: usize| {
            Ok::<usize, ConfigError>(fields.size(field)?.unwrap_or(default))
        };
        let (hidden_size, num_heads) = (size("hidden_size", 1_152)?, size(HEADS, 16)?);
        if !hidden_size.is_multiple_of(num_heads) {
            return Err(fields.invalid(HEADS, &format!("a divisor of {hidden_size}")));
        }
        if fields.size("num_channels")?.is_some_and(|channels| channels != 3) {
            return Err(fields.invalid("num_channels", "3"));
        }
        let side = size(PATCH, 32)?;
        if !LONGEST.is_multiple_of(side) {
            let expected = format!("a divisor of {LONGEST}, the longer side of an image");
            return Err(fields.invalid(PATCH, &expected));
        }
        let image_size = size("image_size", 224)?;
        if image_size < side {
            return Err(fields.invalid("image_size", &format!("at least {side}, patch_size")));
        }
        let num_layers = match *feature_layers(outer, size("num_hidden_layers", 12)?, -1)? {
            [layer] => layer,
            _ => return Err(outer.invalid(LAYER, "one layer")),
        };
        let eps = fields.positive("layer_norm_eps")?.unwrap_or(1e-6) as f32;
        Ok(Self {
            block: BlockConfig {
                names: &SIGLIP.block,
                hidden_size,
                intermediate_size: size("intermediate_size", 3_072)?,
                num_heads,
                num_kv_heads: num_heads,
                norm: NormConfig { kind: NormKind::Layer { has_bias: true }, eps },
                activation: activation(&fields, "hidden_act", Activation::GeluTanh)?,
                qkv_bias: true,
                o_bias: true,
                mlp_bias: true,
                head_norms: HeadNorms::None,
                has_neighbour_pairs: false,
            },
            num_layers,
            patch: PatchSize { side, frames: 1 },
            positions_side: image_size / side,
            queries: queries(outer)?,
            outputs,
        })
    }

    /// Returns the embeddings of an image whose longer side has `side` patches.
    pub(super) fn queries_of(&self, side: usize) -> Result<usize, String> {
        let found = self.queries.iter().find(|[patches, _]| *patches == side * side);
        let [_, count] = found.ok_or_else(|| format!("{side} patches on the longer side"))?;
        Ok(*count)
    }

    /// Returns the number of learned vectors.
    pub(super) fn max_queries(&self) -> usize {
        self.queries.iter().map(|[_, count]| *count).max().unwrap_or_default()
    }
}

/// Reads the embeddings of an image by the number of patches of a whole square.
fn queries(outer: &Fields) -> Result<Vec<[usize; 2]>, ConfigError> {
    const FIELD: &str = "projector_patch_to_query_dict";
    let Some(listed) = outer.nested(FIELD)? else { return Ok(vec![[1_225, 128], [4_900, 256]]) };
    let wrong = || outer.invalid(FIELD, "numbers of embeddings by numbers of patches");
    let pair = |patches: &String| {
        let count = listed.size(patches)?.ok_or_else(wrong)?;
        Ok([patches.parse::<usize>().map_err(|_| wrong())?, count])
    };
    listed.object().keys().map(pair).collect()
}

/// The facts about the images of Aria that their processor needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AriaImages {
    /// The token in the places of embeddings.
    pub(crate) placeholder: u32,
    /// Pixels on the longer side.
    pub(crate) longest: usize,
    /// The embeddings of an image.
    pub(crate) num_embeds: usize,
}

impl AriaImages {
    /// Reads the facts of a model whose `config.json` has the fields `outer`.
    ///
    /// # Errors
    /// [`ConfigError`] if a field has no valid value.
    pub(crate) fn read(outer: &Fields) -> Result<Self, ConfigError> {
        const FIELD: &str = "projector_patch_to_query_dict";
        let vision_tower = AriaConfig::read(outer, 1)?;
        let side = LONGEST / vision_tower.patch.side;
        let expected = format!("one with the key {}, for {LONGEST} pixels", side * side);
        let num_embeds = vision_tower.queries_of(side);
        let num_embeds = num_embeds.map_err(|_| outer.invalid(FIELD, &expected))?;
        let placeholder = placeholder(outer, VisionFamily::Aria)?;
        Ok(Self { placeholder, longest: LONGEST, num_embeds })
    }
}
