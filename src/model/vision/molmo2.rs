//! The tower of Molmo 2 (HF `Molmo2VisionModel`, `Molmo2Adapter`): layers of SigLIP over crops. A
//! window of patches becomes one embedding: its mean attends to its patches.
//!
//! All tokens of an image get their vectors here. Those of windows are added to the vector of their
//! token, and marks keep their own. So the tokens of an image are one run, in which each attends to
//! all.
//!
//! | tensor | shape |
//! |---|---|
//! | pixels of an item | `[1 + crops, image_size, image_size, 3]`, the whole image first |
//! | second tensor of an item | `[rows, columns, 0]` of its crops |
//! | patches | `[(1 + crops) · patches, 3 · patch_size²]` |
//! | features | `[(1 + crops) · patches, layers · hidden_size]` |
//! | embeddings | `[tokens, text_hidden_size]` |

use burn::tensor::{Device, Tensor};
use playhouse_kernels::{
    Activation, AttentionMask, AttentionParams, EmbeddingTable, add, embedding, encoder_attention,
    profile::timed, scale_rows, select_rows,
};

use super::batch::{rows, sequences};
use super::block::{self, Block, BlockConfig, Rows};
use super::encoder::Tower;
use super::molmo2_config::{Molmo2Config, Names, OF_TRANSFORMERS, PUBLISHED};
use super::molmo2_layout::Mark;
use super::pixels::{Images, Pixels};
use super::vit::table;
use crate::model::layers::{Linear, Part};
use crate::model::weight_loader::{WeightLoader, refused};
use crate::model::{Adapters, Backbone, EncoderOutput, MediaData, MediaInput, ModelError};

/// A tower with its projector.
#[derive(Debug)]
pub(super) struct Molmo2Tower {
    patch_embed: Linear,
    positions: EmbeddingTable,
    blocks: Vec<Block>,
    pooling: Pooling,
    projector: Projector,
    /// The vectors of the tokens of all marks, `[marks, text_hidden_size]`.
    marks: Tensor<2>,
    pixels: Pixels,
    config: Molmo2Config,
    device: Device,
}

/// The patches of an item.
#[derive(Debug)]
pub(super) struct Patches {
    /// The whole image, and the crops.
    num_images: usize,
    values: Vec<f32>,
    /// The patches of each window.
    windows: Vec<Vec<u32>>,
    marks: Vec<Mark>,
}

impl Tower for Molmo2Tower {
    type Prepared = Patches;

    fn prepare(&self, item: &MediaInput<'_>) -> Result<Patches, String> {
        let layout = &self.config.layout;
        let images = Images::read(item.tensors.first())?;
        let grid = match item.tensors.get(1) {
            Some(tensor) => match (tensor.shape, &tensor.data) {
                ([rows, columns, 0], MediaData::U8([])) => [*rows, *columns],
                _ => return Err(format!("a grid of crops in the shape {:?}", tensor.shape)),
            },
            None => return Err("the item has no grid of crops".into()),
        };
        let num_crops = grid[0].saturating_mul(grid[1]);
        if num_crops == 0 || images.count - 1 != num_crops {
            return Err(format!("{} images for crops of {grid:?}", images.count));
        }
        Ok(Patches {
            num_images: images.count,
            values: self.pixels.tiles(images, self.config.patch, layout.side)?,
            windows: layout.windows(grid),
            marks: layout.marks(grid),
        })
    }

    fn num_embeds(&self, item: &Patches) -> usize {
        item.marks.len()
    }

    fn run(&self, items: Vec<Patches>) -> Result<Vec<EncoderOutput>, String> {
        let num_patches = self.config.layout.patches.pow(2);
        let (mut values, mut windows, mut orders) = (Vec::new(), Vec::new(), Vec::new());
        let mut num_images = 0;
        for Patches { num_images: own, values: pixels, windows: of_item, marks } in items {
            let first = (num_images * num_patches) as u32;
            orders.push((windows.len(), marks));
            windows.extend(
                of_item.into_iter().map(|window| {
                    window.into_iter().map(|patch| first + patch).collect::<Vec<u32>>()
                }),
            );
            values.push(pixels);
            num_images += own;
        }
        let patches = rows(values.concat(), self.config.patch.len(), &self.device);
        let features = self.features(patches, num_images);
        let projected =
            timed("projector", || self.projector.forward(self.pooling.forward(features, &windows)));
        let [_, width] = projected.dims();
        // The first mark is the place of a window's embedding.
        let own = self.marks.clone().slice([0..1, 0..width]);
        let all = Tensor::cat(vec![projected.add(own), self.marks.clone()], 0);
        let of_item = |(first, marks): (usize, Vec<Mark>)| {
            let mut next = first;
            let row = |mark: Mark| match mark {
                Mark::Patch => {
                    next += 1;
                    (next - 1) as u32
                }
                mark => (windows.len() + mark as usize) as u32,
            };
            let order: Vec<u32> = marks.into_iter().map(row).collect();
            let embeddings = select_rows(all.clone(), &order);
            EncoderOutput { embeddings, by_layer: Vec::new() }
        };
        Ok(orders.into_iter().map(of_item).collect())
    }

    fn mapped_bytes(&self) -> u64 {
        let blocks: u64 = self.blocks.iter().map(Block::mapped_bytes).sum();
        let Projector { inner, down, .. } = &self.projector;
        let layers = self.pooling.layers().into_iter().chain([inner, down, &self.patch_embed]);
        blocks + layers.map(Linear::mapped_bytes).sum::<u64>()
    }
}

impl Molmo2Tower {
    /// Returns the features of all patches, `[rows, layers · hidden_size]`.
    fn features(&self, patches: Tensor<2>, num_images: usize) -> Tensor<2> {
        let num_patches = self.config.layout.patches.pow(2);
        let places: Vec<u32> = (0..num_images).flat_map(|_| 0..num_patches as u32).collect();
        let hidden = timed("patch_embed", || self.patch_embed.forward(patches, Adapters::none()));
        let hidden = add(hidden, embedding(&self.positions, &places));
        let images = sequences(std::iter::repeat_n(num_patches, num_images));
        let seen = Rows { sequences: &images, rotary: None, watchers: &[] };
        let layers = &self.config.feature_layers;
        block::features(&self.blocks, hidden, seen, layers, |state, _| state)
    }

    /// Loads the tower of a model whose text model is `backbone`.
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        config: &Molmo2Config,
        pixels: Pixels,
        backbone: &dyn Backbone,
    ) -> Result<Self, ModelError> {
        let is_published = loader.has(&format!("{}.weight", PUBLISHED.patches));
        let names = if is_published { &PUBLISHED } else { &OF_TRANSFORMERS };
        let block = BlockConfig { names: &names.block, ..config.block.clone() };
        let hidden = block.hidden_size;
        let num_patches = config.layout.patches.pow(2);
        // The layers after the last features are not read, and published files lack them.
        let num_blocks = config.feature_layers.iter().copied().max().unwrap_or_default();
        let layer = |index: usize| format!("{}.{index}", names.layer);
        Ok(Self {
            patch_embed: {
                Linear::of_pixels(loader, names.patches, [hidden, config.patch.side], true)?
            },
            positions: table(loader, names.positions, 2, [num_patches, hidden])?,
            blocks: (0..num_blocks)
                .map(|index| Block::load(loader, &layer(index), &block))
                .collect::<Result<_, _>>()?,
            pooling: Pooling::load(loader, names, config)?,
            projector: Projector::load(loader, names, config)?,
            marks: backbone.embed(&config.layout.tokens(), Adapters::none()),
            pixels,
            config: config.clone(),
            device: loader.device().clone(),
        })
    }
}

/// The attention of windows: HF `Molmo2VisionAttention` in `Molmo2Adapter`.
#[derive(Debug)]
struct Pooling {
    query: Linear,
    key: Linear,
    value: Linear,
    o: Linear,
    num_kv_heads: usize,
    params: AttentionParams,
}

impl Pooling {
    /// Returns a row for each of `windows`, whose patches are rows of `features`.
    fn forward(&self, features: Tensor<2>, windows: &[Vec<u32>]) -> Tensor<2> {
        let none = Adapters::none();
        let q = self.query.forward(means(&features, windows), none);
        // Each row of a window has the query of all. The results are alike, and the first counts.
        let (mut of_rows, mut firsts) = (Vec::new(), Vec::with_capacity(windows.len()));
        for (window, patches) in windows.iter().enumerate() {
            firsts.push(of_rows.len() as u32);
            of_rows.extend(std::iter::repeat_n(window as u32, patches.len()));
        }
        let patches = select_rows(features, &windows.concat());
        let [k, v] = [&self.key, &self.value].map(|layer| layer.forward(patches.clone(), none));
        let own = sequences(windows.iter().map(Vec::len));
        let q = select_rows(q, &of_rows);
        let attended = encoder_attention(q, k, v, self.num_kv_heads, &own, &self.params);
        self.o.forward(select_rows(attended, &firsts), none)
    }

    fn layers(&self) -> [&Linear; 4] {
        [&self.query, &self.key, &self.value, &self.o]
    }

    fn load(
        loader: &mut WeightLoader<'_>,
        names: &Names,
        config: &Molmo2Config,
    ) -> Result<Self, ModelError> {
        let (pooling, hidden) = (config.pooling, config.block.hidden_size);
        let [query, key, value, o] = names.pooling;
        let features = hidden * config.feature_layers.len();
        let of_heads = |heads: usize| heads * pooling.head_dim;
        let mut layer = |name: &str, [outputs, inputs]: [usize; 2]| {
            let part = [Part::new(name.to_owned(), outputs)];
            Linear::of_media(loader, &part, inputs, pooling.has_bias)
        };
        let (own, shared) = (of_heads(pooling.num_heads), of_heads(pooling.num_kv_heads));
        let (query, key) = (layer(query, [own, features])?, layer(key, [shared, features])?);
        let (value, output) = (layer(value, [shared, features])?, layer(o, [hidden, own])?);
        let params = AttentionParams {
            mask: AttentionMask::Both,
            tensor_cores: loader.tensor_cores(),
            ..AttentionParams::new(pooling.num_heads, (pooling.head_dim as f32).powf(-0.5))
        };
        params.require_place(loader.device()).map_err(refused(o))?;
        let num_kv_heads = pooling.num_kv_heads;
        Ok(Self { query, key, value, o: output, num_kv_heads, params })
    }
}

/// Returns the mean of the features of each window's patches.
fn means(features: &Tensor<2>, windows: &[Vec<u32>]) -> Tensor<2> {
    let most = windows.iter().map(Vec::len).max().unwrap_or_default();
    let mut sum: Option<Tensor<2>> = None;
    for at in 0..most {
        // A window with fewer patches has its first one with the factor 0.
        let patch = |window: &Vec<u32>| window.get(at).or(window.first()).copied();
        let patches: Vec<u32> = windows.iter().filter_map(patch).collect();
        let factor = |window: &Vec<u32>| if at < window.len() { 1.0 } else { 0.0 };
        let factors: Vec<f32> = windows.iter().map(factor).collect();
        let part = scale_rows(select_rows(features.clone(), &patches), &factors);
        sum = Some(match sum {
            None => part,
            Some(sum) => add(sum, part),
        });
    }
    let shares: Vec<f32> = windows.iter().map(|window| 1.0 / window.len() as f32).collect();
    scale_rows(sum.unwrap_or_else(|| features.clone()), &shares)
}

/// HF `Molmo2ImageProjectorMLP`.
#[derive(Debug)]
struct Projector {
    /// The gate, and what it gates.
    inner: Linear,
    down: Linear,
    activation: Activation,
}

impl Projector {
    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let none = Adapters::none();
        self.down.forward(self.inner.forward_gated(x, self.activation, none), none)
    }

    fn load(
        loader: &mut WeightLoader<'_>,
        names: &Names,
        config: &Molmo2Config,
    ) -> Result<Self, ModelError> {
        let (hidden, inner) = (config.block.hidden_size, config.projector_size);
        let [gate, up, down] = names.projector;
        let parts = [gate, up].map(|name| Part::new(name.to_owned(), inner));
        let back = [Part::new(down.to_owned(), config.outputs)];
        Ok(Self {
            inner: Linear::of_media(loader, &parts, hidden, config.projector_bias)?,
            down: Linear::of_media(loader, &back, inner, false)?,
            activation: config.projector_activation,
        })
    }
}
