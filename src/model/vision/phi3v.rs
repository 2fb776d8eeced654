//! The tower of Phi-3-vision: CLIP over the tiles of an image and over the whole image
//! (`Phi3ImageEmbedding` of its authors' code, vLLM's `Phi3HDImageEmbedding`).
//!
//! | tensor | shape |
//! |---|---|
//! | pixels of an item | `[tiles, image_size, image_size, 3]` |
//! | second tensor, without elements | `[rows, columns, 0]`: those of tiles |
//! | third tensor: the whole image, scaled | `[3, image_size, image_size]` f32 |
//! | features | `[squares · 4, hidden_size]`: the four patches of a square follow each other |
//! | embeddings | `[rows · (columns + 1) + 1 + side · (side + 1), text_hidden_size]` |
//!
//! The squares of the tiles come first, row by row, and then those of the whole image. A learned
//! vector ends each row, and another one is between the two. Both are as wide as a square.

use burn::tensor::Tensor;
use playhouse_kernels::{Activation, EmbeddingTable, WeightView, embedding, select_rows};
use serde_json::Value;

use super::batch::rows;
use super::encoder::Tower;
use super::llava::load_vit;
use super::phi4::{floats, push_floats};
use super::pixels::{Images, Pixels};
use super::projector::{ProjectorConfig, ProjectorNorm};
use super::vit::{VitConfig, VitTower};
use crate::model::config::{ConfigError, Fields};
use crate::model::weight_loader::{WeightLoader, refused};
use crate::model::{EncoderOutput, MediaInput, ModelError};

pub(super) const MODULE: &str = "model.vision_embed_tokens";
pub(super) const TOWER: &str = "model.vision_embed_tokens.img_processor.vision_model";
/// The sizes of `openai/clip-vit-large-patch14-336`, which are in the authors' code.
pub(super) const SIZES: [usize; 6] = [1_024, 4_096, 24, 16, 336, 14];

/// Patches of a square.
const UNIT: usize = 4;

/// Returns the projector, whose inputs are squares of four patches.
pub(super) fn projector(outputs: usize) -> ProjectorConfig {
    ProjectorConfig {
        layers: &["img_projection.0", "img_projection.2"],
        inner: None,
        is_gated: false,
        activation: Activation::Gelu,
        has_bias: true,
        merge: 2,
        averages: false,
        norm: ProjectorNorm::None,
        merging: None,
        last_norm: None,
        outputs,
    }
}

/// Returns after how many layers the states are features. Checks that the order of embeddings is
/// the published one.
pub(super) fn feature_layer(outer: &Fields, num_layers: usize) -> Result<usize, ConfigError> {
    const ORDER: &str = "hd_transform_order";
    const FEATURE: &str = "type_feature";
    const LAYER: &str = "layer_idx";
    if let Some(layer) = outer.nested("embd_layer")? {
        // The default of the authors' code is another order.
        if layer.text(ORDER)? != Some("sub_glb") {
            return Err(layer.invalid(ORDER, "\"sub_glb\""));
        }
        for field in ["use_hd_transform", "with_learnable_separator"] {
            if !layer.flag_or(field, false)? {
                return Err(layer.invalid(field, "true"));
            }
        }
    }
    let encoder = outer.nested("img_processor")?.unwrap_or_else(|| Fields::empty_in(outer));
    if encoder.text(FEATURE)?.is_some_and(|value| value != "patch") {
        return Err(encoder.invalid(FEATURE, "\"patch\""));
    }
    let index = match encoder.value(LAYER) {
        None => Some(-2),
        Some(value) => Value::as_i64(value),
    };
    let states = num_layers as i64 + 1;
    let index = index.map(|index| if index < 0 { states + index } else { index });
    let found = index.filter(|index| (0..states).contains(index));
    let expected = format!("a number from -{states} to {num_layers}");
    found.map(|index| index as usize).ok_or_else(|| encoder.invalid(LAYER, &expected))
}

/// A tower with its projector.
#[derive(Debug)]
pub(super) struct Phi3VTower {
    vit: VitTower,
    /// The patches of the square at the end of a row, and of the one between tiles and whole image.
    separators: EmbeddingTable,
}

/// The patches of an item.
#[derive(Debug)]
pub(super) struct Patches {
    values: Vec<f32>,
    /// Rows and columns of tiles.
    grid: [usize; 2],
}

impl Phi3VTower {
    /// Returns the squares on a side of a tile.
    fn half(&self) -> usize {
        self.vit.config.side() / 2
    }

    /// Returns the square of each embedding of an image whose first square is `first`. The two of
    /// `separators` end a row, and divide the tiles from the whole image.
    fn order(&self, grid: [usize; 2], first: usize, separators: [usize; 2]) -> Vec<u32> {
        let (half, [rows, columns]) = (self.half(), grid);
        let square = |row: usize, column: usize| {
            let tile = row / half * columns + column / half;
            first + tile * half * half + row % half * half + column % half
        };
        let mut order = Vec::new();
        for row in 0..rows * half {
            order.extend((0..columns * half).map(|column| square(row, column)));
            order.push(separators[0]);
        }
        order.push(separators[1]);
        let whole = first + rows * columns * half * half;
        for row in 0..half {
            order.extend((0..half).map(|column| whole + row * half + column));
            order.push(separators[0]);
        }
        order.into_iter().map(|square| square as u32).collect()
    }

    /// Loads the tower with its projector.
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        config: &VitConfig,
        pixels: Pixels,
    ) -> Result<Self, ModelError> {
        let vit = load_vit(loader, config, pixels)?;
        let width = config.block.hidden_size;
        let end = loader.values(&format!("{MODULE}.sub_GN"), &[1, 1, 1, UNIT * width])?;
        let name = format!("{MODULE}.glb_GN");
        let between = loader.values(&name, &[1, 1, UNIT * width])?;
        let values = [end, between].concat();
        let (dtype, device) = (loader.dtype(), loader.device());
        let view = WeightView::F32(&values);
        let separators = EmbeddingTable::new(view, 2 * UNIT, width, dtype, device);
        Ok(Self { vit, separators: separators.map_err(refused(&name))? })
    }
}

impl Tower for Phi3VTower {
    type Prepared = Patches;

    fn prepare(&self, item: &MediaInput<'_>) -> Result<Patches, String> {
        let VitConfig { image_size, patch, .. } = self.vit.config;
        let [pixels, shape, whole] = &*item.tensors else {
            return Err("an image is its tiles, their grid, and the whole image".to_owned());
        };
        let images = Images::read(Some(pixels))?;
        let grid = match *shape.shape {
            [rows, columns, 0] if rows * columns == images.count => [rows, columns],
            _ => return Err("the item has no grid of its tiles".to_owned()),
        };
        let mut values = self.vit.pixels.tiles(images, patch, image_size)?;
        let (whole, side) = (floats(whole, image_size)?, self.vit.config.side());
        for at in 0..side * side {
            push_floats(&whole, image_size, patch, [at / side, at % side], &mut values);
        }
        Ok(Patches { values, grid })
    }

    fn num_embeds(&self, item: &Patches) -> usize {
        self.order(item.grid, 0, [0; 2]).len()
    }

    fn run(&self, items: Vec<Patches>) -> Result<Vec<EncoderOutput>, String> {
        let values: Vec<&[f32]> = items.iter().map(|item| &*item.values).collect();
        let patches = rows(values.concat(), self.vit.config.patch.len(), &self.vit.device);
        let num_images = |item: &Patches| item.grid[0] * item.grid[1] + 1;
        let images: usize = items.iter().map(num_images).sum();
        let features = self.vit.features(self.vit.embedded(patches), images);
        let ends: Vec<u32> = (0..2 * UNIT as u32).collect();
        let features = Tensor::cat(vec![features, embedding(&self.separators, &ends)], 0);
        let all = self.vit.projector.forward(features);
        let (squares, mut first) = (self.half().pow(2), 0);
        let separators = [0, 1].map(|at| images * squares + at);
        let of_item = |item: Patches| {
            let order = self.order(item.grid, first, separators);
            first += num_images(&item) * squares;
            EncoderOutput { embeddings: select_rows(all.clone(), &order), by_layer: Vec::new() }
        };
        Ok(items.into_iter().map(of_item).collect())
    }

    fn mapped_bytes(&self) -> u64 {
        self.vit.mapped_bytes()
    }
}
