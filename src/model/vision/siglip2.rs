//! The tower of LFM2-VL (HF `Siglip2VisionModel`, `Lfm2VlMultiModalProjector`): SigLIP 2 for images
//! of any size. Learned positions are resized to each image.
//!
//! | tensor | shape |
//! |---|---|
//! | pixels of an item | `[height, width, 3]` |
//! | patches | `[rows, 3 · patch_size²]` |
//! | hidden states | `[rows, hidden_size]` |
//! | embeddings | `[rows / merge², text_hidden_size]` |

use burn::tensor::Device;
use playhouse_kernels::{Activation, add, profile::timed};

use super::batch::{rows, sequences};
use super::block::{Block, BlockConfig, HeadNorms, Rows, sum};
use super::encoder::Tower;
use super::grid::Grid;
use super::llava::placeholder;
use super::pixels::{PatchSize, Pixels};
use super::projector::{Projector, ProjectorConfig, ProjectorNorm};
use super::qwen::{Patches, apart};
use super::resized::ResizedPositions;
use super::vit_names::SIGLIP;
use super::{VisionFamily, activation, stored};
use crate::model::config::{ConfigError, Fields, NormConfig};
use crate::model::family::NormKind;
use crate::model::layers::{Linear, Norm};
use crate::model::weight_loader::WeightLoader;
use crate::model::{Adapters, EncoderOutput, MediaInput, ModelError};

/// The places of the tower, in checkpoints as published and in those of transformers 5.
const TOWERS: &[&str] = &["model.vision_tower.vision_model", "model.vision_tower"];
const PROJECTOR: &str = "model.multi_modal_projector";
const LINEARS: &[&str] = &["linear_1", "linear_2"];
/// The norm before the projector: torch's own numbers.
const PROJECTOR_NORM: NormConfig =
    NormConfig { kind: NormKind::Layer { has_bias: true }, eps: 1e-5 };

/// The shape of a tower: HF `Siglip2VisionConfig`.
#[derive(Debug, Clone)]
pub(super) struct Siglip2Config {
    block: BlockConfig,
    num_layers: usize,
    patch: PatchSize,
    /// Places on a side of the grid of learned positions.
    positions_side: usize,
    projector: ProjectorConfig,
}

impl Siglip2Config {
    /// Reads the fields of `vision_config`, and those of `outer` for the projector, for a text
    /// model of the width `outputs`.
    ///
    /// # Errors
    /// [`ConfigError`] if a field has no valid value.
    pub(super) fn read(
        outer: &Fields,
        fields: &Fields,
        outputs: usize,
    ) -> Result<Self, ConfigError> {
        const HEADS: &str = "num_attention_heads";
        const PLACES: &str = "num_patches";
        let size = |field: &str, default: usize| {
            Ok::<usize, ConfigError>(fields.size(field)?.unwrap_or(default))
        };
        let (hidden_size, num_heads) = (size("hidden_size", 768)?, size(HEADS, 12)?);
        if !hidden_size.is_multiple_of(num_heads) {
            return Err(fields.invalid(HEADS, &format!("a divisor of {hidden_size}")));
        }
        if fields.size("num_channels")?.is_some_and(|channels| channels != 3) {
            return Err(fields.invalid("num_channels", "3"));
        }
        let places = size(PLACES, 256)?;
        if places.isqrt().pow(2) != places {
            return Err(fields.invalid(PLACES, "a square number"));
        }
        let eps = fields.positive("layer_norm_eps")?.unwrap_or(1e-6) as f32;
        Ok(Self {
            block: BlockConfig {
                names: &SIGLIP.block,
                hidden_size,
                intermediate_size: size("intermediate_size", 3_072)?,
                num_heads,
                num_kv_heads: num_heads,
                norm: NormConfig { kind: NormKind::Layer { has_bias: true }, eps },
                activation: activation(fields, "hidden_act", Activation::GeluTanh)?,
                qkv_bias: true,
                o_bias: true,
                mlp_bias: true,
                head_norms: HeadNorms::None,
                has_neighbour_pairs: false,
            },
            num_layers: size("num_hidden_layers", 12)?,
            patch: PatchSize { side: size("patch_size", 16)?, frames: 1 },
            positions_side: places.isqrt(),
            projector: ProjectorConfig {
                layers: LINEARS,
                inner: Some(outer.size("projector_hidden_size")?.unwrap_or(2_560)),
                is_gated: false,
                activation: activation(outer, "projector_hidden_act", Activation::Gelu)?,
                has_bias: outer.flag_or("projector_bias", true)?,
                merge: outer.size("downsample_factor")?.unwrap_or(2),
                averages: false,
                norm: match outer.flag_or("projector_use_layernorm", true)? {
                    true => ProjectorNorm::OfSquare("layer_norm", PROJECTOR_NORM),
                    false => ProjectorNorm::None,
                },
                merging: None,
                last_norm: None,
                outputs,
            },
        })
    }
}

/// The facts about the images of LFM2-VL that their processor needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Siglip2Images {
    /// The token in the places of embeddings.
    pub(crate) placeholder: u32,
    /// Pixels on a side of a patch.
    pub(crate) patch: usize,
    /// Patches on a side of a square, which is one embedding.
    pub(crate) merge: usize,
}

impl Siglip2Images {
    /// Reads the facts of a model whose `config.json` has the fields `outer`.
    ///
    /// # Errors
    /// [`ConfigError`] if a field has no valid value.
    pub(crate) fn read(outer: &Fields) -> Result<Self, ConfigError> {
        let vision = outer.nested("vision_config")?.unwrap_or_else(|| Fields::empty_in(outer));
        let vision_tower = Siglip2Config::read(outer, &vision, 1)?;
        Ok(Self {
            placeholder: placeholder(outer, VisionFamily::Lfm2Vl)?,
            patch: vision_tower.patch.side,
            merge: vision_tower.projector.merge,
        })
    }
}

/// A tower with its projector.
#[derive(Debug)]
pub(super) struct Siglip2Tower {
    patch_embed: Linear,
    positions: ResizedPositions,
    blocks: Vec<Block>,
    last_norm: Norm,
    projector: Projector,
    pixels: Pixels,
    config: Siglip2Config,
    device: Device,
}

impl Tower for Siglip2Tower {
    type Prepared = Patches;

    fn prepare(&self, item: &MediaInput<'_>) -> Result<Patches, String> {
        let Siglip2Config { patch, ref projector, .. } = self.config;
        Patches::of(item, &self.pixels, patch, projector.merge, None)
    }

    fn num_embeds(&self, item: &Patches) -> usize {
        item.grid.order.len()
    }

    fn run(&self, items: Vec<Patches>) -> Result<Vec<EncoderOutput>, String> {
        let (grids, values): (Vec<Grid>, Vec<Vec<f32>>) =
            items.into_iter().map(|item| (item.grid, item.values)).unzip();
        let images = sequences(grids.iter().flat_map(|grid| grid.frames.iter().copied()));
        let patches = rows(values.concat(), self.config.patch.len(), &self.device);
        let hidden = timed("patch_embed", || self.patch_embed.forward(patches, Adapters::none()));
        let positions: Vec<f32> = grids.iter().flat_map(|grid| self.positions.of(grid)).collect();
        let width = self.config.block.hidden_size;
        let mut hidden = add(hidden, rows(positions, width, &self.device));
        let mut residual = None;
        for block in &self.blocks {
            let seen = Rows { sequences: &images, rotary: None, watchers: &[] };
            let (output, stream) = block.forward(hidden, residual, seen);
            (hidden, residual) = (output, Some(stream));
        }
        let features = self.last_norm.forward(sum(hidden, residual));
        Ok(apart(&grids, &self.projector.forward(features), &[]))
    }

    fn mapped_bytes(&self) -> u64 {
        self.patch_embed.mapped_bytes() + self.blocks.iter().map(Block::mapped_bytes).sum::<u64>()
    }
}

impl Siglip2Tower {
    /// Loads the tower.
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        config: &Siglip2Config,
        pixels: Pixels,
    ) -> Result<Self, ModelError> {
        let Siglip2Config { ref block, patch, positions_side: side, .. } = *config;
        let hidden = block.hidden_size;
        let module = stored(loader, TOWERS, "embeddings.patch_embedding.weight");
        let full = |name: &str| format!("{module}.{name}");
        let layer = |index: usize| full(&format!("{}.{index}", SIGLIP.layer));
        let table = full("embeddings.position_embedding.weight");
        Ok(Self {
            patch_embed: {
                let module = full(SIGLIP.patches);
                Linear::of_pixels(loader, &module, [hidden, patch.side], true)?
            },
            positions: {
                let values = loader.values(&table, &[side * side, hidden])?;
                ResizedPositions::new(values, side, hidden)
            },
            blocks: (0..config.num_layers)
                .map(|index| Block::load(loader, &layer(index), block))
                .collect::<Result<_, _>>()?,
            last_norm: Norm::load(loader, &full(SIGLIP.last_norm), hidden, block.norm)?,
            projector: Projector::load(loader, PROJECTOR, hidden, &config.projector)?,
            pixels,
            config: config.clone(),
            device: loader.device().clone(),
        })
    }
}
