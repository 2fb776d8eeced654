//! The tower of PaddleOCR-VL (HF `PaddleOCRVisionModel`, `PaddleOCRProjector`): SigLIP for images
//! of any size. Their places are in rotary embeddings, and in learned positions that are sampled
//! for each size.
//!
//! | tensor | shape |
//! |---|---|
//! | pixels of an item | `[height, width, 3]` |
//! | patches | `[rows, 3 · patch_size²]` |
//! | hidden states | `[rows, hidden_size]` |
//! | embeddings | `[rows / merge², text_hidden_size]` |

use burn::tensor::Device;
use playhouse_kernels::{Activation, EmbeddingTable, profile::timed};

use super::batch::{AxialRotary, rows, sequences};
use super::block::{Block, BlockConfig, HeadNorms, Rows, sum};
use super::encoder::Tower;
use super::grid::Grid;
use super::pixels::{PatchSize, Pixels};
use super::projector::{Projector, ProjectorConfig, ProjectorNorm};
use super::qwen::{Patches, add_positions, apart};
use super::vit_names::SIGLIP;
use super::{activation, stored};
use crate::model::config::{ConfigError, Fields, NormConfig};
use crate::model::family::NormKind;
use crate::model::layers::{Linear, Norm, embedding_table};
use crate::model::weight_loader::WeightLoader;
use crate::model::{Adapters, EncoderOutput, MediaInput, ModelError};

/// The places of the tower, in checkpoints as published and inside of `model`.
const TOWERS: &[&str] = &["visual.vision_model", "model.visual.vision_model"];
const PROJECTORS: &[&str] = &["mlp_AR", "model.projector"];
const LINEARS: &[&str] = &["linear_1", "linear_2"];
/// The norm before the projector: torch's own numbers.
const PROJECTOR_NORM: NormConfig =
    NormConfig { kind: NormKind::Layer { has_bias: true }, eps: 1e-5 };

/// The shape of a tower: HF `PaddleOCRVisionConfig`.
#[derive(Debug, Clone)]
pub(super) struct PaddleConfig {
    block: BlockConfig,
    num_layers: usize,
    patch: PatchSize,
    rope_theta: f64,
    /// Places on a side of the grid of learned positions.
    positions_side: usize,
    projector: ProjectorConfig,
}

impl PaddleConfig {
    /// Reads the fields of `vision_config`, for a text model of the width `outputs`.
    ///
    /// # Errors
    /// [`ConfigError`] if a field has no valid value.
    pub(super) fn read(fields: &Fields, outputs: usize) -> Result<Self, ConfigError> {
        const HEADS: &str = "num_attention_heads";
        const IMAGE: &str = "image_size";
        let size = |field: &str, default: usize| {
            Ok::<usize, ConfigError>(fields.size(field)?.unwrap_or(default))
        };
        let (hidden_size, num_heads) = (size("hidden_size", 1_152)?, size(HEADS, 16)?);
        if !hidden_size.is_multiple_of(4 * num_heads) {
            let expected = format!("a divisor of {hidden_size}, with heads of a multiple of 4");
            return Err(fields.invalid(HEADS, &expected));
        }
        if fields.size("num_channels")?.is_some_and(|channels| channels != 3) {
            return Err(fields.invalid("num_channels", "3"));
        }
        let rope = fields.nested("rope_parameters")?;
        let kind = rope.as_ref().map(|rope| rope.text("rope_type")).transpose()?.flatten();
        if let (Some(rope), Some(kind)) = (&rope, kind)
            && !matches!(kind, "axial" | "default")
        {
            return Err(rope.invalid("rope_type", "\"axial\""));
        }
        let theta = rope.map(|rope| rope.positive("rope_theta")).transpose()?.flatten();
        let patch_size = size("patch_size", 14)?;
        let positions_side = size(IMAGE, 384)? / patch_size;
        if positions_side == 0 {
            return Err(fields.invalid(IMAGE, &format!("at least patch_size, {patch_size}")));
        }
        let eps = fields.positive("layer_norm_eps")?.unwrap_or(1e-6) as f32;
        let merge = size("spatial_merge_size", 2)?;
        Ok(Self {
            block: BlockConfig {
                names: &SIGLIP.block,
                hidden_size,
                intermediate_size: size("intermediate_size", 4_304)?,
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
            num_layers: size("num_hidden_layers", 27)?,
            patch: PatchSize { side: patch_size, frames: 1 },
            rope_theta: theta.unwrap_or(10_000.0),
            positions_side,
            projector: ProjectorConfig {
                layers: LINEARS,
                inner: Some(hidden_size * merge * merge),
                is_gated: false,
                activation: Activation::Gelu,
                has_bias: true,
                merge,
                averages: false,
                norm: ProjectorNorm::OfPatch("pre_norm", PROJECTOR_NORM),
                merging: None,
                last_norm: None,
                outputs,
            },
        })
    }
}

/// A tower with its projector.
#[derive(Debug)]
pub(super) struct PaddleTower {
    patch_embed: Linear,
    pos_embed: EmbeddingTable,
    blocks: Vec<Block>,
    last_norm: Norm,
    projector: Projector,
    rotary: AxialRotary,
    pixels: Pixels,
    config: PaddleConfig,
    device: Device,
}

impl Tower for PaddleTower {
    type Prepared = Patches;

    fn prepare(&self, item: &MediaInput<'_>) -> Result<Patches, String> {
        let PaddleConfig { patch, ref projector, .. } = self.config;
        Patches::of(item, &self.pixels, patch, projector.merge, None)
    }

    fn num_embeds(&self, item: &Patches) -> usize {
        item.grid.order.len()
    }

    fn run(&self, items: Vec<Patches>) -> Result<Vec<EncoderOutput>, String> {
        let (grids, values): (Vec<Grid>, Vec<Vec<f32>>) =
            items.into_iter().map(|item| (item.grid, item.values)).unzip();
        let images = sequences(grids.iter().flat_map(|grid| grid.frames.iter().copied()));
        let places: Vec<[u32; 2]> = grids.iter().flat_map(Grid::rows_and_columns).collect();
        let lines: Vec<u32> = (0..places.len() as u32).collect();
        let table = self.rotary.table(&places, &self.device).map_err(|error| error.to_string())?;
        let patches = rows(values.concat(), self.config.patch.len(), &self.device);
        let hidden = timed("patch_embed", || self.patch_embed.forward(patches, Adapters::none()));
        let side = self.config.positions_side;
        let corners: Vec<_> = grids.iter().flat_map(|grid| grid.centered_corners(side)).collect();
        let mut hidden = add_positions(hidden, &corners, &self.pos_embed);
        let mut residual = None;
        for block in &self.blocks {
            let seen = Rows { sequences: &images, rotary: Some((&lines, &table)), watchers: &[] };
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

impl PaddleTower {
    /// Loads the tower.
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        config: &PaddleConfig,
        pixels: Pixels,
    ) -> Result<Self, ModelError> {
        let PaddleConfig { ref block, patch, positions_side, .. } = *config;
        let hidden = block.hidden_size;
        let module = stored(loader, TOWERS, "embeddings.patch_embedding.weight");
        let projector = stored(loader, PROJECTORS, "linear_1.weight");
        let full = |name: &str| format!("{module}.{name}");
        let shape = [hidden, 3, patch.side, patch.side];
        let places = positions_side * positions_side;
        let layer = |index: usize| full(&format!("{}.{index}", SIGLIP.layer));
        Ok(Self {
            patch_embed: Linear::of_patches(loader, &full(SIGLIP.patches), &shape, true)?,
            pos_embed: {
                let module = full("embeddings.position_embedding");
                embedding_table(loader, &module, places, hidden)?
            },
            blocks: (0..config.num_layers)
                .map(|index| Block::load(loader, &layer(index), block))
                .collect::<Result<_, _>>()?,
            last_norm: Norm::load(loader, &full(SIGLIP.last_norm), hidden, block.norm)?,
            projector: Projector::load(loader, projector, hidden, &config.projector)?,
            rotary: AxialRotary::alike(config.rope_theta, block.head_dim()),
            pixels,
            config: config.clone(),
            device: loader.device().clone(),
        })
    }
}
