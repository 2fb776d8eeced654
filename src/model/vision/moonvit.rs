//! MoonViT, the tower of Kimi-VL and Kimi K2.5 (HF `Kimi_K25VisionModel`): images of any size.
//! Learned positions are resized to each image, and heads turn with columns and rows in turns
//! (<https://arxiv.org/abs/2504.07491>).
//!
//! | tensor | shape |
//! |---|---|
//! | pixels of an item | `[1, height, width, 3]` |
//! | patches | `[rows, 3 · patch_size²]` |
//! | hidden states | `[rows, hidden_size]` |
//! | embeddings | `[rows / merge², text_hidden_size]` |

use burn::tensor::Device;
use playhouse_kernels::{EmbeddingTable, WeightView, profile::timed};

use super::batch::{AxialRotary, rows, sequences};
use super::block::{Block, BlockNames, Rows, sum};
use super::encoder::Tower;
use super::grid::Grid;
use super::moonvit_config::{MoonConfig, NORM};
use super::pixels::Pixels;
use super::projector::Projector;
use super::qwen::{Patches, add_positions, apart};
use crate::model::layers::{Linear, Norm};
use crate::model::weight_loader::{WeightLoader, refused};
use crate::model::{Adapters, EncoderOutput, MediaInput, ModelError};

const TOWER: &str = "vision_tower";
/// The names of a layer's modules.
pub(super) const BLOCK: BlockNames = BlockNames {
    attention_norm: "norm0",
    mlp_norm: "norm1",
    qkv: &["wqkv"],
    o: "wo",
    inner: &["mlp.fc0"],
    down: "mlp.fc1",
    factors: None,
    head_norms: None,
};

/// A tower with its projector.
#[derive(Debug)]
pub(super) struct MoonTower {
    patch_embed: Linear,
    positions: EmbeddingTable,
    blocks: Vec<Block>,
    last_norm: Norm,
    projector: Projector,
    rotary: AxialRotary,
    pixels: Pixels,
    config: MoonConfig,
    device: Device,
}

impl Tower for MoonTower {
    type Prepared = Patches;

    fn prepare(&self, item: &MediaInput<'_>) -> Result<Patches, String> {
        let MoonConfig { patch, ref projector, .. } = self.config;
        Patches::of(item, &self.pixels, patch, projector.merge, None)
    }

    fn num_embeds(&self, item: &Patches) -> usize {
        item.grid.order.len()
    }

    fn run(&self, items: Vec<Patches>) -> Result<Vec<EncoderOutput>, String> {
        let (grids, values): (Vec<Grid>, Vec<Vec<f32>>) =
            items.into_iter().map(|item| (item.grid, item.values)).unzip();
        let images = sequences(grids.iter().flat_map(|grid| grid.frames.iter().copied()));
        let places = grids.iter().flat_map(Grid::rows_and_columns);
        let places: Vec<[u32; 2]> = places.map(|[row, column]| [column, row]).collect();
        let lines: Vec<u32> = (0..places.len() as u32).collect();
        let table = self.rotary.table(&places, &self.device).map_err(|error| error.to_string())?;
        let patches = rows(values.concat(), self.config.patch.len(), &self.device);
        let hidden = timed("patch_embed", || self.patch_embed.forward(patches, Adapters::none()));
        let side = self.config.positions_side;
        let taps: Vec<_> = grids.iter().flat_map(|grid| grid.cubic_taps(side)).collect();
        let mut hidden = add_positions(hidden, &taps, &self.positions);
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

impl MoonTower {
    /// Loads the tower.
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        config: &MoonConfig,
        pixels: Pixels,
    ) -> Result<Self, ModelError> {
        let MoonConfig { ref block, patch, positions_side: side, .. } = *config;
        let hidden = block.hidden_size;
        let full = |name: &str| format!("{TOWER}.{name}");
        let shape = [hidden, 3, patch.side, patch.side];
        let layer = |index: usize| full(&format!("encoder.blocks.{index}"));
        Ok(Self {
            patch_embed: Linear::of_patches(loader, &full("patch_embed.proj"), &shape, true)?,
            positions: {
                let name = full("patch_embed.pos_emb.weight");
                let values = loader.values(&name, &[side, side, hidden])?;
                let (view, places) = (WeightView::F32(&values), side * side);
                EmbeddingTable::new(view, places, hidden, loader.dtype(), loader.device())
                    .map_err(refused(&name))?
            },
            blocks: (0..config.num_layers)
                .map(|index| Block::load(loader, &layer(index), block))
                .collect::<Result<_, _>>()?,
            last_norm: Norm::load(loader, &full("encoder.final_layernorm"), hidden, NORM)?,
            projector: Projector::load(loader, config.projector_module, hidden, &config.projector)?,
            rotary: AxialRotary::alternating(config.rope_theta, block.head_dim()),
            pixels,
            config: config.clone(),
            device: loader.device().clone(),
        })
    }
}
