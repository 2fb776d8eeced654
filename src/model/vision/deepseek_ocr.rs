//! The tower of DeepSeek-OCR (vLLM's `DeepseekOCRForCausalLM`, <https://arxiv.org/abs/2510.18234>):
//! SAM, whose features are the patches of CLIP. An embedding is made of the states of both.
//!
//! | tensor | shape |
//! |---|---|
//! | pixels of an item | `[1, base, base, 3]`, and `[tiles, side, side, 3]` |
//! | features | `[views · squares², clip_width + sam_width]` |
//! | embeddings | `[rows · (columns + 1), text_hidden_size]` of tiles and of the whole; a mark |

use burn::tensor::{Device, Tensor};
use playhouse_kernels::{EmbeddingTable, add, embedding, profile::timed, select_rows};

use super::batch::{rows, sequences};
use super::bicubic;
use super::block::{Block, Rows, sum};
use super::deepseek_ocr_config::{CLIP_LAYER, OcrConfig, OcrViews, PATCH};
use super::encoder::Tower;
use super::pixels::{Images, PatchSize, Pixels};
use super::sam::Sam;
use super::vit::table;
use crate::model::layers::{Linear, Norm, Part};
use crate::model::weight_loader::WeightLoader;
use crate::model::{Adapters, EncoderOutput, MediaInput, ModelError};

/// The places of the parts.
pub(super) const SAM: &str = "model.sam_model";
const CLIP_MODEL: &str = "model.vision_model";
pub(super) const PROJECTOR: &str = "model.projector.layers";
const END_OF_ROW: &str = "model.image_newline";
/// The name is misspelt in checkpoints.
pub(super) const END: &str = "model.view_seperator";

/// The two encoders with the projector behind them.
#[derive(Debug)]
pub(super) struct OcrTower {
    sam: Sam,
    class_embed: EmbeddingTable,
    /// CLIP's positions for the whole image and for a tile, `[1 + squares², clip_width]`.
    positions: [Vec<f32>; 2],
    first_norm: Norm,
    blocks: Vec<Block>,
    projector: Linear,
    end_of_row: EmbeddingTable,
    end: EmbeddingTable,
    pixels: Pixels,
    config: OcrConfig,
    device: Device,
}

/// The patches of an image.
#[derive(Debug)]
pub(super) struct Views {
    pub(super) whole: Vec<f32>,
    pub(super) tiles: Vec<f32>,
    /// Rows and columns of tiles.
    pub(super) grid: Option<[usize; 2]>,
}

impl Views {
    /// Reads the whole image and the tiles of an item.
    ///
    /// # Errors
    /// The difference, if it has other images.
    pub(super) fn read(
        item: &MediaInput<'_>,
        pixels: &Pixels,
        patch: PatchSize,
        views: OcrViews,
    ) -> Result<Self, String> {
        let whole = Images::read(item.tensors.first())?;
        if whole.count != 1 {
            return Err(format!("{} whole images", whole.count));
        }
        let whole = pixels.tiles(whole, patch, views.base)?;
        let grid = match item.tensors.get(1).map(|tensor| tensor.shape) {
            None => None,
            Some([rows, columns, 0]) => Some([*rows, *columns]),
            Some(shape) => return Err(format!("tiles of {shape:?}")),
        };
        let Some([rows, columns]) = grid else {
            return Ok(Self { whole, tiles: Vec::new(), grid });
        };
        let tiles = Images::read(item.tensors.get(2))?;
        if rows.checked_mul(columns) != Some(tiles.count) {
            return Err(format!("{} images for tiles of {:?}", tiles.count, [rows, columns]));
        }
        let tiles = pixels.tiles(tiles, patch, views.tile)?;
        Ok(Self { whole, tiles, grid })
    }

    /// Returns the number of tiles.
    pub(super) fn num_tiles(&self) -> usize {
        self.grid.map_or(0, |[rows, columns]| rows * columns)
    }
}

impl Tower for OcrTower {
    type Prepared = Views;

    fn prepare(&self, item: &MediaInput<'_>) -> Result<Views, String> {
        Views::read(item, &self.pixels, self.config.sam.patch, self.config.views)
    }

    fn num_embeds(&self, item: &Views) -> usize {
        self.config.views.num_embeds(item.grid)
    }

    fn run(&self, items: Vec<Views>) -> Result<Vec<EncoderOutput>, String> {
        let wholes: Vec<f32> = items.iter().flat_map(|item| &item.whole).copied().collect();
        let tiles: Vec<f32> = items.iter().flat_map(|item| &item.tiles).copied().collect();
        let mut all = vec![self.views(wholes, 0)];
        if !tiles.is_empty() {
            all.push(self.views(tiles, 1));
        }
        let features = Tensor::cat(all, 0);
        let all = timed("projector", || self.projector.forward(features, Adapters::none()));
        let [end_of_row, end] = [&self.end_of_row, &self.end].map(|vector| embedding(vector, &[0]));
        let [count, _] = all.dims();
        let all = Tensor::cat(vec![all, end_of_row, end], 0);
        let mut first_tile = 0;
        let output = |(at, item): (usize, &Views)| {
            let order = self.order(at, items.len(), first_tile, item.grid, count);
            first_tile += item.num_tiles();
            EncoderOutput { embeddings: select_rows(all.clone(), &order), by_layer: Vec::new() }
        };
        Ok(items.iter().enumerate().map(output).collect())
    }

    fn mapped_bytes(&self) -> u64 {
        let blocks = self.blocks.iter().map(Block::mapped_bytes).sum::<u64>();
        self.sam.mapped_bytes() + blocks + self.projector.mapped_bytes()
    }
}

impl OcrTower {
    /// Returns the features of the views with these patches, `[views · squares², features]`. `size`
    /// is 0 for whole images, and 1 for tiles.
    fn views(&self, patches: Vec<f32>, size: usize) -> Tensor<2> {
        let patches = rows(patches, self.config.sam.patch.len(), &self.device);
        let seen = self.sam.forward(patches, size);
        let squares = self.config.views.squares()[size].pow(2);
        let [count, width] = seen.dims();
        let views = count / squares;
        // The class token is a row behind all others, and comes first in each view.
        let class = embedding(&self.class_embed, &[0]);
        let of_view = |view: usize| {
            std::iter::once(count).chain(view * squares..(view + 1) * squares).map(|row| row as u32)
        };
        let order: Vec<u32> = (0..views).flat_map(of_view).collect();
        let hidden = select_rows(Tensor::cat(vec![seen.clone(), class], 0), &order);
        let hidden = add(hidden, rows(self.positions[size].repeat(views), width, &self.device));
        let (mut hidden, mut residual) = (self.first_norm.forward(hidden), None);
        let sequences = sequences(std::iter::repeat_n(1 + squares, views));
        for block in &self.blocks {
            let seen = Rows { sequences: &sequences, rotary: None, watchers: &[] };
            let (output, stream) = block.forward(hidden, residual, seen);
            (hidden, residual) = (output, Some(stream));
        }
        let squares_of =
            |view: usize| (1..=squares).map(move |row| (view * (1 + squares) + row) as u32);
        let order: Vec<u32> = (0..views).flat_map(squares_of).collect();
        Tensor::cat(vec![select_rows(sum(hidden, residual), &order), seen], 1)
    }

    /// Returns the rows of the embeddings of image `image` of `images`, whose first tile is
    /// `first_tile` of all. The ends of rows have the row `end_of_row`, and the next one is the
    /// mark behind an image.
    fn order(
        &self,
        image: usize,
        images: usize,
        first_tile: usize,
        grid: Option<[usize; 2]>,
        end_of_row: usize,
    ) -> Vec<u32> {
        let [of_whole, of_tile] = self.config.views.squares();
        let mut order = Vec::with_capacity(self.config.views.num_embeds(grid));
        if let Some([rows, columns]) = grid {
            let first = images * of_whole * of_whole;
            for row in 0..rows * of_tile {
                for column in 0..columns * of_tile {
                    let tile = first_tile + row / of_tile * columns + column / of_tile;
                    let within = row % of_tile * of_tile + column % of_tile;
                    order.push((first + tile * of_tile * of_tile + within) as u32);
                }
                order.push(end_of_row as u32);
            }
        }
        for row in 0..of_whole {
            let first = (image * of_whole + row) * of_whole;
            order.extend((first..first + of_whole).map(|row| row as u32));
            order.push(end_of_row as u32);
        }
        order.push(end_of_row as u32 + 1);
        order
    }

    /// Loads the tower.
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        config: &OcrConfig,
        pixels: Pixels,
    ) -> Result<Self, ModelError> {
        let OcrConfig { ref sam, ref clip, clip_side: side, views, outputs, .. } = *config;
        let width = clip.hidden_size;
        let full = |name: &str| format!("{CLIP_MODEL}.{name}");
        let layer = |index: usize| full(&format!("{CLIP_LAYER}.{index}"));
        let sides = [views.base, views.tile].map(|side| side / PATCH);
        let behind = ["net_2", "net_3"].map(|name| format!("{SAM}.{name}"));
        let projector = [Part::new(PROJECTOR.to_owned(), outputs)];
        let inputs = width + sam.channels[2];
        Ok(Self {
            sam: Sam::load(loader, SAM, [&behind[0], &behind[1]], &sides, sam)?,
            class_embed: table(loader, &full("embeddings.class_embedding"), 1, [1, width])?,
            positions: {
                let name = full("embeddings.position_embedding.weight");
                let stored = loader.values(&name, &[1 + side * side, width])?;
                let (class, grid) = stored.split_at(width);
                views
                    .squares()
                    .map(|size| [class, &*bicubic::resized(grid, side, size, width)].concat())
            },
            first_norm: Norm::load(loader, &full("pre_layrnorm"), width, clip.norm)?,
            blocks: (0..config.clip_layers)
                .map(|index| Block::load(loader, &layer(index), clip))
                .collect::<Result<_, _>>()?,
            projector: Linear::of_media(loader, &projector, inputs, true)?,
            end_of_row: table(loader, END_OF_ROW, 1, [1, outputs])?,
            end: table(loader, END, 1, [1, outputs])?,
            pixels,
            config: config.clone(),
            device: loader.device().clone(),
        })
    }
}
