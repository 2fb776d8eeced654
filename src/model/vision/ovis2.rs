//! The tower of Ovis 2 (HF `Ovis2VisionModel`): a square of patches becomes a share of each word of
//! a visual vocabulary, and its embedding is the sum of their embeddings. The marks around tiles
//! are words, too.
//!
//! | tensor | shape |
//! |---|---|
//! | pixels of an item | `[1 + tiles, image_size, image_size, 3]` |
//! | patches | `[images · side², 3 · patch_size²]` |
//! | shares | `[squares, words]`, of one image at a time |
//! | embeddings | `[squares and marks, text_hidden_size]` |

use burn::tensor::{Device, Tensor, activation::softmax};
use playhouse_kernels::{
    EmbeddingTable, LinearWeight, WeightView, add, embedding, linear, profile::timed, select_rows,
};

use super::batch::{rows, sequences};
use super::block::{Block, Rows, sum};
use super::encoder::Tower;
use super::ovis2_config::{NUM_MARKS, OvisConfig, OvisImages, OvisToken};
use super::pixels::{Images, Pixels};
use super::vit::table;
use crate::model::config::NormConfig;
use crate::model::family::NormKind;
use crate::model::layers::{Linear, Norm, Part};
use crate::model::weight_loader::{WeightLoader, refused};
use crate::model::{Adapters, EncoderOutput, MediaInput, ModelError};

const TOWER: &str = "model.vision_tower";
const WORDS: &str = "model.visual_embeddings_table";
/// The norm of scores: torch's own numbers.
const HEAD_NORM: NormConfig = NormConfig { kind: NormKind::Layer { has_bias: true }, eps: 1e-5 };

/// A tower with its vocabulary.
#[derive(Debug)]
pub(super) struct OvisTower {
    patch_embed: Linear,
    first_norm: Norm,
    pos_embed: EmbeddingTable,
    blocks: Vec<Block>,
    last_norm: Norm,
    head: Linear,
    head_norm: Norm,
    /// `[text_hidden_size, vocab_size]`.
    words: LinearWeight,
    marks: EmbeddingTable,
    pixels: Pixels,
    config: OvisConfig,
    device: Device,
}

/// The patches of an item.
#[derive(Debug)]
pub(super) struct Patches {
    count: usize,
    values: Vec<f32>,
    /// Rows and columns of tiles.
    grid: [usize; 2],
}

impl Tower for OvisTower {
    type Prepared = Patches;

    fn prepare(&self, item: &MediaInput<'_>) -> Result<Patches, String> {
        let images = Images::read(item.tensors.first())?;
        let OvisConfig { patch, image_size, .. } = self.config;
        let grid = match item.tensors.get(1).map(|tensor| tensor.shape) {
            None => [1, 1],
            Some([rows, columns, 0]) => [*rows, *columns],
            Some(shape) => return Err(format!("tiles of {shape:?}")),
        };
        let num_tiles = grid[0].checked_mul(grid[1]);
        if num_tiles.map(OvisImages::with_whole) != Some(images.count) {
            return Err(format!("{} images for tiles of {grid:?}", images.count));
        }
        let values = self.pixels.tiles(images, patch, image_size)?;
        Ok(Patches { count: images.count, values, grid })
    }

    fn num_embeds(&self, item: &Patches) -> usize {
        OvisImages::num_embeds(self.config.squares(), item.grid)
    }

    fn run(&self, items: Vec<Patches>) -> Result<Vec<EncoderOutput>, String> {
        let values: Vec<f32> = items.iter().flat_map(|item| &item.values).copied().collect();
        let features = self.features(values);
        let (squares, [count, width]) = (self.config.squares(), features.dims());
        // The shares of all images together would take much memory.
        let of_image = |image: usize| {
            let own = image * squares..(image + 1) * squares;
            self.embeddings(features.clone().slice([own, 0..width]))
        };
        let mut all: Vec<Tensor<2>> = (0..count / squares).map(of_image).collect();
        all.push(embedding(&self.marks, &std::array::from_fn::<u32, NUM_MARKS, _>(|at| at as u32)));
        let all = Tensor::cat(all, 0);
        let mut first = 0;
        let output = |item: &Patches| {
            let mut square = first * squares;
            first += item.count;
            let mut order = Vec::with_capacity(self.num_embeds(item));
            for token in OvisImages::tokens(item.grid) {
                match token {
                    OvisToken::Mark(mark) => order.push((count + mark) as u32),
                    OvisToken::Image => {
                        order.extend((square..square + squares).map(|row| row as u32));
                        square += squares;
                    }
                }
            }
            EncoderOutput { embeddings: select_rows(all.clone(), &order), by_layer: Vec::new() }
        };
        Ok(items.iter().map(output).collect())
    }

    fn mapped_bytes(&self) -> u64 {
        let layers = [&self.patch_embed, &self.head].into_iter().map(Linear::mapped_bytes);
        let blocks = self.blocks.iter().map(Block::mapped_bytes);
        layers.chain(blocks).sum::<u64>() + self.words.mapped_bytes() as u64
    }
}

impl OvisTower {
    /// Returns the states of the squares of images with these patches, the patches of a square side
    /// by side.
    fn features(&self, values: Vec<f32>) -> Tensor<2> {
        let OvisConfig { patch, stride, ref block, .. } = self.config;
        let (side, none) = (self.config.side(), Adapters::none());
        let patches = rows(values, patch.len(), &self.device);
        let hidden = timed("patch_embed", || self.patch_embed.forward(patches, none));
        let hidden = self.first_norm.forward(hidden);
        let [count, _] = hidden.dims();
        let images = count / (side * side);
        let places: Vec<u32> = (0..images).flat_map(|_| 0..(side * side) as u32).collect();
        let mut hidden = add(hidden, embedding(&self.pos_embed, &places));
        let (sequences, mut residual) = (sequences(std::iter::repeat_n(side * side, images)), None);
        for block in &self.blocks {
            let seen = Rows { sequences: &sequences, rotary: None, watchers: &[] };
            let (output, stream) = block.forward(hidden, residual, seen);
            (hidden, residual) = (output, Some(stream));
        }
        let states = self.last_norm.forward(sum(hidden, residual));
        let order = in_squares(images, side, stride);
        let (unit, width) = (stride * stride, block.hidden_size);
        select_rows(states, &order).reshape([count / unit, unit * width])
    }

    /// Returns the embeddings of squares, `[squares, text_hidden_size]`.
    fn embeddings(&self, squares: Tensor<2>) -> Tensor<2> {
        timed("visual_words", || {
            let scores = self.head.forward(squares, Adapters::none());
            let shares = softmax(self.head_norm.forward(scores), 1);
            let [count, _] = shares.dims();
            let marks = Tensor::zeros([count, NUM_MARKS], &self.device);
            linear(Tensor::cat(vec![shares, marks], 1), &self.words, None)
        })
    }

    /// Loads the tower.
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        config: &OvisConfig,
        pixels: Pixels,
    ) -> Result<Self, ModelError> {
        let OvisConfig { ref block, patch, stride, vocab_size, outputs, .. } = *config;
        let (hidden, side) = (block.hidden_size, config.side());
        let full = |name: &str| format!("{TOWER}.transformer.{name}");
        let layer = |index: usize| full(&format!("encoder.layers.{index}"));
        let shape = [hidden, 3, patch.side, patch.side];
        let stored = loader.values(&format!("{WORDS}.weight"), &[vocab_size, outputs])?;
        let num_words = vocab_size - NUM_MARKS;
        let head = [Part::new(format!("{TOWER}.head_linear"), num_words)];
        Ok(Self {
            patch_embed: {
                Linear::of_patches(loader, &full("embeddings.patch_embedding"), &shape, true)?
            },
            first_norm: Norm::load(loader, &full("embeddings.rms_norm"), hidden, block.norm)?,
            pos_embed: {
                let name = full("embeddings.position_embedding.weight");
                table(loader, &name, 2, [side * side, hidden])?
            },
            blocks: (0..config.num_layers)
                .map(|index| Block::load(loader, &layer(index), block))
                .collect::<Result<_, _>>()?,
            last_norm: Norm::load(loader, &full("rms_norm"), hidden, block.norm)?,
            head: Linear::of_media(loader, &head, stride * stride * hidden, false)?,
            head_norm: { Norm::load(loader, &format!("{TOWER}.head_norm"), num_words, HEAD_NORM)? },
            words: loader.packed(WORDS, [outputs, vocab_size], |loader| {
                let row = |output: usize| stored.iter().skip(output).step_by(outputs).copied();
                let values: Vec<f32> = (0..outputs).flat_map(row).collect();
                let view = [WeightView::F32(&values)];
                let (dtype, device) = (loader.dtype(), loader.device());
                let packed = LinearWeight::pack(&view, vocab_size, dtype, device);
                Ok(packed.map_err(refused(WORDS))?.with_tensor_cores(loader.tensor_cores()))
            })?,
            marks: {
                let view = WeightView::F32(&stored[num_words * outputs..]);
                let (dtype, device) = (loader.dtype(), loader.device());
                EmbeddingTable::new(view, NUM_MARKS, outputs, dtype, device)
                    .map_err(refused(WORDS))?
            },
            pixels,
            config: config.clone(),
            device: loader.device().clone(),
        })
    }
}

/// Returns the rows of the patches of images of `side²` patches, square by square. A square has
/// `stride²` patches.
fn in_squares(images: usize, side: usize, stride: usize) -> Vec<u32> {
    let (unit, on_side) = (stride * stride, side / stride);
    let patch = |at: usize| {
        let (image, at) = (at / (side * side), at % (side * side));
        let (square, inside) = (at / unit, at % unit);
        let row = square / on_side * stride + inside / stride;
        let column = square % on_side * stride + inside % stride;
        ((image * side + row) * side + column) as u32
    };
    (0..images * side * side).map(patch).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_patches_of_a_square_follow_each_other() {
        assert_eq!(in_squares(1, 4, 2)[..8], [0, 1, 4, 5, 2, 3, 6, 7]);
        assert_eq!(in_squares(2, 2, 2), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(in_squares(1, 2, 1), [0, 1, 2, 3]);
    }
}
