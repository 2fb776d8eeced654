//! The tower of Phi-4-multimodal: SigLIP over the tiles of an image and over the whole image, whose
//! padding is masked (HF `Phi4MultimodalVisionModel`, `Phi4MultimodalImageEmbedding`).
//!
//! | tensor | shape |
//! |---|---|
//! | pixels of an item | `[tiles, image_size, image_size, 3]` |
//! | second tensor, without elements | rows and columns of tiles, and of patches with the image |
//! | third tensor: the whole image, scaled | `[3, image_size, image_size]` f32 |
//! | patches | `[patches that are computed, 3 · patch_size²]` |
//! | features | the means of squares of four states, `[squares, hidden_size]` |
//! | embeddings | `[rows · (columns + 1) + 1 + side · (side + 1), text_hidden_size]` |
//!
//! The squares of the tiles come first, row by row, and then those of the whole image. A learned
//! vector ends each row, and another one is between the two.

use burn::tensor::{Device, Tensor};
use playhouse_kernels::{
    Activation, EmbeddingTable, activate, add, embedding, profile::timed, select_rows,
};

use super::batch::{rows, sequences};
use super::block::{self, Block, Rows, Watchers};
use super::encoder::Tower;
use super::phi4_config::Phi4Config;
use super::phi4_tiles::{Phi4Tiles, TilePatches, spread};
use super::pixels::{Images, PatchPlace, PatchSize, Pixels};
use super::stored;
use super::vit::table;
use crate::model::layers::{Linear, Part};
use crate::model::weight_loader::WeightLoader;
use crate::model::{Adapters, EncoderOutput, MediaData, MediaInput, MediaTensorView, ModelError};

const MODULE: &str = "model.embed_tokens_extend.image_embed";
const TOWER: &str = "model.embed_tokens_extend.image_embed.img_processor";

/// The modules of the projector, in transformers and in the authors' code. So are the tensors of
/// the vectors between squares, with the number of their axes.
const UP: [&str; 2] = ["img_projection_up", "img_projection.0"];
const DOWN: [&str; 2] = ["img_projection_down", "img_projection.2"];
const END_OF_ROW: ([&str; 2], usize) = (["sub_img_feature_extensor", "sub_GN"], 4);
const BETWEEN: ([&str; 2], usize) = (["global_img_feature_extensor", "glb_GN"], 3);

/// A tower with its projector.
#[derive(Debug)]
pub(super) struct Phi4Tower {
    patch_embed: Linear,
    pos_embed: EmbeddingTable,
    blocks: Vec<Block>,
    /// The vector at the end of a row, and the one between tiles and whole image.
    separators: [EmbeddingTable; 2],
    up: Linear,
    down: Linear,
    pixels: Pixels,
    config: Phi4Config,
    device: Device,
}

/// One of an image's embeddings before the projector.
#[derive(Debug, Clone, Copy)]
enum Row {
    /// The mean of a square, by its index.
    Square(usize),
    /// One of the two separators.
    Separator(usize),
}

/// The patches of an item.
#[derive(Debug, Default)]
pub(super) struct Patches {
    /// Those that hold a part of the image, tile by tile, and those in the padding.
    used: Vec<f32>,
    padded: Vec<f32>,
    /// The numbers of both in each tile. The whole image is the last.
    counts: Vec<[usize; 2]>,
    /// The place of each patch with a part of the image in the table.
    places: Vec<u32>,
    /// The patches of each square: a tile, and an index in it.
    squares: Vec<(usize, [usize; 4])>,
    rows: Vec<Row>,
}

impl Patches {
    /// Adds the patches of a tile. `push` appends one at a row and a column.
    fn add_tile(
        &mut self,
        tile: &TilePatches,
        used: [usize; 2],
        side: usize,
        push: impl Fn([usize; 2], &mut Vec<f32>),
    ) {
        let [rows, columns] = used.map(|count| spread(count, side));
        for place in &tile.used {
            push(*place, &mut self.used);
            self.places.push(rows[place[0]] * side as u32 + columns[place[1]]);
        }
        for place in &tile.padded {
            push(*place, &mut self.padded);
        }
        self.counts.push([tile.used.len(), tile.padded.len()]);
    }

    /// Adds a square of the tile with the index `index`.
    fn add_square(
        &mut self,
        (index, tile): (usize, &TilePatches),
        square: [usize; 2],
        side: usize,
    ) -> Result<(), String> {
        let patches = tile.of_square(square, side).ok_or("a square has no patches")?;
        self.rows.push(Row::Square(self.squares.len()));
        self.squares.push((index, patches));
        Ok(())
    }
}

impl Tower for Phi4Tower {
    type Prepared = Patches;

    fn prepare(&self, item: &MediaInput<'_>) -> Result<Patches, String> {
        let Phi4Config { patch, image_size, .. } = self.config;
        let side = self.config.patches();
        let [pixels, shape, whole] = &*item.tensors else {
            return Err("an image is its tiles, their grid, and the whole image".to_owned());
        };
        let images = Images::read(Some(pixels))?;
        if [images.height, images.width] != [image_size; 2] {
            let (height, width) = (images.height, images.width);
            return Err(format!("a tile of {height} x {width} pixels; expected {image_size}"));
        }
        let tiles = Phi4Tiles::of_shape(shape.shape, side);
        let tiles = tiles.filter(|tiles| tiles.grid[0] * tiles.grid[1] == images.count);
        let tiles = tiles.ok_or("the item has no grid of its tiles")?;
        let whole = floats(whole, image_size)?;
        let mut patches = Patches::default();
        let mut all = Vec::with_capacity(images.count + 1);
        for frame in 0..images.count {
            let (row, column) = (frame / tiles.grid[1], frame % tiles.grid[1]);
            let used = tiles.used_of(row, column, side);
            let tile = TilePatches::new(side, used);
            patches.add_tile(&tile, used, side, |[row, column], out| {
                self.pixels.push_patch(images, patch, PatchPlace { frame, row, column }, out);
            });
            all.push(tile);
        }
        let tile = TilePatches::new(side, [side; 2]);
        patches.add_tile(&tile, [side; 2], side, |place, out| {
            push_floats(&whole, image_size, patch, place, out);
        });
        for row in tiles.rows_of_squares(side) {
            for (index, square) in row {
                patches.add_square((index, &all[index]), square, side)?;
            }
            patches.rows.push(Row::Separator(0));
        }
        patches.rows.push(Row::Separator(1));
        let half = side.div_ceil(2);
        for row in 0..half {
            for column in 0..half {
                patches.add_square((images.count, &tile), [row, column], side)?;
            }
            patches.rows.push(Row::Separator(0));
        }
        Ok(patches)
    }

    fn num_embeds(&self, item: &Patches) -> usize {
        item.rows.len()
    }

    fn run(&self, items: Vec<Patches>) -> Result<Vec<EncoderOutput>, String> {
        let batch = Batch::new(&items);
        let used = items.iter().map(|item| &*item.used);
        let values: Vec<&[f32]> = used.chain(items.iter().map(|item| &*item.padded)).collect();
        let patches = rows(values.concat(), self.config.patch.len(), &self.device);
        let hidden = timed("patch_embed", || self.patch_embed.forward(patches, Adapters::none()));
        let hidden = add(hidden, embedding(&self.pos_embed, &batch.places));
        let sequences = sequences(batch.lens.iter().copied());
        let seen = Rows { sequences: &sequences, rotary: None, watchers: &batch.watchers };
        let layers = [self.blocks.len()];
        let states = block::features(&self.blocks, hidden, seen, &layers, |state, _| state);
        let width = self.config.block.hidden_size;
        let four = select_rows(states, &batch.squares);
        let count = batch.squares.len() / 4;
        let means = four.reshape([count, 4, width]).mean_dim(1).reshape([count, width]);
        let [end, between] = &self.separators;
        let with_separators =
            Tensor::cat(vec![means, embedding(end, &[0]), embedding(between, &[0])], 0);
        let features = select_rows(with_separators, &batch.rows);
        let all = timed("projector", || {
            let x = self.up.forward(features, Adapters::none());
            self.down.forward(activate(x, Activation::Gelu), Adapters::none())
        });
        let ([_, width], mut first) = (all.dims(), 0);
        let of_item = |item: Patches| {
            let from = first;
            first += item.rows.len();
            let embeddings = all.clone().slice([from..first, 0..width]);
            EncoderOutput { embeddings, by_layer: Vec::new() }
        };
        Ok(items.into_iter().map(of_item).collect())
    }

    fn mapped_bytes(&self) -> u64 {
        let layers = [&self.patch_embed, &self.up, &self.down];
        layers.into_iter().map(Linear::mapped_bytes).sum::<u64>()
            + self.blocks.iter().map(Block::mapped_bytes).sum::<u64>()
    }
}

/// The rows of several items. Those with a part of an image come first, then those in the padding.
#[derive(Debug, Default)]
struct Batch {
    /// The rows of each tile that see each other.
    lens: Vec<usize>,
    watchers: Vec<Watchers>,
    /// The place of each row in the table of positions.
    places: Vec<u32>,
    /// The four rows of each square.
    squares: Vec<u32>,
    /// The row of each embedding among squares, behind which the separators are.
    rows: Vec<u32>,
}

impl Batch {
    fn new(items: &[Patches]) -> Self {
        let mut batch = Self::default();
        let counts = items.iter().flat_map(|item| &item.counts);
        let num_used: usize = counts.map(|[used, _]| used).sum();
        let num_squares: usize = items.iter().map(|item| item.squares.len()).sum();
        let (mut first_used, mut first_padded, mut first_square) = (0, num_used, 0);
        for item in items {
            let mut starts = Vec::with_capacity(item.counts.len());
            for [used, padded] in &item.counts {
                starts.push([first_used, first_padded, *used]);
                batch.lens.push(*used);
                if *padded > 0 {
                    batch.watchers.push(Watchers {
                        rows: first_padded..first_padded + padded,
                        seen: first_used..first_used + used,
                    });
                }
                first_used += used;
                first_padded += padded;
            }
            batch.places.extend(&item.places);
            for (tile, patches) in &item.squares {
                let [used, padded, count] = starts[*tile];
                let row = |patch: &usize| match *patch < count {
                    true => used + patch,
                    false => padded + patch - count,
                };
                batch.squares.extend(patches.iter().map(|patch| row(patch) as u32));
            }
            let row = |row: &Row| match *row {
                Row::Square(index) => first_square + index,
                Row::Separator(index) => num_squares + index,
            };
            batch.rows.extend(item.rows.iter().map(|it| row(it) as u32));
            first_square += item.squares.len();
        }
        // transformers gives them the first place.
        batch.places.resize(first_padded, 0);
        batch
    }
}

/// Returns the numbers of the whole image, `[3, image_size, image_size]`.
pub(super) fn floats(tensor: &MediaTensorView<'_>, image_size: usize) -> Result<Vec<f32>, String> {
    let MediaTensorView { shape, data: MediaData::F32(bytes) } = tensor else {
        return Err("the whole image has elements of f32".to_owned());
    };
    let expected = [3, image_size, image_size];
    if **shape != expected || bytes.len() != 4 * expected.iter().product::<usize>() {
        return Err(format!("the whole image is {expected:?}, not {shape:?}"));
    }
    Ok(bytes.as_chunks::<4>().0.iter().map(|value| f32::from_le_bytes(*value)).collect())
}

/// Appends the patch at a row and a column of an image of numbers.
pub(super) fn push_floats(
    values: &[f32],
    image_size: usize,
    patch: PatchSize,
    [row, column]: [usize; 2],
    out: &mut Vec<f32>,
) {
    for plane in values.chunks_exact(image_size * image_size) {
        for line in row * patch.side..(row + 1) * patch.side {
            let first = line * image_size + column * patch.side;
            out.extend_from_slice(&plane[first..first + patch.side]);
        }
    }
}

impl Phi4Tower {
    /// Loads the tower with its projector.
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        config: &Phi4Config,
        pixels: Pixels,
    ) -> Result<Self, ModelError> {
        let (hidden, patch) = (config.block.hidden_size, config.patch.side);
        let layer = |index: usize| format!("{TOWER}.encoder.layers.{index}");
        let linear = |loader: &mut WeightLoader<'_>, names: [&str; 2], inputs: usize| {
            let modules = names.map(|name| format!("{MODULE}.{name}"));
            let [first, second] = &modules;
            let module = stored(loader, &[&**first, &**second], "weight").to_owned();
            Linear::of_media(loader, &[Part::new(module, config.outputs)], inputs, true)
        };
        let separator = |loader: &mut WeightLoader<'_>, (names, axes): ([&str; 2], usize)| {
            let names = names.map(|name| format!("{MODULE}.{name}"));
            let name = names.iter().find(|name| loader.has(name)).unwrap_or(&names[0]);
            table(loader, name, axes, [1, hidden])
        };
        Ok(Self {
            patch_embed: {
                let module = format!("{TOWER}.embeddings.patch_embedding");
                Linear::of_patches(loader, &module, &[hidden, 3, patch, patch], true)?
            },
            pos_embed: {
                let name = format!("{TOWER}.embeddings.position_embedding.weight");
                table(loader, &name, 2, [config.patches().pow(2), hidden])?
            },
            // The layers after the features are not read.
            blocks: (0..config.num_layers)
                .map(|index| Block::load(loader, &layer(index), &config.block))
                .collect::<Result<_, _>>()?,
            separators: [separator(loader, END_OF_ROW)?, separator(loader, BETWEEN)?],
            up: linear(loader, UP, hidden)?,
            down: linear(loader, DOWN, config.outputs)?,
            pixels,
            config: config.clone(),
            device: loader.device().clone(),
        })
    }
}
