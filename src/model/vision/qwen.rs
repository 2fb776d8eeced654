//! The towers of Qwen2-VL, Qwen2.5-VL and Qwen3-VL: images of any size, whose places are in rotary
//! embeddings (HF `Qwen2VisionTransformerPretrainedModel`,
//! `Qwen2_5_VisionTransformerPretrainedModel`, `Qwen3VLVisionModel`).
//!
//! | tensor | shape |
//! |---|---|
//! | pixels of an item | `[height, width, 3]`, or `[frames, height, width, 3]` |
//! | patches | `[rows, 3 · temporal_patch_size · patch_size²]` |
//! | hidden states | `[rows, hidden_size]` |
//! | embeddings | `[rows / merge², out_hidden_size]` |
//!
//! The patches of a square of `merge²` follow each other, because one embedding is made of them. In
//! Qwen2.5-VL, squares are in the order of the windows that most layers attend to.

use burn::tensor::{Device, Tensor};
use playhouse_kernels::{
    Activation, AttentionMetadata, EmbeddingTable, activate, add, embedding, profile::timed,
    scale_rows, select_rows,
};

use super::batch::{AxialRotary, rows, sequences};
use super::block::{Block, BlockConfig, BlockNames, Rows, sum};
use super::encoder::Tower;
use super::grid::Grid;
use super::pixels::{Images, PatchSize, Pixels};
use crate::model::config::NormConfig;
use crate::model::layers::{Linear, Norm, Part, embedding_table};
use crate::model::weight_loader::WeightLoader;
use crate::model::{Adapters, EncoderOutput, MediaInput, ModelError};

/// The module of patches of Qwen.
pub(super) const PATCHES: &str = "patch_embed.proj";

/// The names of the modules beside the layers.
#[derive(Debug)]
pub(super) struct QwenNames {
    pub(super) block: BlockNames,
    pub(super) merger: MergerNames,
    pub(super) deep_merger: MergerNames,
}

/// The names of a merger's modules.
#[derive(Debug)]
pub(super) struct MergerNames {
    pub(super) module: &'static str,
    pub(super) norm: &'static str,
    pub(super) inner: &'static str,
    pub(super) outer: &'static str,
}

/// The shape of a tower.
#[derive(Debug, Clone)]
pub(super) struct QwenConfig {
    pub(super) names: &'static QwenNames,
    pub(super) block: BlockConfig,
    pub(super) depth: usize,
    pub(super) patch: PatchSize,
    /// The module of patches.
    pub(super) patch_module: &'static str,
    pub(super) patch_bias: bool,
    /// The norms of patches and of the states after the last layer, if there are some: the modules
    /// of `DotsVisionTransformer`.
    pub(super) patch_norm: Option<(&'static str, NormConfig)>,
    pub(super) last_norm: Option<(&'static str, NormConfig)>,
    /// Patches on a side of a square.
    pub(super) merge: usize,
    pub(super) out_hidden_size: usize,
    pub(super) merger_norm: NormConfig,
    pub(super) rope_theta: f64,
    /// Squares on a side of a window, if layers attend to windows.
    pub(super) window: Option<usize>,
    /// The layers that attend to whole frames, if the others attend to windows.
    pub(super) full_layers: Vec<usize>,
    /// Places on a side of the grid of learned positions, if there are some.
    pub(super) positions_side: Option<usize>,
    /// The layers whose states are added in the text model.
    pub(super) deep_layers: Vec<usize>,
}

/// A tower with its mergers.
#[derive(Debug)]
pub(super) struct QwenTower {
    patch_embed: Linear,
    patch_norm: Option<Norm>,
    pos_embed: Option<(EmbeddingTable, usize)>,
    blocks: Vec<Block>,
    last_norm: Option<Norm>,
    merger: Merger,
    /// Mergers after layers.
    deep_mergers: Vec<(usize, Merger)>,
    rotary: AxialRotary,
    pixels: Pixels,
    config: QwenConfig,
    device: Device,
}

/// The patches of an item, and their places.
#[derive(Debug)]
pub(super) struct Patches {
    pub(super) grid: Grid,
    pub(super) values: Vec<f32>,
}

impl Patches {
    /// Cuts the images of an item into patches, in squares of `merge²`.
    ///
    /// # Errors
    /// The reason why the item has no such patches.
    pub(super) fn of(
        item: &MediaInput<'_>,
        pixels: &Pixels,
        patch: PatchSize,
        merge: usize,
        window: Option<usize>,
    ) -> Result<Self, String> {
        let images = Images::read(item.tensors.first())?;
        let grid = Grid::new(images, patch, merge, window)?;
        let mut values = Vec::with_capacity(grid.places.len() * patch.len());
        for place in &grid.places {
            pixels.push_patch(images, patch, *place, &mut values);
        }
        Ok(Self { grid, values })
    }
}

impl Tower for QwenTower {
    type Prepared = Patches;

    fn prepare(&self, item: &MediaInput<'_>) -> Result<Patches, String> {
        let QwenConfig { patch, merge, window, .. } = self.config;
        Patches::of(item, &self.pixels, patch, merge, window)
    }

    fn num_embeds(&self, item: &Patches) -> usize {
        item.grid.order.len()
    }

    fn run(&self, items: Vec<Patches>) -> Result<Vec<EncoderOutput>, String> {
        let (grids, values): (Vec<Grid>, Vec<Vec<f32>>) =
            items.into_iter().map(|item| (item.grid, item.values)).unzip();
        let frames = sequences(grids.iter().flat_map(|grid| grid.frames.iter().copied()));
        let windows = sequences(grids.iter().flat_map(|grid| grid.windows.iter().copied()));
        let places: Vec<[u32; 2]> = grids.iter().flat_map(Grid::rows_and_columns).collect();
        let lines: Vec<u32> = (0..places.len() as u32).collect();
        let table = self.rotary.table(&places, &self.device).map_err(|error| error.to_string())?;
        let patches = rows(values.concat(), self.config.patch.len(), &self.device);
        let mut hidden =
            timed("patch_embed", || self.patch_embed.forward(patches, Adapters::none()));
        if let Some(norm) = &self.patch_norm {
            hidden = norm.forward(hidden);
        }
        if let Some((table, side)) = &self.pos_embed {
            let corners: Vec<_> = grids.iter().flat_map(|grid| grid.corners(*side)).collect();
            hidden = add_positions(hidden, &corners, table);
        }
        let (mut residual, mut deep) = (None, Vec::new());
        for (index, block) in self.blocks.iter().enumerate() {
            let sequences = self.sequences_of(index, &frames, &windows);
            let seen = Rows { sequences, rotary: Some((&lines, &table)), watchers: &[] };
            let (output, stream) = block.forward(hidden, residual, seen);
            (hidden, residual) = (output, Some(stream));
            for (_, merger) in self.deep_mergers.iter().filter(|(layer, _)| *layer == index) {
                deep.push(merger.forward(sum(hidden.clone(), residual.clone())));
            }
        }
        let mut last = sum(hidden, residual);
        if let Some(norm) = &self.last_norm {
            last = norm.forward(last);
        }
        let merged = self.merger.forward(last);
        Ok(apart(&grids, &merged, &deep))
    }

    fn mapped_bytes(&self) -> u64 {
        self.patch_embed.mapped_bytes() + self.blocks.iter().map(Block::mapped_bytes).sum::<u64>()
    }
}

impl QwenTower {
    /// Returns the sequences that layer `index` attends to.
    fn sequences_of<'s>(
        &self,
        index: usize,
        frames: &'s AttentionMetadata,
        windows: &'s AttentionMetadata,
    ) -> &'s AttentionMetadata {
        match self.config.window.is_none() || self.config.full_layers.contains(&index) {
            true => frames,
            false => windows,
        }
    }

    /// Loads the tower `module`.
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        module: &str,
        config: &QwenConfig,
        pixels: Pixels,
    ) -> Result<Self, ModelError> {
        let QwenConfig { names, ref block, patch, positions_side, .. } = *config;
        let hidden = block.hidden_size;
        let shape = [hidden, 3, patch.frames, patch.side, patch.side];
        let flat = [hidden, 3, patch.side, patch.side];
        // The first module of patches spans frames.
        let spans_frames = config.patch_module == PATCHES;
        let shape: &[usize] = if spans_frames { &shape } else { &flat };
        let proj = format!("{module}.{}", config.patch_module);
        let patch_embed = Linear::of_patches(loader, &proj, shape, config.patch_bias)?;
        let norm = |loader: &mut WeightLoader<'_>, named: Option<(&str, NormConfig)>| {
            let norm = named
                .map(|(name, norm)| Norm::load(loader, &format!("{module}.{name}"), hidden, norm));
            norm.transpose()
        };
        let patch_norm = norm(loader, config.patch_norm)?;
        let last_norm = norm(loader, config.last_norm)?;
        let pos_embed = positions_side.map(|side| {
            let module = format!("{module}.pos_embed");
            Ok::<_, ModelError>((embedding_table(loader, &module, side * side, hidden)?, side))
        });
        let pos_embed = pos_embed.transpose()?;
        let blocks = (0..config.depth)
            .map(|index| Block::load(loader, &format!("{module}.blocks.{index}"), block))
            .collect::<Result<_, _>>()?;
        let merger = format!("{module}.{}", names.merger.module);
        let merger = Merger::load(loader, &merger, &names.merger, config, false)?;
        let deep_mergers = config.deep_layers.iter().enumerate().map(|(index, layer)| {
            let module = format!("{module}.{}.{index}", names.deep_merger.module);
            Ok((*layer, Merger::load(loader, &module, &names.deep_merger, config, true)?))
        });
        Ok(Self {
            patch_embed,
            patch_norm,
            pos_embed,
            blocks,
            last_norm,
            merger,
            deep_mergers: deep_mergers.collect::<Result<_, ModelError>>()?,
            rotary: AxialRotary::alike(config.rope_theta, block.head_dim()),
            pixels,
            config: config.clone(),
            device: loader.device().clone(),
        })
    }
}

/// Adds to each row the learned position of its place: a weighted sum of `N` places of the table's
/// grid.
pub(super) fn add_positions<const N: usize>(
    hidden: Tensor<2>,
    taps: &[[(u32, f32); N]],
    table: &EmbeddingTable,
) -> Tensor<2> {
    let of = |tap: usize| {
        let ids: Vec<u32> = taps.iter().map(|taps| taps[tap].0).collect();
        let weights: Vec<f32> = taps.iter().map(|taps| taps[tap].1).collect();
        scale_rows(embedding(table, &ids), &weights)
    };
    let positions = (1..N).fold(of(0), |sum, tap| add(sum, of(tap)));
    add(hidden, positions)
}

/// Returns the result of each item, its embeddings in the order of rows and columns.
pub(super) fn apart(grids: &[Grid], merged: &Tensor<2>, deep: &[Tensor<2>]) -> Vec<EncoderOutput> {
    let mut first = 0;
    let outputs = grids.iter().map(|grid| {
        let order: Vec<u32> = grid.order.iter().map(|square| square + first).collect();
        first += order.len() as u32;
        let of = |all: &Tensor<2>| select_rows(all.clone(), &order);
        EncoderOutput { embeddings: of(merged), by_layer: deep.iter().map(of).collect() }
    });
    outputs.collect()
}

/// Makes one vector of the text model's width of the patches of a square (HF
/// `Qwen2_5_VLPatchMerger`).
#[derive(Debug)]
struct Merger {
    norm: Norm,
    /// Whether the norm is over a square, and not over each patch.
    is_norm_of_square: bool,
    inner: Linear,
    outer: Linear,
    unit: usize,
}

impl Merger {
    /// Maps `[rows, hidden_size]` to `[rows / unit, out_hidden_size]`.
    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let [count, width] = x.dims();
        let merged = |x: Tensor<2>| x.reshape([count / self.unit, width * self.unit]);
        let x = match self.is_norm_of_square {
            true => self.norm.forward(merged(x)),
            false => merged(self.norm.forward(x)),
        };
        timed("merger", || {
            let inner = activate(self.inner.forward(x, Adapters::none()), Activation::Gelu);
            self.outer.forward(inner, Adapters::none())
        })
    }

    fn load(
        loader: &mut WeightLoader<'_>,
        module: &str,
        names: &MergerNames,
        config: &QwenConfig,
        is_norm_of_square: bool,
    ) -> Result<Self, ModelError> {
        let unit = config.merge * config.merge;
        let (hidden, merged) = (config.block.hidden_size, config.block.hidden_size * unit);
        let full = |name: &str| format!("{module}.{name}");
        let inner = [Part::new(full(names.inner), merged)];
        let outer = [Part::new(full(names.outer), config.out_hidden_size)];
        let normed = if is_norm_of_square { merged } else { hidden };
        Ok(Self {
            norm: Norm::load(loader, &full(names.norm), normed, config.merger_norm)?,
            is_norm_of_square,
            inner: Linear::of_media(loader, &inner, merged, true)?,
            outer: Linear::of_media(loader, &outer, merged, true)?,
            unit,
        })
    }
}
