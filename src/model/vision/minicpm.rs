//! The tower of MiniCPM-V 4.6 (HF `MiniCPMV4_6VisionModel`, `MiniCPMV4_6Merger`): SigLIP for images
//! of any size. Four patches become one after a layer, and four of those one embedding at the end.
//!
//! | tensor | shape |
//! |---|---|
//! | pixels of an item | `[height, width, 3]` |
//! | patches | `[rows, 3 · patch_size²]` |
//! | hidden states | `[rows, hidden_size]`, and `[rows / 4, hidden_size]` after the windows |
//! | embeddings | `[rows / 16, text_hidden_size]` |
//!
//! The patches of a window follow each other, and so do the four windows of an embedding.

use burn::tensor::{Device, Tensor};
use playhouse_kernels::{
    Activation, AttentionMask, AttentionMetadata, AttentionParams, EmbeddingTable, QkvHeads,
    activate, add, embedding, encoder_attention, profile::timed, qk_norm_rope,
};

use super::batch::{rows, sequences};
use super::block::{Block, BlockConfig, HeadNorms, Rows, sum};
use super::encoder::Tower;
use super::grid::Grid;
use super::llava::side;
use super::pixels::{Images, PatchPlace, PatchSize, Pixels};
use super::projector::{Projector, ProjectorConfig, ProjectorNorm};
use super::qwen::{Patches, apart};
use super::vit::table;
use super::vit_names::SIGLIP;
use super::{activation, stored, token};
use crate::model::config::{ConfigError, Fields, NormConfig};
use crate::model::family::NormKind;
use crate::model::layers::{Linear, Norm, Part};
use crate::model::weight_loader::{WeightLoader, refused};
use crate::model::{Adapters, EncoderOutput, MediaInput, ModelError};

/// Patches of a window, and windows of an embedding.
const UNIT: usize = 4;
/// Patches on a side of an embedding.
const SIDE: usize = 4;
/// The places of the tower, and of the module that merges windows: in checkpoints of transformers
/// and in older ones.
const TOWERS: &[&str] = &["model.vision_tower", "model.vpm"];
const MERGERS: &[&str] = &["model.vision_tower.vit_merger", "model.vit_merger"];
const PROJECTOR: &str = "model.merger.mlp.0";
/// The norm before the projector.
const PROJECTOR_NORM: NormConfig =
    NormConfig { kind: NormKind::Layer { has_bias: true }, eps: 1e-6 };

/// The shape of a tower: HF `MiniCPMV4_6VisionConfig`.
#[derive(Debug, Clone)]
pub(super) struct MiniCpmConfig {
    pub(super) placeholder: u32,
    block: BlockConfig,
    num_layers: usize,
    /// The layer after which windows merge.
    merging_layer: usize,
    patch: PatchSize,
    /// Places on a side of the grid of learned positions.
    positions_side: usize,
    projector: ProjectorConfig,
}

impl MiniCpmConfig {
    /// Reads the fields of `vision_config`, and those of `outer`, for a text model of the width
    /// `outputs`.
    ///
    /// # Errors
    /// [`ConfigError`] if a field has no valid value.
    pub(super) fn read(
        outer: &Fields,
        vision: &Fields,
        outputs: usize,
    ) -> Result<Self, ConfigError> {
        const HEADS: &str = "num_attention_heads";
        const LAYER: &str = "insert_layer_id";
        const PATCH: &str = "patch_size";
        const TIMES: &str = "merger_times";
        const DROPS: &str = "drop_vision_last_layer";
        const PLACEHOLDER: &str = "image_token_id";
        let size = |field: &str, default: usize| {
            Ok::<usize, ConfigError>(vision.size(field)?.unwrap_or(default))
        };
        let (hidden_size, num_heads) = (size("hidden_size", 768)?, size(HEADS, 12)?);
        if !hidden_size.is_multiple_of(num_heads) {
            return Err(vision.invalid(HEADS, &format!("a divisor of {hidden_size}")));
        }
        if vision.size("num_channels")?.is_some_and(|channels| channels != 3) {
            return Err(vision.invalid("num_channels", "3"));
        }
        require_pairs(vision, "window_kernel_size")?;
        require_pairs(outer, "merge_kernel_size")?;
        require_downsampling(outer)?;
        if outer.size(TIMES)?.is_some_and(|times| times != 1) {
            return Err(outer.invalid(TIMES, "1"));
        }
        if outer.flag_or(DROPS, false)? {
            return Err(outer.invalid(DROPS, "false"));
        }
        let num_layers = size("num_hidden_layers", 12)?;
        let merging_layer = outer.count(LAYER)?.unwrap_or(6);
        if merging_layer >= num_layers {
            let expected = format!("a layer of the tower, 0 to {}", num_layers - 1);
            return Err(outer.invalid(LAYER, &expected));
        }
        let patch = side(vision, PATCH, 16)?;
        let image_size = side(vision, "image_size", 224)?;
        if patch > image_size {
            return Err(vision.invalid(PATCH, &format!("at most image_size, {image_size}")));
        }
        let placeholder = token(outer, PLACEHOLDER)?;
        let eps = vision.positive("layer_norm_eps")?.unwrap_or(1e-6) as f32;
        Ok(Self {
            placeholder: placeholder.ok_or_else(|| outer.missing(PLACEHOLDER, "a token id"))?,
            block: BlockConfig {
                names: &SIGLIP.block,
                hidden_size,
                intermediate_size: size("intermediate_size", 3_072)?,
                num_heads,
                num_kv_heads: num_heads,
                norm: NormConfig { kind: NormKind::Layer { has_bias: true }, eps },
                activation: activation(vision, "hidden_act", Activation::GeluTanh)?,
                qkv_bias: true,
                o_bias: true,
                mlp_bias: true,
                head_norms: HeadNorms::None,
                has_neighbour_pairs: false,
            },
            num_layers,
            merging_layer,
            patch: PatchSize { side: patch, frames: 1 },
            positions_side: image_size / patch,
            projector: ProjectorConfig {
                layers: &["linear_1", "linear_2"],
                inner: Some(UNIT * hidden_size),
                is_gated: false,
                activation: Activation::Gelu,
                has_bias: true,
                merge: 2,
                averages: false,
                norm: ProjectorNorm::OfSquare("pre_norm", PROJECTOR_NORM),
                merging: None,
                last_norm: None,
                outputs,
            },
        })
    }
}

/// Refuses a window of other sizes than two rows and two columns.
fn require_pairs(fields: &Fields, field: &str) -> Result<(), ConfigError> {
    let is_pair = |value: &serde_json::Value| *value == serde_json::json!([2, 2]);
    match fields.value(field).is_none_or(is_pair) {
        true => Ok(()),
        false => Err(fields.invalid(field, "[2, 2]")),
    }
}

/// Refuses the mode of more embeddings, in which windows do not merge.
fn require_downsampling(fields: &Fields) -> Result<(), ConfigError> {
    const MODE: &str = "downsample_mode";
    match fields.text(MODE)? {
        None | Some("16x") => Ok(()),
        Some(_) => Err(fields.invalid(MODE, "\"16x\"")),
    }
}

/// The facts about the images of MiniCPM-V that their processor needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MiniCpmImages {
    /// The token in the places of embeddings.
    pub(crate) placeholder: u32,
    /// Pixels on a side of a patch.
    pub(crate) patch: usize,
}

impl MiniCpmImages {
    /// Reads the facts of a model whose `config.json` has the fields `outer`, and whose image
    /// processor has the fields `processor`.
    ///
    /// # Errors
    /// [`ConfigError`] if a field has no valid value.
    pub(crate) fn read(outer: &Fields, processor: &Fields) -> Result<Self, ConfigError> {
        require_downsampling(processor)?;
        let vision = outer.nested("vision_config")?.unwrap_or_else(|| Fields::empty_in(outer));
        let vision_tower = MiniCpmConfig::read(outer, &vision, 1)?;
        Ok(Self { placeholder: vision_tower.placeholder, patch: vision_tower.patch.side })
    }

    /// Returns the pixels on a side of an embedding.
    pub(crate) fn side(self) -> usize {
        SIDE * self.patch
    }
}

/// A tower with its projector.
#[derive(Debug)]
pub(super) struct MiniCpmTower {
    patch_embed: Linear,
    pos_embed: EmbeddingTable,
    blocks: Vec<Block>,
    merger: WindowMerger,
    last_norm: Norm,
    projector: Projector,
    pixels: Pixels,
    config: MiniCpmConfig,
    device: Device,
}

impl Tower for MiniCpmTower {
    type Prepared = Patches;

    fn prepare(&self, item: &MediaInput<'_>) -> Result<Patches, String> {
        let patch = self.config.patch;
        let images = Images::read(item.tensors.first())?;
        let mut grid = Grid::new(images, patch, SIDE, None)?;
        in_windows(&mut grid.places);
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
        let sizes = || grids.iter().flat_map(|grid| grid.frames.iter().copied());
        let (images, merged) = (sequences(sizes()), sequences(sizes().map(|size| size / UNIT)));
        let num_windows = sizes().sum::<usize>() / UNIT;
        let windows = sequences(std::iter::repeat_n(UNIT, num_windows));
        let places: Vec<u32> =
            grids.iter().flat_map(|grid| nearest(grid, self.config.positions_side)).collect();
        let patches = rows(values.concat(), self.config.patch.len(), &self.device);
        let hidden = timed("patch_embed", || self.patch_embed.forward(patches, Adapters::none()));
        let mut hidden = add(hidden, embedding(&self.pos_embed, &places));
        let mut residual = None;
        for (index, block) in self.blocks.iter().enumerate() {
            let is_merged = index > self.config.merging_layer;
            let sequences = if is_merged { &merged } else { &images };
            let seen = Rows { sequences, rotary: None, watchers: &[] };
            let (output, stream) = block.forward(hidden, residual, seen);
            (hidden, residual) = match index == self.config.merging_layer {
                true => (self.merger.forward(sum(output, Some(stream)), &windows), None),
                false => (output, Some(stream)),
            };
        }
        let features = self.last_norm.forward(sum(hidden, residual));
        Ok(apart(&grids, &self.projector.forward(features), &[]))
    }

    fn mapped_bytes(&self) -> u64 {
        let merger = [&self.merger.qkv, &self.merger.o, &self.merger.inner, &self.merger.down];
        let layers = merger.into_iter().chain([&self.patch_embed]).map(Linear::mapped_bytes);
        layers.chain(self.blocks.iter().map(Block::mapped_bytes)).sum()
    }
}

impl MiniCpmTower {
    /// Loads the tower.
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        config: &MiniCpmConfig,
        pixels: Pixels,
    ) -> Result<Self, ModelError> {
        let MiniCpmConfig { ref block, patch, positions_side: places, .. } = *config;
        let hidden = block.hidden_size;
        let module = stored(loader, TOWERS, "embeddings.patch_embedding.weight");
        let merger = stored(loader, MERGERS, "linear_1.weight");
        let full = |name: &str| format!("{module}.{name}");
        let layer = |index: usize| full(&format!("{}.{index}", SIGLIP.layer));
        let shape = [hidden, 3, patch.side, patch.side];
        let (positions, axes) = SIGLIP.positions;
        Ok(Self {
            patch_embed: Linear::of_patches(loader, &full(SIGLIP.patches), &shape, true)?,
            pos_embed: table(loader, &full(positions), axes, [places * places, hidden])?,
            blocks: (0..config.num_layers)
                .map(|index| Block::load(loader, &layer(index), block))
                .collect::<Result<_, _>>()?,
            merger: WindowMerger::load(loader, merger, block)?,
            last_norm: Norm::load(loader, &full(SIGLIP.last_norm), hidden, block.norm)?,
            projector: Projector::load(loader, PROJECTOR, hidden, &config.projector)?,
            pixels,
            config: config.clone(),
            device: loader.device().clone(),
        })
    }
}

/// Merges the four states of a window: HF `MiniCPMV4_6ViTWindowAttentionMerger`.
#[derive(Debug)]
struct WindowMerger {
    norm: Norm,
    qkv: Linear,
    heads: QkvHeads,
    params: AttentionParams,
    o: Linear,
    merged_norm: Norm,
    inner: Linear,
    down: Linear,
}

impl WindowMerger {
    /// Maps `[rows, hidden_size]` to `[rows / 4, hidden_size]`.
    fn forward(&self, hidden: Tensor<2>, windows: &AttentionMetadata) -> Tensor<2> {
        let none = Adapters::none();
        timed("merger", || {
            let qkv = self.qkv.forward(self.norm.forward(hidden.clone()), none);
            let (q, k, v) = qk_norm_rope(qkv, &self.heads, &windows.positions, None);
            let num_heads = self.heads.num_kv_heads;
            let attended = encoder_attention(q, k, v, num_heads, windows, &self.params);
            let hidden = add(hidden, self.o.forward(attended, none));
            let [count, width] = hidden.dims();
            let merged = hidden.clone().reshape([count / UNIT, UNIT * width]);
            let mean = hidden.reshape([count / UNIT, UNIT, width]).mean_dim(1);
            let inner = self.inner.forward(self.merged_norm.forward(merged), none);
            let inner = activate(inner, Activation::GeluTanh);
            add(self.down.forward(inner, none), mean.reshape([count / UNIT, width]))
        })
    }

    /// Loads the module `module`.
    fn load(
        loader: &mut WeightLoader<'_>,
        module: &str,
        block: &BlockConfig,
    ) -> Result<Self, ModelError> {
        let (hidden, num_heads, head_dim) = (block.hidden_size, block.num_heads, block.head_dim());
        let merged = UNIT * hidden;
        let inner = UNIT * block.intermediate_size;
        let full = |name: &str| format!("{module}.{name}");
        let part = |name: &str, outputs: usize| [Part::new(full(name), outputs)];
        let qkv = block.names.qkv.iter().map(|name| Part::new(full(name), hidden));
        let qkv: Vec<Part> = qkv.collect();
        let params = AttentionParams {
            mask: AttentionMask::Both,
            tensor_cores: loader.tensor_cores(),
            ..AttentionParams::new(num_heads, (head_dim as f32).powf(-0.5))
        };
        params.require_place(loader.device()).map_err(refused(&full("self_attn")))?;
        Ok(Self {
            norm: Norm::load(loader, &full("layer_norm1"), hidden, block.norm)?,
            qkv: Linear::of_media(loader, &qkv, hidden, true)?,
            heads: QkvHeads {
                num_heads,
                num_kv_heads: num_heads,
                head_dim,
                q_norm: None,
                k_norm: None,
                norms_after_rope: false,
                eps: block.norm.eps,
                clip: None,
            },
            params,
            o: Linear::of_media(loader, &part(block.names.o, hidden), hidden, true)?,
            merged_norm: Norm::load(loader, &full("pre_norm"), merged, block.norm)?,
            inner: Linear::of_media(loader, &part("linear_1", inner), merged, true)?,
            down: Linear::of_media(loader, &part("linear_2", hidden), inner, true)?,
        })
    }
}

/// Reorders the patches of each square of sixteen: window by window.
fn in_windows(places: &mut [PatchPlace]) {
    for square in places.chunks_exact_mut(SIDE * SIDE) {
        let own = square.to_vec();
        for (at, place) in square.iter_mut().enumerate() {
            let (window, inner) = (at / UNIT, at % UNIT);
            let row = window / 2 * 2 + inner / 2;
            let column = window % 2 * 2 + inner % 2;
            *place = own[row * SIDE + column];
        }
    }
}

/// Returns for each patch the place of a grid of `side²` at the same part of the image: HF
/// `get_vision_nearest_position_ids`.
fn nearest(grid: &Grid, side: usize) -> impl Iterator<Item = u32> + '_ {
    let step = 1.0 / side as f64;
    let count = ((1.0 - step) / step).ceil() as usize;
    let bounds: Vec<f32> = (0..count).map(|at| (step + at as f64 * step) as f32).collect();
    let [num_rows, num_columns] = grid.size();
    let axis = |size: usize| -> Vec<usize> {
        let part = |at: usize| at as f32 / size as f32;
        let place = |at: usize| bounds.partition_point(|bound| *bound <= part(at));
        (0..size).map(|at| place(at).min(side - 1)).collect()
    };
    let [of_rows, of_columns] = [axis(num_rows), axis(num_columns)];
    let places = grid.places.iter();
    places.map(move |place| (of_rows[place.row] * side + of_columns[place.column]) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{MediaData, MediaTensorView};

    fn grid(shape: [usize; 3], patch: usize) -> Grid {
        let data = vec![0; shape.iter().product()];
        let view = MediaTensorView { shape: &shape, data: MediaData::U8(&data) };
        let images = Images::read(Some(&view)).unwrap();
        Grid::new(images, PatchSize { side: patch, frames: 1 }, SIDE, None).unwrap()
    }

    #[test]
    fn windows_follow_each_other() {
        let mut grid = grid([4, 8, 3], 1);
        in_windows(&mut grid.places);
        let places: Vec<[u32; 2]> = grid.rows_and_columns().collect();
        assert_eq!(places[..4], [[0, 0], [0, 1], [1, 0], [1, 1]]);
        assert_eq!(places[4..6], [[0, 2], [0, 3]]);
        assert_eq!(places[8..10], [[2, 0], [2, 1]]);
        assert_eq!(places[16..18], [[0, 4], [0, 5]]);
    }

    #[test]
    fn positions_are_those_of_the_same_part() {
        // `get_vision_nearest_position_ids` of a grid of 7 x 7.
        let grid = grid([4, 8, 3], 1);
        let found: Vec<u32> = nearest(&grid, 7).collect();
        assert_eq!(found[..4], [0, 0, 1, 2]);
        assert_eq!(found[4..8], [7, 7, 8, 9]);
        assert_eq!(found[16..20], [3, 4, 5, 6]);
    }
}
