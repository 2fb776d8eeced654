//! The tower of Pixtral, Mistral 3 and LightOnOCR: images of any size, whose places are in rotary
//! embeddings (HF `PixtralVisionModel`).
//!
//! | tensor | shape |
//! |---|---|
//! | pixels of an item | `[height, width, 3]` |
//! | patches | `[rows, 3 · patch_size²]` |
//! | hidden states | `[rows, hidden_size]` |
//! | embeddings | `[rows / merge², text_hidden_size]` |

use burn::tensor::{Device, Tensor};
use playhouse_kernels::{profile::timed, select_rows};

use super::batch::{AxialRotary, rows, sequences};
use super::block::{self, Block, BlockConfig, BlockNames, Rows};
use super::encoder::Tower;
use super::grid::Grid;
use super::pixels::{Images, PatchSize, Pixels};
use super::projector::{Projector, ProjectorConfig};
use crate::model::config::NormConfig;
use crate::model::family::NormKind;
use crate::model::layers::{Linear, Norm};
use crate::model::weight_loader::WeightLoader;
use crate::model::{Adapters, EncoderOutput, MediaInput, ModelError};

/// The names of a layer's modules.
pub(super) const BLOCK: BlockNames = BlockNames {
    attention_norm: "attention_norm",
    mlp_norm: "ffn_norm",
    qkv: &["attention.q_proj", "attention.k_proj", "attention.v_proj"],
    o: "attention.o_proj",
    inner: &["feed_forward.gate_proj", "feed_forward.up_proj"],
    down: "feed_forward.down_proj",
    factors: None,
    head_norms: None,
};
/// The norm of all layers.
pub(super) const NORM: NormConfig = NormConfig { kind: NormKind::Rms, eps: 1e-5 };

/// The shape of a tower.
#[derive(Debug, Clone)]
pub(super) struct PixtralConfig {
    pub(super) block: BlockConfig,
    pub(super) patch: PatchSize,
    pub(super) rope_theta: f64,
    /// The states that are the features of an image: those after this number of layers.
    pub(super) feature_layers: Vec<usize>,
    /// Whether an image may have patches beside whole squares, which have no embedding.
    pub(super) may_have_rest: bool,
    pub(super) projector: ProjectorConfig,
}

/// A tower with its projector.
#[derive(Debug)]
pub(super) struct PixtralTower {
    patch_conv: Linear,
    first_norm: Norm,
    blocks: Vec<Block>,
    projector: Projector,
    rotary: AxialRotary,
    pixels: Pixels,
    config: PixtralConfig,
    device: Device,
}

/// The patches of an item, and their places.
#[derive(Debug)]
pub(super) struct Patches {
    grid: Grid,
    values: Vec<f32>,
}

impl Tower for PixtralTower {
    type Prepared = Patches;

    fn prepare(&self, item: &MediaInput<'_>) -> Result<Patches, String> {
        let images = Images::read(item.tensors.first())?;
        let PixtralConfig { patch, ref projector, may_have_rest, .. } = self.config;
        let grid = match may_have_rest {
            true => Grid::with_rest(images, patch, projector.merge)?,
            false => Grid::new(images, patch, projector.merge, None)?,
        };
        let mut values = Vec::with_capacity(grid.places.len() * patch.len());
        for place in &grid.places {
            self.pixels.push_patch(images, patch, *place, &mut values);
        }
        Ok(Patches { grid, values })
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
        let hidden = timed("patch_embed", || self.patch_conv.forward(patches, Adapters::none()));
        let seen = Rows { sequences: &images, rotary: Some((&lines, &table)), watchers: &[] };
        let hidden = self.first_norm.forward(hidden);
        let layers = &self.config.feature_layers;
        let features = block::features(&self.blocks, hidden, seen, layers, |state, _| state);
        let all = self.projector.forward(self.in_squares(&grids, features));
        let mut first = 0;
        let outputs = grids.iter().map(|grid| {
            let order: Vec<u32> = grid.order.iter().map(|square| square + first).collect();
            first += order.len() as u32;
            EncoderOutput { embeddings: select_rows(all.clone(), &order), by_layer: Vec::new() }
        });
        Ok(outputs.collect())
    }

    fn mapped_bytes(&self) -> u64 {
        self.patch_conv.mapped_bytes() + self.blocks.iter().map(Block::mapped_bytes).sum::<u64>()
    }
}

impl PixtralTower {
    /// Returns the features of patches in squares.
    fn in_squares(&self, grids: &[Grid], features: Tensor<2>) -> Tensor<2> {
        if !self.config.may_have_rest {
            return features;
        }
        let (mut kept, mut first) = (Vec::new(), 0);
        for grid in grids {
            let count = grid.num_in_squares(self.config.projector.merge);
            kept.extend((first..first + count).map(|row| row as u32));
            first += grid.places.len();
        }
        match kept.len() == first {
            true => features,
            false => select_rows(features, &kept),
        }
    }

    /// Loads the tower `module`, and the projector `projector`.
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        module: &str,
        projector: &str,
        config: &PixtralConfig,
        pixels: Pixels,
    ) -> Result<Self, ModelError> {
        let PixtralConfig { ref block, patch, rope_theta, ref feature_layers, .. } = *config;
        let hidden = block.hidden_size;
        let full = |name: &str| format!("{module}.{name}");
        let shape = [hidden, 3, patch.side, patch.side];
        let num_blocks = feature_layers.iter().copied().max().unwrap_or_default();
        let layer = |index: usize| full(&format!("transformer.layers.{index}"));
        Ok(Self {
            patch_conv: Linear::of_patches(loader, &full("patch_conv"), &shape, false)?,
            first_norm: Norm::load(loader, &full("ln_pre"), hidden, NORM)?,
            blocks: (0..num_blocks)
                .map(|index| Block::load(loader, &layer(index), block))
                .collect::<Result<_, _>>()?,
            projector: {
                let inputs = hidden * feature_layers.len();
                Projector::load(loader, projector, inputs, &config.projector)?
            },
            rotary: AxialRotary::in_turns(rope_theta, block.head_dim()),
            pixels,
            config: config.clone(),
            device: loader.device().clone(),
        })
    }
}
