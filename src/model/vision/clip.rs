//! The towers of CLIP and SigLIP with the projector of LLaVA: images of one size, whose places are
//! learned (HF `CLIPVisionModel`, `SiglipVisionModel`, `LlavaMultiModalProjector`).
//!
//! | tensor | shape |
//! |---|---|
//! | pixels of an item | `[image_size, image_size, 3]`, or several of them |
//! | patches | `[images · patches, 3 · patch_size²]` |
//! | hidden states | `[images · (patches + 1), hidden_size]`; SigLIP has no class token |
//! | embeddings | `[images · patches, text_hidden_size]` |

use std::collections::BTreeMap;

use burn::tensor::{Device, Tensor};
use playhouse_kernels::{
    Activation, EmbeddingTable, WeightView, activate, add, embedding, profile::timed, select_rows,
};

use super::batch::{rows, sequences};
use super::block::{Block, BlockConfig, BlockNames, Rows, sum};
use super::encoder::Tower;
use super::pixels::{Images, PatchPlace, PatchSize, Pixels};
use crate::model::layers::{Linear, Norm, Part, embedding_table};
use crate::model::weight_loader::{WeightLoader, refused};
use crate::model::{Adapters, EncoderOutput, MediaInput, ModelError};

/// The names of a layer's modules.
pub(super) const BLOCK: BlockNames = BlockNames {
    attention_norm: "layer_norm1",
    mlp_norm: "layer_norm2",
    qkv: &["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
    o: "self_attn.out_proj",
    inner: &["mlp.fc1"],
    down: "mlp.fc2",
    factors: None,
    head_norms: None,
};

/// The shape of a tower.
#[derive(Debug, Clone)]
pub(super) struct ClipConfig {
    pub(super) block: BlockConfig,
    pub(super) image_size: usize,
    pub(super) patch: PatchSize,
    /// Whether there is a class token before the patches, and a norm before the layers.
    pub(super) is_clip: bool,
    /// The states that are the features of an image: those after this number of layers.
    pub(super) feature_layers: Vec<usize>,
    /// Whether the class token has no embedding.
    pub(super) drops_class: bool,
    pub(super) projector: ProjectorConfig,
}

impl ClipConfig {
    /// Returns the patches of an image.
    fn num_patches(&self) -> usize {
        (self.image_size / self.patch.side).pow(2)
    }

    /// Returns the embeddings of an image.
    pub(super) fn num_embeds(&self) -> usize {
        self.num_patches() + usize::from(self.is_clip && !self.drops_class)
    }
}

/// The projector after a tower.
#[derive(Debug, Clone)]
pub(super) struct ProjectorConfig {
    pub(super) activation: Activation,
    pub(super) has_bias: bool,
    /// The width of the text model.
    pub(super) outputs: usize,
}

/// A tower with its projector.
#[derive(Debug)]
pub(super) struct ClipTower {
    patch_embed: Linear,
    class_embed: Option<EmbeddingTable>,
    pos_embed: EmbeddingTable,
    first_norm: Option<Norm>,
    blocks: Vec<Block>,
    projector: Projector,
    pixels: Pixels,
    config: ClipConfig,
    device: Device,
}

/// The patches of an item's images.
#[derive(Debug)]
pub(super) struct Patches {
    count: usize,
    values: Vec<f32>,
}

impl Tower for ClipTower {
    type Prepared = Patches;

    fn prepare(&self, item: &MediaInput<'_>) -> Result<Patches, String> {
        let images = Images::read(item.tensors.first())?;
        let ClipConfig { image_size, patch, .. } = self.config;
        if [images.height, images.width] != [image_size; 2] {
            let Images { height, width, .. } = images;
            return Err(format!("an image of {height} x {width} pixels; expected {image_size}"));
        }
        let side = image_size / patch.side;
        let mut values = Vec::with_capacity(images.count * side * side * patch.len());
        for frame in 0..images.count {
            for at in 0..side * side {
                let place = PatchPlace { frame, row: at / side, column: at % side };
                self.pixels.push_patch(images, patch, place, &mut values);
            }
        }
        Ok(Patches { count: images.count, values })
    }

    fn num_embeds(&self, item: &Patches) -> usize {
        item.count * self.config.num_embeds()
    }

    fn run(&self, items: Vec<Patches>) -> Result<Vec<EncoderOutput>, String> {
        let counts: Vec<usize> = items.iter().map(|item| item.count).collect();
        let values: Vec<Vec<f32>> = items.into_iter().map(|item| item.values).collect();
        let patches = rows(values.concat(), self.config.patch.len(), &self.device);
        let features = self.features(self.embedded(patches), counts.iter().sum());
        let all = self.projector.forward(features);
        let ([_, width], num_embeds) = (all.dims(), self.config.num_embeds());
        let mut first = 0;
        let of_item = |count: usize| {
            let (from, to) = (first, first + count * num_embeds);
            first = to;
            let embeddings = all.clone().slice([from..to, 0..width]);
            EncoderOutput { embeddings, by_layer: Vec::new() }
        };
        Ok(counts.into_iter().map(of_item).collect())
    }

    fn mapped_bytes(&self) -> u64 {
        self.patch_embed.mapped_bytes() + self.blocks.iter().map(Block::mapped_bytes).sum::<u64>()
    }
}

impl ClipTower {
    /// Returns the states before the first layer.
    fn embedded(&self, patches: Tensor<2>) -> Tensor<2> {
        let num_patches = self.config.num_patches();
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
        let rows = self.rows_of_image() as u32;
        let places: Vec<u32> = (0..images).flat_map(|_| 0..rows).collect();
        let hidden = add(hidden, embedding(&self.pos_embed, &places));
        match &self.first_norm {
            None => hidden,
            Some(norm) => norm.forward(hidden),
        }
    }

    fn rows_of_image(&self) -> usize {
        self.config.num_patches() + usize::from(self.config.is_clip)
    }

    /// Returns the features of `images` images, `[embeddings, features]`.
    fn features(&self, mut hidden: Tensor<2>, images: usize) -> Tensor<2> {
        let ClipConfig { ref feature_layers, is_clip, drops_class, .. } = self.config;
        let rows = self.rows_of_image();
        let first = usize::from(is_clip && drops_class);
        let kept = |image: usize| (image * rows + first..(image + 1) * rows).map(|row| row as u32);
        let kept: Vec<u32> = (0..images).flat_map(kept).collect();
        let sequences = sequences(std::iter::repeat_n(rows, images));
        let seen = Rows { sequences: &sequences, rotary: None };
        let (mut residual, mut found) = (None, BTreeMap::new());
        for layer in 0..=self.blocks.len() {
            if feature_layers.contains(&layer) {
                let state = sum(hidden.clone(), residual.clone());
                found.insert(layer, select_rows(state, &kept));
            }
            if let Some(block) = self.blocks.get(layer) {
                let (output, stream) = block.forward(hidden, residual, seen);
                (hidden, residual) = (output, Some(stream));
            }
        }
        let mut features: Vec<Tensor<2>> =
            feature_layers.iter().filter_map(|layer| found.get(layer).cloned()).collect();
        match features.len() {
            1 => features.swap_remove(0),
            _ => Tensor::cat(features, 1),
        }
    }

    /// Loads the tower `module`, and the projector `projector`.
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        module: &str,
        projector: &str,
        config: &ClipConfig,
        pixels: Pixels,
    ) -> Result<Self, ModelError> {
        let ClipConfig { ref block, patch, is_clip, .. } = *config;
        let hidden = block.hidden_size;
        let full = |name: &str| format!("{module}.{name}");
        let shape = [hidden, 3, patch.side, patch.side];
        let proj = full("embeddings.patch_embedding");
        let num_places = config.num_patches() + usize::from(is_clip);
        // The layers after the last features are not read.
        let num_blocks = config.feature_layers.iter().copied().max().unwrap_or_default();
        let norm = full("pre_layrnorm");
        let first_norm = is_clip.then(|| Norm::load(loader, &norm, hidden, block.norm));
        let first_norm = first_norm.transpose()?;
        let class = full("embeddings.class_embedding");
        Ok(Self {
            patch_embed: Linear::of_patches(loader, &proj, &shape, !is_clip)?,
            class_embed: is_clip.then(|| one_row(loader, &class, hidden)).transpose()?,
            pos_embed: {
                let module = full("embeddings.position_embedding");
                embedding_table(loader, &module, num_places, hidden)?
            },
            first_norm,
            blocks: (0..num_blocks)
                .map(|index| Block::load(loader, &full(&format!("encoder.layers.{index}")), block))
                .collect::<Result<_, _>>()?,
            projector: {
                let inputs = hidden * config.feature_layers.len();
                Projector::load(loader, projector, inputs, &config.projector)?
            },
            pixels,
            config: config.clone(),
            device: loader.device().clone(),
        })
    }
}

/// Loads the vector `name`, `[width]`, as a table of one row.
fn one_row(
    loader: &mut WeightLoader<'_>,
    name: &str,
    width: usize,
) -> Result<EmbeddingTable, ModelError> {
    let values = loader.values(name, &[width])?;
    let view = WeightView::F32(&values);
    EmbeddingTable::new(view, 1, width, loader.dtype(), loader.device()).map_err(refused(name))
}

/// Two layers from a tower's features to the text model's width.
#[derive(Debug)]
pub(super) struct Projector {
    inner: Linear,
    activation: Activation,
    outer: Linear,
}

impl Projector {
    /// Maps `[rows, features]` to `[rows, text_hidden_size]`.
    pub(super) fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        timed("projector", || {
            let inner = activate(self.inner.forward(x, Adapters::none()), self.activation);
            self.outer.forward(inner, Adapters::none())
        })
    }

    /// Loads the projector `module` of `inputs` features.
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        module: &str,
        inputs: usize,
        config: &ProjectorConfig,
    ) -> Result<Self, ModelError> {
        let ProjectorConfig { activation, has_bias, outputs } = *config;
        let part = |name: &str| [Part::new(format!("{module}.{name}"), outputs)];
        Ok(Self {
            inner: Linear::of_media(loader, &part("linear_1"), inputs, has_bias)?,
            activation,
            outer: Linear::of_media(loader, &part("linear_2"), outputs, has_bias)?,
        })
    }
}
