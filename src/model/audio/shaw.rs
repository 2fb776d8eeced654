//! Attention of blocks of states with relative positions: HF `GraniteSpeechConformerAttention`
//! (Shaw et al. 2018, <https://arxiv.org/abs/1803.02155>). The score of a query and a key has one
//! more product: that of the query with the vector of their distance.
//!
//! These products become elements of wider heads, as in the tower of SAM. For each place of its
//! block, a key has an element, which is 1 at its own place and 0 elsewhere. A query has the
//! products there.
//!
//! | tensor | shape |
//! |---|---|
//! | states | `[count, hidden_size]`, of one sound |
//! | q, k, v | `[count, heads · (head_dim + extra)]` |
//! | elements of queries and keys | `[count · heads, extra]` |

use burn::tensor::{Device, Tensor};
use playhouse_kernels::{
    AttentionMask, AttentionParams, LinearWeight, WeightView, encoder_attention, linear,
    profile::timed,
};

use super::granite_config::GraniteSounds;
use crate::model::layers::{Linear, Part};
use crate::model::vision::{own_distances, rows, sequences};
use crate::model::weight_loader::{WeightLoader, refused};
use crate::model::{Adapters, ModelError};

/// The elements of a wide head are a multiple of this number.
const LANES: usize = 16;
/// Blocks that are computed together. The products of more would take much memory.
const BLOCKS: usize = 8;

/// The blocks of a sound, which all layers share.
#[derive(Debug)]
pub(super) struct Blocks {
    /// Places of a block. A shorter sound has one block, with fewer places.
    side: usize,
    /// Elements of a head behind its own.
    extra: usize,
    /// The elements of the first keys, `[min(count, BLOCKS · side) · heads, extra]`. Those behind
    /// are the same.
    keys: Tensor<2>,
}

impl Blocks {
    /// Returns the blocks of a sound of `count` states.
    pub(super) fn new(count: usize, config: &GraniteSounds, device: &Device) -> Self {
        let GraniteSounds { num_heads: heads, head_dim, context_size, .. } = *config;
        let side = count.clamp(2, context_size);
        let extra = (head_dim + side).next_multiple_of(LANES) - head_dim;
        let most = count.min(BLOCKS * side);
        let mut keys = vec![0.0; most * heads * extra];
        for (at, key) in keys.chunks_exact_mut(extra).enumerate() {
            key[at / heads % side] = 1.0;
        }
        Self { side, extra, keys: rows(keys, extra, device) }
    }
}

/// The attention of a layer.
#[derive(Debug)]
pub(super) struct ShawAttention {
    /// Queries, keys and values.
    qkv: Linear,
    out: Linear,
    /// `[2 · context_size − 1, head_dim]`: the vectors of distances, the largest first.
    distances: LinearWeight,
    context_size: usize,
    head_dim: usize,
    params: AttentionParams,
}

impl ShawAttention {
    /// Loads the attention `module`.
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        module: &str,
        config: &GraniteSounds,
    ) -> Result<Self, ModelError> {
        let GraniteSounds { hidden_size, num_heads, head_dim, context_size, max_distance, .. } =
            *config;
        let full = |name: &str| format!("{module}.{name}");
        let width = num_heads * head_dim;
        let qkv = [Part::new(full("to_q"), width), Part::new(full("to_kv"), 2 * width)];
        let out = [Part::new(full("to_out"), hidden_size)];
        let table = full("rel_pos_emb");
        let shape = [2 * max_distance + 1, head_dim];
        let stored = loader.values(&format!("{table}.weight"), &shape)?;
        // The checkpoint has the smallest distance first.
        let first = max_distance + 1 - context_size;
        let known = stored.chunks_exact(head_dim).skip(first).take(2 * context_size - 1);
        let known: Vec<&[f32]> = known.collect();
        let values: Vec<f32> = known.into_iter().rev().flatten().copied().collect();
        let view = [WeightView::F32(&values)];
        let distances = LinearWeight::pack(&view, head_dim, loader.dtype(), loader.device());
        let distances = distances.map_err(refused(&table))?;
        let params = AttentionParams {
            mask: AttentionMask::Both,
            tensor_cores: loader.tensor_cores(),
            ..AttentionParams::new(num_heads, (head_dim as f32).powf(-0.5))
        };
        params.require_place(loader.device()).map_err(refused(module))?;
        Ok(Self {
            qkv: Linear::of_media(loader, &qkv, hidden_size, false)?,
            out: Linear::of_media(loader, &out, width, true)?,
            distances: distances.with_tensor_cores(loader.tensor_cores()),
            context_size,
            head_dim,
            params,
        })
    }

    /// Maps the states of a sound, `[count, hidden_size]`, to the same shape. No state sees another
    /// block.
    pub(super) fn forward(&self, x: Tensor<2>, blocks: &Blocks) -> Tensor<2> {
        let qkv = timed("qkv", || self.qkv.forward(x, Adapters::none()));
        let [count, width] = qkv.dims();
        let step = BLOCKS * blocks.side;
        let attended = timed("attention", || {
            let part = |first: usize| {
                let rows = first..(first + step).min(count);
                self.of_blocks(qkv.clone().slice([rows, 0..width]), blocks)
            };
            Tensor::cat((0..count).step_by(step).map(part).collect(), 0)
        });
        timed("o", || self.out.forward(attended, Adapters::none()))
    }

    /// Returns the bytes of weights that are pages of a file.
    pub(super) fn mapped_bytes(&self) -> u64 {
        self.qkv.mapped_bytes() + self.out.mapped_bytes()
    }

    /// Returns the attention of some blocks, `[count, heads · head_dim]`. `qkv` is
    /// `[count, 3 · heads · head_dim]`.
    fn of_blocks(&self, qkv: Tensor<2>, blocks: &Blocks) -> Tensor<2> {
        let ([count, all], num_heads) = (qkv.dims(), self.params.num_heads);
        let (width, heads) = (all / 3, count * num_heads);
        let Blocks { side, extra, .. } = *blocks;
        let part = |at: usize| {
            let part = qkv.clone().slice([0..count, at * width..(at + 1) * width]);
            part.reshape([heads, self.head_dim])
        };
        let wide_dim = self.head_dim + extra;
        let wide = |x: Tensor<2>, extra: Tensor<2>| {
            Tensor::cat(vec![x, extra], 1).reshape([count, num_heads * wide_dim])
        };
        let nothing = Tensor::<2>::zeros([heads, extra], &qkv.device());
        let q = wide(part(0), self.of_queries(part(0), blocks));
        let k = wide(part(1), blocks.keys.clone().slice([0..heads, 0..extra]));
        let v = wide(part(2), nothing);
        let lens = (0..count).step_by(side).map(|first| side.min(count - first));
        let attended = encoder_attention(q, k, v, num_heads, &sequences(lens), &self.params);
        let attended = attended.reshape([heads, wide_dim]).slice([0..heads, 0..self.head_dim]);
        attended.reshape([count, width])
    }

    /// Returns the elements of the queries `q` of some blocks, `[count · heads, head_dim]`.
    fn of_queries(&self, q: Tensor<2>, blocks: &Blocks) -> Tensor<2> {
        let Blocks { side, extra, .. } = *blocks;
        let heads = self.params.num_heads;
        let all = linear(q, &self.distances, None);
        let ([rows, _], distances) = (all.dims(), 2 * side - 1);
        // Those between places of a block of this size.
        let first = self.context_size - side;
        let known = all.slice([0..rows, first..first + distances]);
        let number = (rows / heads).div_ceil(side);
        let filled = number * side * heads;
        let known = match filled - rows {
            0 => known,
            missing => {
                let zeros = Tensor::<2>::zeros([missing, distances], &known.device());
                Tensor::cat(vec![known, zeros], 0)
            }
        };
        let known = known.reshape([number, side, heads, distances]).permute([0, 2, 1, 3]);
        let own = own_distances(known.reshape([number * heads, side * distances]), side);
        let own = own.reshape([number, heads, side, side]).permute([0, 2, 1, 3]);
        let own = own.reshape([filled, side]).slice([0..rows, 0..side]);
        match extra - side {
            0 => own,
            rest => {
                let zeros = Tensor::<2>::zeros([rows, rest], &own.device());
                Tensor::cat(vec![own, zeros], 1)
            }
        }
    }
}
