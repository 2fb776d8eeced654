//! Towers of images of one size, whose places are learned: CLIP, SigLIP, and those of Idefics 3 and
//! InternVL (HF `CLIPVisionModel`, `SiglipVisionModel`, `Idefics3VisionTransformer`,
//! `InternVLVisionModel`).
//!
//! | tensor | shape |
//! |---|---|
//! | pixels of an item | `[image_size, image_size, 3]`, or `[tiles, image_size, image_size, 3]` |
//! | patches | `[tiles · patches, 3 · patch_size²]` |
//! | hidden states | `[tiles · (patches + 1), hidden_size]`; not all have a class token |
//! | embeddings | `[tiles · patches / merge², text_hidden_size]` |

use burn::tensor::{Device, Tensor};
use playhouse_kernels::{EmbeddingTable, WeightView, add, embedding, profile::timed, select_rows};

use super::anyres::{AnyResTiles, END_OF_ROW};
use super::batch::{rows, sequences};
use super::block::{self, Block, BlockConfig, BlockNames, Rows};
use super::encoder::Tower;
use super::mixed::{Mixed, PooledFrames};
use super::pixels::{Images, PatchSize, Pixels};
use super::projector::{Projector, ProjectorConfig};
use crate::model::config::NormConfig;
use crate::model::layers::{Linear, Norm};
use crate::model::weight_loader::{WeightLoader, refused};
use crate::model::{Adapters, EncoderOutput, MediaInput, ModelError};

/// The names of a tower's modules and tensors.
#[derive(Debug)]
pub(super) struct VitNames {
    /// The convolution of patches.
    pub(super) patches: &'static str,
    pub(super) patch_bias: bool,
    /// The tensor of the class token, with the number of its axes.
    pub(super) class: Option<(&'static str, usize)>,
    /// The tensor of positions, with the number of its axes.
    pub(super) positions: (&'static str, usize),
    pub(super) first_norm: Option<&'static str>,
    pub(super) last_norm: &'static str,
    pub(super) layer: &'static str,
    pub(super) block: BlockNames,
}

/// The shape of a tower.
#[derive(Debug, Clone)]
pub(super) struct VitConfig {
    pub(super) names: &'static VitNames,
    pub(super) block: BlockConfig,
    pub(super) image_size: usize,
    pub(super) patch: PatchSize,
    /// The states that are the features of an image: those after this number of layers.
    pub(super) feature_layers: Vec<usize>,
    /// The norm of the states after the last layer, if there is one.
    pub(super) last_norm: Option<NormConfig>,
    /// Whether the first state of an image has no embedding: the class token, or without one the
    /// first patch.
    pub(super) drops_first: bool,
    /// Whether the state of the class token alone is a feature.
    pub(super) keeps_class_alone: bool,
    /// The form of an item's embeddings.
    pub(super) packing: Packing,
    pub(super) projector: ProjectorConfig,
}

/// The embeddings of an image in tiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Packing {
    /// All features in order.
    Plain,
    /// Each row ends with a learned vector.
    EndedRows,
    /// The same. The features of more tiles than `most` are resized, and those of frames are
    /// pooled.
    Capped { most: usize },
    /// As [`Packing::EndedRows`]. The features of frames are pooled before the projector.
    PooledFirst,
}

impl VitConfig {
    /// Returns the patches on a side of an image.
    pub(super) fn side(&self) -> usize {
        self.image_size / self.patch.side
    }

    /// Returns the embeddings of an image.
    pub(super) fn num_embeds(&self) -> usize {
        if self.keeps_class_alone {
            return 1;
        }
        let squares = (self.side() / self.projector.merge).pow(2);
        squares + usize::from(self.names.class.is_some()) - usize::from(self.drops_first)
    }

    fn rows_of_image(&self) -> usize {
        self.side().pow(2) + usize::from(self.names.class.is_some())
    }

    /// Returns the rows of an image that are features. The patches of a square that becomes one
    /// embedding follow each other.
    fn kept(&self) -> Vec<usize> {
        if self.keeps_class_alone {
            return vec![0];
        }
        let class = usize::from(self.names.class.is_some());
        let (side, merge) = (self.side(), self.projector.merge);
        let squares = side / merge;
        let patch = |at: usize| {
            let (square, inside) = (at / (merge * merge), at % (merge * merge));
            let row = square / squares * merge + inside / merge;
            let column = square % squares * merge + inside % merge;
            class + row * side + column
        };
        let states = (0..class).chain((0..(squares * merge).pow(2)).map(patch));
        states.skip(usize::from(self.drops_first)).collect()
    }
}

/// A tower with its projector.
#[derive(Debug)]
pub(super) struct VitTower {
    patch_embed: Linear,
    class_embed: Option<EmbeddingTable>,
    pos_embed: EmbeddingTable,
    first_norm: Option<Norm>,
    blocks: Vec<Block>,
    last_norm: Option<Norm>,
    pub(super) projector: Projector,
    /// The vector at the end of a row of tiles.
    end_of_row: Option<EmbeddingTable>,
    pub(super) pixels: Pixels,
    pub(super) config: VitConfig,
    pub(super) device: Device,
}

/// The patches of an item's images.
#[derive(Debug)]
pub(super) struct Patches {
    count: usize,
    values: Vec<f32>,
    layout: Layout,
}

/// The features of an item's embeddings.
#[derive(Debug)]
enum Layout {
    /// All in order.
    All,
    /// These.
    Of(Vec<u32>),
    /// Mixtures of these.
    Mixed(Mixed),
    /// All mixtures of the features before the projector.
    Pooled(Mixed),
}

impl Patches {
    /// Returns the number of images.
    pub(super) fn count(&self) -> usize {
        self.count
    }
}

impl Tower for VitTower {
    type Prepared = Patches;

    fn prepare(&self, item: &MediaInput<'_>) -> Result<Patches, String> {
        let images = Images::read(item.tensors.first())?;
        let VitConfig { image_size, patch, .. } = self.config;
        let side = self.config.side();
        let values = self.pixels.tiles(images, patch, image_size)?;
        let count = images.count;
        let layout = match self.config.packing {
            Packing::Plain => Layout::All,
            Packing::EndedRows => Layout::Of(tiles(item, count)?.order(side)),
            Packing::Capped { most } => {
                Layout::Mixed(match PooledFrames::of(item.tensors.get(1)) {
                    Some(frames) => frames.mixed(side, count),
                    None => tiles(item, count)?.mixed(side, most),
                })
            }
            Packing::PooledFirst => match PooledFrames::of(item.tensors.get(1)) {
                Some(frames) => Layout::Pooled(frames.mixed(side, count)),
                None => Layout::Of(tiles(item, count)?.order(side)),
            },
        };
        Ok(Patches { count, values, layout })
    }

    fn num_embeds(&self, item: &Patches) -> usize {
        match &item.layout {
            Layout::All => item.count * self.config.num_embeds(),
            Layout::Of(order) => order.len(),
            Layout::Mixed(mixed) | Layout::Pooled(mixed) => mixed.len(),
        }
    }

    fn run(&self, items: Vec<Patches>) -> Result<Vec<EncoderOutput>, String> {
        let (mut values, mut layouts) = (Vec::new(), Vec::new());
        for item in items {
            values.push(item.values);
            layouts.push((item.count, item.layout));
        }
        let patches = rows(values.concat(), self.config.patch.len(), &self.device);
        let images = layouts.iter().map(|(count, _)| count).sum();
        let features = self.features(self.embedded(patches), images);
        let (features, layouts) = self.pooled(features, layouts);
        let all = self.projector.forward(features);
        let [count, width] = all.dims();
        let all = match &self.end_of_row {
            None => all,
            Some(vector) => Tensor::cat(vec![all, embedding(vector, &[0])], 0),
        };
        let mut first = 0;
        let of_item = |(own, layout): (usize, Layout)| {
            let (from, to) = (first, first + own);
            first = to;
            let row = |feature: &u32| match *feature {
                END_OF_ROW => count as u32,
                feature => from as u32 + feature,
            };
            let embeddings = match layout {
                Layout::All | Layout::Pooled(_) => all.clone().slice([from..to, 0..width]),
                Layout::Of(order) => {
                    select_rows(all.clone(), &order.iter().map(row).collect::<Vec<_>>())
                }
                Layout::Mixed(mixed) => mixed.of(&all, row),
            };
            EncoderOutput { embeddings, by_layer: Vec::new() }
        };
        Ok(layouts.into_iter().map(of_item).collect())
    }

    fn mapped_bytes(&self) -> u64 {
        self.patch_embed.mapped_bytes() + self.blocks.iter().map(Block::mapped_bytes).sum::<u64>()
    }
}

impl VitTower {
    /// Returns the states before the first layer.
    pub(super) fn embedded(&self, patches: Tensor<2>) -> Tensor<2> {
        let num_patches = self.config.side().pow(2);
        let hidden = timed("patch_embed", || self.patch_embed.forward(patches, Adapters::none()));
        let [count, _] = hidden.dims();
        let images = count / num_patches;
        let hidden = match &self.class_embed {
            None => hidden,
            Some(class) => {
                // The class token is a row behind all patches, and comes first in each image.
                let class = embedding(class, &[0]);
                let of_image = |image: usize| {
                    let patches = image * num_patches..(image + 1) * num_patches;
                    std::iter::once(count).chain(patches).map(|row| row as u32)
                };
                let order: Vec<u32> = (0..images).flat_map(of_image).collect();
                select_rows(Tensor::cat(vec![hidden, class], 0), &order)
            }
        };
        let rows = self.config.rows_of_image() as u32;
        let places: Vec<u32> = (0..images).flat_map(|_| 0..rows).collect();
        let hidden = add(hidden, embedding(&self.pos_embed, &places));
        match &self.first_norm {
            None => hidden,
            Some(norm) => norm.forward(hidden),
        }
    }

    /// Pools the features of frames that are pooled before the projector. `layouts` are those of
    /// items, each with its number of images. Returns them with the number of the projector's rows.
    fn pooled(
        &self,
        features: Tensor<2>,
        layouts: Vec<(usize, Layout)>,
    ) -> (Tensor<2>, Vec<(usize, Layout)>) {
        let ([_, width], num_embeds) = (features.dims(), self.config.num_embeds());
        let is_pooled = layouts.iter().any(|(_, layout)| matches!(layout, Layout::Pooled(_)));
        let (mut first, mut parts, mut counted) = (0, Vec::new(), Vec::new());
        for (images, layout) in layouts {
            let (from, to) = (first, first + images * num_embeds);
            first = to;
            let own = match &layout {
                Layout::Pooled(mixed) => {
                    parts.push(mixed.of(&features, |feature| from as u32 + feature));
                    mixed.len()
                }
                _ if is_pooled => {
                    parts.push(features.clone().slice([from..to, 0..width]));
                    to - from
                }
                _ => to - from,
            };
            counted.push((own, layout));
        }
        let features = if is_pooled { Tensor::cat(parts, 0) } else { features };
        (features, counted)
    }

    /// Returns the features of `images` images, `[rows, features]`.
    pub(super) fn features(&self, hidden: Tensor<2>, images: usize) -> Tensor<2> {
        let (rows, kept) = (self.config.rows_of_image(), self.config.kept());
        let of_image = |image: usize| kept.iter().map(move |row| (image * rows + row) as u32);
        let order: Vec<u32> = (0..images).flat_map(of_image).collect();
        let sequences = sequences(std::iter::repeat_n(rows, images));
        let seen = Rows { sequences: &sequences, rotary: None, watchers: &[] };
        let feature = |state: Tensor<2>, layer: usize| {
            let state = select_rows(state, &order);
            match &self.last_norm {
                Some(norm) if layer == self.blocks.len() => norm.forward(state),
                _ => state,
            }
        };
        block::features(&self.blocks, hidden, seen, &self.config.feature_layers, feature)
    }

    /// Loads the tower `module`, the projector `projector`, and the vector `end_of_row`.
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        module: &str,
        projector: &str,
        end_of_row: Option<&str>,
        config: &VitConfig,
        pixels: Pixels,
    ) -> Result<Self, ModelError> {
        let VitConfig { names, ref block, patch, .. } = *config;
        let hidden = block.hidden_size;
        let full = |name: &str| format!("{module}.{name}");
        let shape = [hidden, 3, patch.side, patch.side];
        let first = |loader: &mut WeightLoader<'_>, name: &str| {
            Norm::load(loader, &full(name), hidden, block.norm)
        };
        let last = |loader: &mut WeightLoader<'_>, norm| {
            Norm::load(loader, &full(names.last_norm), hidden, norm)
        };
        // The layers after the last features are not read.
        let num_blocks = config.feature_layers.iter().copied().max().unwrap_or_default();
        let table = |loader: &mut WeightLoader<'_>, (name, axes): (&str, usize), rows: usize| {
            table(loader, &full(name), axes, [rows, hidden])
        };
        let layer = |index: usize| format!("{module}.{}.{index}", names.layer);
        Ok(Self {
            patch_embed: {
                Linear::of_patches(loader, &full(names.patches), &shape, names.patch_bias)?
            },
            class_embed: names.class.map(|class| table(loader, class, 1)).transpose()?,
            pos_embed: table(loader, names.positions, config.rows_of_image())?,
            first_norm: names.first_norm.map(|name| first(loader, name)).transpose()?,
            blocks: (0..num_blocks)
                .map(|index| Block::load(loader, &layer(index), block))
                .collect::<Result<_, _>>()?,
            last_norm: config.last_norm.map(|norm| last(loader, norm)).transpose()?,
            projector: {
                let inputs = hidden * config.feature_layers.len();
                Projector::load(loader, projector, inputs, &config.projector)?
            },
            end_of_row: {
                let width = config.projector.outputs;
                let vector = end_of_row.map(|name| self::table(loader, name, 1, [1, width]));
                vector.transpose()?
            },
            pixels,
            config: config.clone(),
            device: loader.device().clone(),
        })
    }
}

/// Returns the tiles of an item of `count` images.
fn tiles(item: &MediaInput<'_>, count: usize) -> Result<AnyResTiles, String> {
    let tiles = item.tensors.get(1).and_then(|tensor| AnyResTiles::of_shape(tensor.shape));
    let tiles = tiles.ok_or("the item has no grid of tiles")?;
    match 1 + tiles.grid[0] * tiles.grid[1] == count {
        true => Ok(tiles),
        false => Err(format!("{count} images for tiles of {:?}", tiles.grid)),
    }
}

/// Loads the tensor `name`, `[rows, width]` in `axes` axes, as a table. One row may have one axis
/// alone, and further axes have one element.
pub(super) fn table(
    loader: &mut WeightLoader<'_>,
    name: &str,
    axes: usize,
    [rows, width]: [usize; 2],
) -> Result<EmbeddingTable, ModelError> {
    let shape: &[usize] = match axes {
        1 => &[width],
        2 => &[rows, width],
        3 => &[1, rows, width],
        _ => &[1, 1, rows, width],
    };
    let values = loader.values(name, shape)?;
    let view = WeightView::F32(&values);
    EmbeddingTable::new(view, rows, width, loader.dtype(), loader.device()).map_err(refused(name))
}
