//! A trial of this module's attention on a device: a made-up prompt, whose keys and values are
//! written to a cache of its own. The result is compared with the exact one. The kernel depends on
//! the GPU, its driver and the compiler. So it is used for a size of heads only after a trial of
//! that size.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use burn::tensor::{DType, Shape};
use burn_cubecl::tensor::CubeTensor;
use half::f16;

use super::super::gather::gather;
use super::{Heads, Routine, Stripe, TILE};
use crate::cube::Rows;
use crate::kv_cache::cube::{CubeKv, write_rows};
use crate::{KvCacheShape, KvDtype};

/// Devices and sizes of heads that were tried, and whether the results were right.
static TRIED: Mutex<BTreeMap<(String, usize), bool>> = Mutex::new(BTreeMap::new());

/// Numbers of keys. cubek has a kernel for multiples of a tile, and one that looks for the end.
const LENS: [usize; 2] = [272, LEN_RAGGED];
const LEN_RAGGED: usize = 299;

/// Queries of a launch, and of all.
const STRIPE: usize = 2 * TILE;
const QUERIES: usize = 2 * STRIPE;

/// Tokens of a block.
const BLOCK: usize = 16;

/// Largest error of a result. Values are below 1, and their weights are rounded to float16.
const ERROR_MAX: f64 = 1e-3;

/// Returns whether a routine computes heads of this size right on a device. The first call for a
/// device and size tries it.
pub(super) fn passes(routine: Routine, device: &cubecl::Device, head_dim: usize) -> bool {
    let mut tried = TRIED.lock().unwrap_or_else(PoisonError::into_inner);
    *tried
        .entry((format!("{device:?}"), head_dim))
        .or_insert_with(|| LENS.into_iter().all(|len| is_right(routine, device, head_dim, len)))
}

/// Returns whether the result for a number of keys is near the exact one.
fn is_right(routine: Routine, device: &cubecl::Device, head_dim: usize, len: usize) -> bool {
    let inputs = Inputs::new(head_dim, len);
    // cubek may panic where it does not know a device.
    let got = catch_unwind(AssertUnwindSafe(|| inputs.computed(routine, device)));
    matches!(got, Ok(Some(got)) if are_near(&got, &inputs.exact()))
}

#[cfg(test)]
impl Routine {
    /// Returns whether a trial of this routine succeeds.
    pub(in crate::paged_attention) fn is_right(
        self,
        device: &cubecl::Device,
        head_dim: usize,
    ) -> bool {
        is_right(self, device, head_dim, LEN_RAGGED)
    }
}

/// Returns whether no number is far from the exact one, and none is NaN.
fn are_near(got: &[f32], exact: &[f64]) -> bool {
    let is_near = |(got, exact): (&f32, &f64)| (f64::from(*got) - exact).abs() <= ERROR_MAX;
    got.len() == exact.len() && got.iter().zip(exact).all(is_near)
}

/// Numbers that float16 holds, so only sums and weights are rounded.
struct Inputs {
    heads: Heads,
    len: usize,
    /// `[query][head][head_dim]`
    queries: Vec<f32>,
    /// `[token][kv_head][head_dim]`
    keys: Vec<f32>,
    values: Vec<f32>,
}

impl Inputs {
    fn new(head_dim: usize, len: usize) -> Self {
        let heads = Heads { kv: 2, group: 2, dim: head_dim };
        let mut queries = numbers(QUERIES * heads.kv * heads.group * heads.dim, 1);
        // Weights then differ by much more than the error that is allowed.
        queries.iter_mut().for_each(|q| *q *= 4.0);
        let of_keys = heads.kv * len * heads.dim;
        Self { heads, len, queries, keys: numbers(of_keys, 2), values: numbers(of_keys, 3) }
    }

    /// Returns the device's result, `[query][head][head_dim]`, or `None` if there is an error.
    fn computed(&self, routine: Routine, device: &cubecl::Device) -> Option<Vec<f32>> {
        let (client, Heads { kv, dim, .. }) = (device.client(), self.heads);
        let rows = |numbers: &[f32], count: usize| {
            let handle = client.create_from_slice(bytemuck::cast_slice(numbers));
            let (client, shape) = (client.clone(), Shape::new([count, numbers.len() / count]));
            let dtype = DType::F32;
            Rows::new(CubeTensor::new_contiguous(client, device.clone(), shape, handle, dtype))
        };
        let num_blocks = 1 + self.len.div_ceil(BLOCK);
        let shape = KvCacheShape {
            num_layers: 1,
            num_blocks,
            block_size: BLOCK,
            num_kv_heads: kv,
            head_dim: dim,
            value_head_dim: dim,
            values_in_keys: false,
            state_len: 0,
        };
        let cache = CubeKv::new(&shape, KvDtype::F16, device).ok()?;
        // The first block is no sequence's.
        let slots: Vec<u32> = (BLOCK..BLOCK + self.len).map(|slot| slot as u32).collect();
        let table: Vec<u32> = (1..num_blocks as u32).collect();
        let (keys, values) = (rows(&self.keys, self.len), rows(&self.values, self.len));
        write_rows(&keys, Some(&values), &cache, 0, &slots);
        let gathered = gather(&client, &cache, &table, self.len);
        let queries = routine.queries(&rows(&self.queries, QUERIES), 0..QUERIES);
        let o = client.empty(self.queries.len() * size_of::<f32>());
        for first in (0..QUERIES).step_by(STRIPE) {
            let stripe = Stripe { first, queries: STRIPE, len: self.len };
            let seen = self.len - (QUERIES - first - STRIPE);
            stripe.launch(&client, &queries, &gathered, seen, self.heads, &o, routine).ok()?;
        }
        // If the kernel cannot be compiled or launched, only its output buffer carries the error.
        let bytes = client.read_one(o).ok()?;
        Some(bytemuck::pod_collect_to_vec(&bytes[..]))
    }

    /// Returns the same, computed here.
    fn exact(&self) -> Vec<f64> {
        let Heads { kv, group, dim } = self.heads;
        let scale = (dim as f64).sqrt().recip();
        let mut o = Vec::with_capacity(self.queries.len());
        for (row, q) in self.queries.chunks_exact(dim).enumerate() {
            let (query, head) = (row / (kv * group), row % (kv * group));
            let seen = self.len - QUERIES + query + 1;
            let keys = self.rows_of(&self.keys, head / group).take(seen);
            let weights = keys.map(|k| {
                let products = q.iter().zip(k).map(|(q, k)| f64::from(*q) * f64::from(*k));
                (products.sum::<f64>() * scale).exp()
            });
            let weights: Vec<f64> = weights.collect();
            let sum: f64 = weights.iter().sum();
            let values = self.rows_of(&self.values, head / group);
            let mut of_row = vec![0.0; dim];
            for (weight, v) in weights.iter().zip(values) {
                for (o, v) in of_row.iter_mut().zip(v) {
                    *o += weight / sum * f64::from(*v);
                }
            }
            o.extend(of_row);
        }
        o
    }

    /// Returns the keys or values of a head, in the order of their tokens.
    fn rows_of<'a>(&self, numbers: &'a [f32], kv_head: usize) -> impl Iterator<Item = &'a [f32]> {
        let Heads { kv, dim, .. } = self.heads;
        numbers.chunks_exact(dim).skip(kv_head).step_by(kv)
    }
}

/// Returns numbers between -1 and 1.
fn numbers(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f16::from_f32((state >> 8) as f32 / 8_388_608.0 - 1.0).to_f32()
    };
    (0..count).map(next).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_finds_a_wrong_key_or_value() {
        for len in LENS {
            let inputs = Inputs::new(32, len);
            let exact = inputs.exact();
            let rounded = |exact: &[f64]| exact.iter().map(|x| *x as f32).collect::<Vec<f32>>();
            assert!(are_near(&rounded(&exact), &exact));
            let mut wrong = Inputs::new(32, len);
            wrong.values[32..64].fill(0.0);
            assert!(!are_near(&rounded(&wrong.exact()), &exact), "a value");
            let mut wrong = Inputs::new(32, len);
            wrong.keys[32..64].fill(0.0);
            assert!(!are_near(&rounded(&wrong.exact()), &exact), "a key");
            let mut not_a_number = rounded(&exact);
            not_a_number[7] = f32::NAN;
            assert!(!are_near(&not_a_number, &exact));
            assert!(!are_near(&rounded(&exact[1..]), &exact));
        }
    }
}
