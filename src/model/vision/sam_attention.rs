//! Attention of squares of patches with relative positions (HF `SamVisionAttention`). The score of
//! a query and a key has two more products: those of the query with the vectors of their distances
//! in rows and in columns.
//!
//! These products become elements of wider heads. For each row and each column of its square, a key
//! has an element, which is zero except for its own row and column. A query has the products there.
//!
//! | tensor | shape |
//! |---|---|
//! | q, k, v | `[squares · side², heads · (head_dim + extra)]` |
//! | biases of queries | `[squares · side² · heads, extra]` |

use burn::tensor::{Device, Tensor};
use playhouse_kernels::{
    AttentionMask, AttentionParams, LinearWeight, WeightView, encoder_attention, linear,
};

use super::batch::{rows, sequences};
use crate::model::ModelError;
use crate::model::weight_loader::{WeightLoader, refused};

/// The elements of a wide head are a multiple of this number.
const LANES: usize = 16;

/// The biases of squares of `side²` patches.
#[derive(Debug)]
pub(super) struct Relative {
    side: usize,
    /// Elements of a head behind its own.
    extra: usize,
    /// `[2 · (2 · side − 1), head_dim]`: the distances of rows and those of columns, the largest
    /// first.
    weight: LinearWeight,
    /// The elements of keys, `[side², extra]`.
    keys: Tensor<2>,
}

impl Relative {
    /// Returns the biases of squares of `side²` patches. `tables` have the vectors of distances of
    /// rows and of columns, `[distances, head_dim]`, the smallest first.
    pub(super) fn new(
        loader: &WeightLoader<'_>,
        tables: &[Vec<f32>; 2],
        head_dim: usize,
        side: usize,
    ) -> Result<Self, ModelError> {
        let count = 2 * side - 1;
        let mut values = Vec::with_capacity(2 * count * head_dim);
        for table in tables {
            let resized = stretched(table, head_dim, count);
            values.extend(resized.chunks_exact(head_dim).rev().flatten());
        }
        let view = [WeightView::F32(&values)];
        let weight = LinearWeight::pack(&view, head_dim, loader.dtype(), loader.device());
        let weight = weight.map_err(refused("rel_pos"))?.with_tensor_cores(loader.tensor_cores());
        let extra = (head_dim + 2 * side).next_multiple_of(LANES) - head_dim;
        // The scores are divided by this number.
        let one = (head_dim as f32).sqrt();
        let mut keys = vec![0.0; side * side * extra];
        for (at, key) in keys.chunks_exact_mut(extra).enumerate() {
            key[at / side] = one;
            key[side + at % side] = one;
        }
        Ok(Self { side, extra, weight, keys: rows(keys, extra, loader.device()) })
    }

    /// Returns the elements of the queries `q`, `[squares · side² · heads, head_dim]`.
    fn of_queries(&self, q: Tensor<2>, heads: usize) -> Tensor<2> {
        let Self { side, extra, .. } = *self;
        let distances = 2 * side - 1;
        let all = linear(q, &self.weight, None);
        let [count, _] = all.dims();
        let squares = count / (side * side * heads);
        let rows = all.clone().slice([0..count, 0..distances]);
        let rows = rows.reshape([squares, side, side * heads, distances]).permute([0, 2, 1, 3]);
        let rows = own_distances(rows.reshape([squares * side * heads, side * distances]), side);
        let rows = rows.reshape([squares, side * heads, side, side]).permute([0, 2, 1, 3]);
        let columns = all.slice([0..count, distances..2 * distances]);
        let columns = columns.reshape([squares * side, side, heads, distances]);
        let columns = columns.permute([0, 2, 1, 3]);
        let columns = columns.reshape([squares * side * heads, side * distances]);
        let columns = own_distances(columns, side).reshape([squares * side, heads, side, side]);
        let columns = columns.permute([0, 2, 1, 3]);
        let mut elements = vec![rows.reshape([count, side]), columns.reshape([count, side])];
        if extra > 2 * side {
            elements.push(Tensor::zeros([count, extra - 2 * side], &elements[0].device()));
        }
        Tensor::cat(elements, 1)
    }

    /// Returns the elements of the keys of all squares, `[squares · side² · heads, extra]`.
    fn of_keys(&self, squares: usize, heads: usize) -> Tensor<2> {
        let Self { side, extra, .. } = *self;
        let keys = self.keys.clone().reshape([1, side * side, 1, extra]);
        let all: Tensor<4> = keys.expand([squares, side * side, heads, extra]);
        all.reshape([squares * side * side * heads, extra])
    }
}

/// Returns for each of `side` places on an axis its products with the distances to all places,
/// `[lines, side, side]`. `x` has those with all distances, `[lines, side · (2 · side − 1)]`, the
/// largest first. Those of a place begin one element before those of the place before it.
pub(in crate::model) fn own_distances(x: Tensor<2>, side: usize) -> Tensor<3> {
    let [lines, width] = x.dims();
    let shifted = x.slice([0..lines, side - 1..width - 1]);
    shifted.reshape([lines, side, 2 * side - 2]).slice([0..lines, 0..side, 0..side])
}

/// Returns the vectors of `table` at `count` distances, between which it is linear:
/// `torch.nn.functional.interpolate`.
fn stretched(table: &[f32], head_dim: usize, count: usize) -> Vec<f32> {
    let known = table.len() / head_dim;
    let scale = known as f32 / count as f32;
    let row = |at: usize| &table[at.min(known - 1) * head_dim..][..head_dim];
    let of_place = |at: usize| {
        let place = ((at as f32 + 0.5) * scale - 0.5).max(0.0);
        let (first, share) = (place as usize, place.fract());
        let pairs = row(first).iter().zip(row(first + 1));
        pairs.map(move |(before, after)| before * (1.0 - share) + after * share)
    };
    (0..count).flat_map(of_place).collect()
}

/// The heads of a layer.
#[derive(Debug)]
pub(super) struct SamAttention {
    num_heads: usize,
    head_dim: usize,
    params: AttentionParams,
    device: Device,
}

impl SamAttention {
    /// Returns the attention `module`.
    pub(super) fn new(
        loader: &WeightLoader<'_>,
        module: &str,
        [num_heads, head_dim]: [usize; 2],
    ) -> Result<Self, ModelError> {
        let params = AttentionParams {
            mask: AttentionMask::Both,
            tensor_cores: loader.tensor_cores(),
            ..AttentionParams::new(num_heads, (head_dim as f32).powf(-0.5))
        };
        params.require_place(loader.device()).map_err(refused(module))?;
        Ok(Self { num_heads, head_dim, params, device: loader.device().clone() })
    }

    /// Returns the attention of squares of the size of `biases`: of `qkv`,
    /// `[squares · side², 3 · hidden_size]`, to `[squares · side², hidden_size]`.
    pub(super) fn forward(&self, qkv: Tensor<2>, biases: &Relative) -> Tensor<2> {
        let Self { num_heads, head_dim, .. } = *self;
        let ([count, _], width) = (qkv.dims(), num_heads * head_dim);
        let (area, heads) = (biases.side * biases.side, count * num_heads);
        let part = |at: usize| {
            let part = qkv.clone().slice([0..count, at * width..(at + 1) * width]);
            part.reshape([heads, head_dim])
        };
        let wide_dim = head_dim + biases.extra;
        let wide = |x: Tensor<2>, extra: Tensor<2>| {
            Tensor::cat(vec![x, extra], 1).reshape([count, num_heads * wide_dim])
        };
        let squares = count / area;
        let q = wide(part(0), biases.of_queries(part(0), num_heads));
        let k = wide(part(1), biases.of_keys(squares, num_heads));
        let v = wide(part(2), Tensor::zeros([heads, biases.extra], &self.device));
        let sequences = sequences(std::iter::repeat_n(area, squares));
        let attended = encoder_attention(q, k, v, num_heads, &sequences, &self.params);
        let attended = attended.reshape([heads, wide_dim]).slice([0..heads, 0..head_dim]);
        attended.reshape([count, width])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers come from torch.
    #[test]
    fn distances_are_linear_between_known_ones() {
        let table = [1.0, 5.0, 2.0, 8.0, 3.0];
        let check = |count: usize, expected: &[f32]| {
            let found = stretched(&table, 1, count);
            assert_eq!(found.len(), expected.len());
            for (found, expected) in found.iter().zip(expected) {
                assert!((found - expected).abs() < 1e-5, "{found}, not {expected}");
            }
        };
        check(5, &table);
        check(3, &[2.333_333_3, 2.0, 4.666_667]);
        check(
            9,
            &[1.0, 2.333_333_5, 4.555_556, 3.666_666_7, 2.0, 5.333_333, 7.444_444, 4.666_665, 3.0],
        );
    }

    #[test]
    fn a_place_has_the_products_of_its_distances() {
        // The distances 2 to -2 of three places: a query less a key.
        let of_place = |place: f32| [2.0, 1.0, 0.0, -1.0, -2.0].map(|at| 10.0 * place + at);
        let x: Vec<f32> = [0.0, 1.0, 2.0].into_iter().flat_map(of_place).collect();
        let found = own_distances(rows(x, 15, &Device::flex()), 3);
        let found: Vec<f32> = found.into_data().try_to_vec().unwrap();
        assert_eq!(found, [0.0, -1.0, -2.0, 11.0, 10.0, 9.0, 22.0, 21.0, 20.0]);
    }
}
