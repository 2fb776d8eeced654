//! The tower of Aria (HF `Idefics3VisionTransformer`, `AriaProjector`): images of any size, whose
//! places are those of a square grid. Learned vectors attend to all patches of an image, and become
//! its embeddings.
//!
//! | tensor | shape |
//! |---|---|
//! | pixels of an item | `[1, height, width, 3]`; black ones fill the last patches |
//! | patches | `[rows, 3 · patch_size²]` |
//! | hidden states | `[rows, hidden_size]` |
//! | embeddings | `[queries, text_hidden_size]` |

use burn::tensor::{Device, Tensor};
use playhouse_kernels::{
    Activation, AttentionMask, AttentionParams, EmbeddingTable, LinearWeight, WeightVector,
    WeightView, activate, add, cross_attention, embedding, linear, profile::timed,
};

use super::aria_config::{AriaConfig, PROJECTOR_NORM};
use super::batch::{rows, sequences};
use super::block::{self, Block, Rows};
use super::encoder::Tower;
use super::pixels::{Images, PatchPlace, Pixels};
use super::stored;
use super::vit_names::SIGLIP;
use crate::model::layers::{Linear, Norm, Part, embedding_table};
use crate::model::weight_loader::{WeightLoader, refused};
use crate::model::{Adapters, EncoderOutput, MediaData, MediaInput, MediaTensorView, ModelError};

const TOWERS: &[&str] = &["vision_tower", "model.vision_tower"];
const PROJECTORS: &[&str] = &["multi_modal_projector", "model.multi_modal_projector"];

/// A tower with its projector.
#[derive(Debug)]
pub(super) struct AriaTower {
    patch_embed: Linear,
    positions: EmbeddingTable,
    blocks: Vec<Block>,
    projector: Projector,
    pixels: Pixels,
    config: AriaConfig,
    device: Device,
}

/// The patches of an item.
#[derive(Debug)]
pub(super) struct Patches {
    /// The places of patches in the grid of positions.
    places: Vec<u32>,
    values: Vec<f32>,
    /// The number of embeddings.
    queries: usize,
}

impl Tower for AriaTower {
    type Prepared = Patches;

    fn prepare(&self, item: &MediaInput<'_>) -> Result<Patches, String> {
        let AriaConfig { patch, positions_side, .. } = self.config;
        let images = Images::read(item.tensors.first())?;
        let size = [images.height, images.width];
        if images.count != 1 {
            return Err(format!("{} images in one item", images.count));
        }
        let [num_rows, num_columns] = size.map(|length| length.div_ceil(patch.side));
        let queries = self.config.queries_of(num_rows.max(num_columns))?;
        let padded = padded(item, size, [num_rows, num_columns].map(|count| count * patch.side))?;
        let shape = [1, num_rows * patch.side, num_columns * patch.side, 3];
        let view = MediaTensorView { shape: &shape, data: MediaData::U8(&padded) };
        let images = Images::read(Some(&view))?;
        let [of_rows, of_columns] =
            [num_rows, num_columns].map(|count| buckets(positions_side, count));
        let mut values = Vec::with_capacity(num_rows * num_columns * patch.len());
        let mut places = Vec::with_capacity(num_rows * num_columns);
        for (row, of_row) in of_rows.iter().enumerate() {
            for (column, of_column) in of_columns.iter().enumerate() {
                let place = PatchPlace { frame: 0, row, column };
                self.pixels.push_patch(images, patch, place, &mut values);
                places.push((of_row * positions_side + of_column) as u32);
            }
        }
        Ok(Patches { places, values, queries })
    }

    fn num_embeds(&self, item: &Patches) -> usize {
        item.queries
    }

    fn run(&self, items: Vec<Patches>) -> Result<Vec<EncoderOutput>, String> {
        let lens: Vec<usize> = items.iter().map(|item| item.places.len()).collect();
        let queries: Vec<usize> = items.iter().map(|item| item.queries).collect();
        let places: Vec<u32> = items.iter().flat_map(|item| item.places.iter().copied()).collect();
        let values: Vec<Vec<f32>> = items.into_iter().map(|item| item.values).collect();
        let images = sequences(lens.iter().copied());
        let patches = rows(values.concat(), self.config.patch.len(), &self.device);
        let hidden = timed("patch_embed", || self.patch_embed.forward(patches, Adapters::none()));
        let hidden = add(hidden, embedding(&self.positions, &places));
        let seen = Rows { sequences: &images, rotary: None, watchers: &[] };
        let layers = [self.blocks.len()];
        let features = block::features(&self.blocks, hidden, seen, &layers, |state, _| state);
        let all = timed("projector", || self.projector.forward(features, &lens, &queries));
        let [_, width] = all.dims();
        let mut first = 0;
        let of_item = |count: usize| {
            let (from, to) = (first, first + count);
            first = to;
            let embeddings = all.clone().slice([from..to, 0..width]);
            EncoderOutput { embeddings, by_layer: Vec::new() }
        };
        Ok(queries.into_iter().map(of_item).collect())
    }

    fn mapped_bytes(&self) -> u64 {
        let blocks: u64 = self.blocks.iter().map(Block::mapped_bytes).sum();
        self.patch_embed.mapped_bytes() + blocks + self.projector.mapped_bytes()
    }
}

/// Returns the bytes of an image of `[height, width]` in `target`, with black pixels below and on
/// the right.
fn padded(
    item: &MediaInput<'_>,
    [height, width]: [usize; 2],
    target: [usize; 2],
) -> Result<Vec<u8>, String> {
    let data = match item.tensors.first().map(|tensor| tensor.data) {
        Some(MediaData::U8(data)) if data.len() == height * width * 3 => data,
        _ => return Err("pixels are bytes".into()),
    };
    let mut padded = vec![0; target[0] * target[1] * 3];
    let lines = padded.chunks_exact_mut(target[1] * 3).zip(data.chunks_exact(width * 3));
    lines.for_each(|(to, from)| to[..from.len()].copy_from_slice(from));
    Ok(padded)
}

/// Returns the places on an axis of `side` of `count` patches at equal distances, in floats of 32
/// bits as in HF `Idefics3VisionEmbeddings`.
fn buckets(side: usize, count: usize) -> Vec<usize> {
    let step = 1.0 / side as f64;
    let borders: Vec<f32> = (1..side).map(|at| (step + (at - 1) as f64 * step) as f32).collect();
    let share = 1.0 / count as f32;
    let of_patch = |at: usize| {
        let place = (at as f32 * share).min((1.0_f64 - 1e-6) as f32);
        borders.iter().filter(|border| **border <= place).count()
    };
    (0..count).map(of_patch).collect()
}

/// HF `AriaProjector`.
#[derive(Debug)]
struct Projector {
    /// The learned vectors.
    queries: Vec<f32>,
    query_norm: Norm,
    key_norm: Norm,
    /// Those of queries, keys and values.
    projections: [Linear; 3],
    /// The projections of torch's attention, one below the other.
    in_proj: LinearWeight,
    in_bias: WeightVector,
    params: AttentionParams,
    /// Behind attention.
    outer: [Linear; 2],
    norm: Norm,
    inner: Linear,
    down: Linear,
    hidden_size: usize,
    device: Device,
}

impl Projector {
    /// Returns the embeddings of items, one after the other. Item `i` has `lens[i]` rows of
    /// `features`, and `queries[i]` embeddings.
    fn forward(&self, features: Tensor<2>, lens: &[usize], queries: &[usize]) -> Tensor<2> {
        let none = Adapters::none();
        let width = self.hidden_size;
        let vectors = rows(self.queries.clone(), width, &self.device);
        let q = self.projected(self.query_norm.forward(vectors), 0);
        let states = self.key_norm.forward(features);
        let [k, v] = [1, 2].map(|part| self.projected(states.clone(), part));
        let mut first = 0;
        let of_item = |(len, count): (&usize, &usize)| {
            let (from, to) = (first, first + len);
            first = to;
            let q = q.clone().slice([0..*count, 0..width]);
            let [k, v] = [&k, &v].map(|all| all.clone().slice([from..to, 0..width]));
            cross_attention(q, k, v, self.params.num_heads, &self.params)
        };
        let attended = Tensor::cat(lens.iter().zip(queries).map(of_item).collect(), 0);
        let attended = self.outer.iter().fold(attended, |x, layer| layer.forward(x, none));
        let inner = self.inner.forward(self.norm.forward(attended), none);
        self.down.forward(activate(inner, Activation::GeluTanh), none)
    }

    /// Returns queries, keys or values.
    fn projected(&self, x: Tensor<2>, part: usize) -> Tensor<2> {
        let x = self.projections[part].forward(x, Adapters::none());
        let ([count, _], width) = (x.dims(), self.hidden_size);
        let all = linear(x, &self.in_proj, Some(&self.in_bias));
        all.slice([0..count, part * width..(part + 1) * width])
    }

    fn mapped_bytes(&self) -> u64 {
        let others = [&self.inner, &self.down];
        let all = self.projections.iter().chain(&self.outer).chain(others);
        all.map(Linear::mapped_bytes).sum()
    }

    fn load(loader: &mut WeightLoader<'_>, config: &AriaConfig) -> Result<Self, ModelError> {
        const ATTENTION: &str = "cross_attn.multihead_attn";
        let module = stored(loader, PROJECTORS, "query");
        let (block, outputs) = (&config.block, config.outputs);
        let hidden = block.hidden_size;
        let full = |name: &str| format!("{module}.{name}");
        let layer = |loader: &mut WeightLoader<'_>, name: &str, [outputs, inputs]: [usize; 2]| {
            let has_bias = name.contains("out_proj") || name == "cross_attn.linear";
            let part = [Part::new(full(name), outputs)];
            Linear::of_media(loader, &part, inputs, has_bias)
        };
        let norm = |loader: &mut WeightLoader<'_>, name: &str| {
            Norm::load(loader, &full(name), hidden, PROJECTOR_NORM)
        };
        let name = full(&format!("{ATTENTION}.in_proj_weight"));
        let in_proj = loader.packed(&name, [3 * hidden, hidden], |loader| {
            let values = loader.values(&name, &[3 * hidden, hidden])?;
            let view = [WeightView::F32(&values)];
            let packed = LinearWeight::pack(&view, hidden, loader.dtype(), loader.device());
            Ok(packed.map_err(refused(&name))?.with_tensor_cores(loader.tensor_cores()))
        })?;
        let params = AttentionParams {
            mask: AttentionMask::Both,
            tensor_cores: loader.tensor_cores(),
            ..AttentionParams::new(block.num_heads, (block.head_dim() as f32).powf(-0.5))
        };
        params.require_place(loader.device()).map_err(refused(&full(ATTENTION)))?;
        let square = [hidden, hidden];
        Ok(Self {
            queries: loader.values(&full("query"), &[config.max_queries(), hidden])?,
            query_norm: norm(loader, "cross_attn.layer_norm")?,
            key_norm: norm(loader, "cross_attn.layer_norm_kv")?,
            projections: [
                layer(loader, "cross_attn.q_proj", square)?,
                layer(loader, "cross_attn.k_proj", square)?,
                layer(loader, "cross_attn.v_proj", square)?,
            ],
            in_proj,
            in_bias: loader.vector(&full(&format!("{ATTENTION}.in_proj_bias")), 3 * hidden)?,
            params,
            outer: [
                layer(loader, "cross_attn.multihead_attn.out_proj", square)?,
                layer(loader, "cross_attn.linear", square)?,
            ],
            norm: norm(loader, "layer_norm")?,
            inner: layer(loader, "feed_forward.linear_in", [outputs, hidden])?,
            down: layer(loader, "feed_forward.linear_out", [outputs, outputs])?,
            hidden_size: hidden,
            device: loader.device().clone(),
        })
    }
}

impl AriaTower {
    /// Loads the tower.
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        config: &AriaConfig,
        pixels: Pixels,
    ) -> Result<Self, ModelError> {
        let AriaConfig { ref block, patch, positions_side: side, .. } = *config;
        let hidden = block.hidden_size;
        let module = stored(loader, TOWERS, "embeddings.patch_embedding.weight");
        let full = |name: &str| format!("{module}.{name}");
        let shape = [hidden, 3, patch.side, patch.side];
        let layer = |index: usize| full(&format!("{}.{index}", SIGLIP.layer));
        let positions = full("embeddings.position_embedding");
        Ok(Self {
            patch_embed: Linear::of_patches(loader, &full(SIGLIP.patches), &shape, true)?,
            positions: embedding_table(loader, &positions, side * side, hidden)?,
            blocks: (0..config.num_layers)
                .map(|index| Block::load(loader, &layer(index), block))
                .collect::<Result<_, _>>()?,
            projector: Projector::load(loader, config)?,
            pixels,
            config: config.clone(),
            device: loader.device().clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers come from torch.
    #[test]
    fn patches_are_in_buckets_of_an_axis() {
        assert_eq!(buckets(4, 4), [0, 1, 2, 3]);
        assert_eq!(buckets(4, 3), [0, 1, 2]);
        assert_eq!(buckets(7, 3), [0, 2, 4]);
        assert_eq!(buckets(70, 70), Vec::from_iter(0..70));
    }
}
