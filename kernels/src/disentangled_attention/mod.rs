//! Disentangled attention of whole sequences to both sides (He et al. 2021, "DeBERTa",
//! <https://arxiv.org/abs/2006.03654>), for a ragged batch without padding. CPUs alone have it.
//!
//! Each head has a key and a query for each bucket of distances, beside those of tokens. With the
//! bucket `b = bucket(i − j)` of query `i` and key `j`
//!
//! ```text
//! s_j = scale · (q·k_j + q·K_b + k_j·Q_b)
//! p_j = exp(s_j − m) / Σ_j exp(s_j − m)
//! o   = Σ_j p_j v_j
//! ```
//!
//! with the largest score m. The tables `K` and `Q` belong to the layer. One of them may be absent,
//! and its term with it.
//!
//! | | |
//! |---|---|
//! | shapes | q, k, v, o `[num_tokens, num_heads · head_dim]`, tables `[num_buckets, num_heads · head_dim]`, all f32 |
//! | bytes moved | for each head of a sequence of n tokens its keys, values and tables once for four queries, and the products of keys with `Q`, `n · num_buckets`, once for each query |
//! | order of a sum | over the dimensions of a head, then over the keys, each from the first to the last: it depends on the sequence alone |
//! | threads | a head of a sequence is a piece |
//! | tolerance | `1e-5 · max|v|` against f64 |

mod cpu;
#[cfg(test)]
mod tests;

use burn::tensor::{Device, Tensor};

use crate::allocator::try_zeroed;
use crate::device::Place;
use crate::simd::LANES;
use crate::tensors::{from_tensor, into_tensor};
use crate::{AttentionMetadata, KernelError};

const WHAT: &str = "disentangled attention";

/// The sizes of a layer's attention, and its tables of positions.
#[derive(Debug, Clone, Copy)]
pub struct DisentangledShape<'a> {
    /// Heads of queries, keys and values.
    pub num_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// The factor of scores.
    pub scale: f32,
    /// Tokens of the longest sequence.
    pub positions: usize,
    /// Rows of each table.
    pub num_buckets: usize,
    /// The key of each bucket, `[num_buckets, num_heads * head_dim]`.
    pub keys: Option<&'a [f32]>,
    /// The query of each bucket, `[num_buckets, num_heads * head_dim]`.
    pub queries: Option<&'a [f32]>,
}

/// A layer's attention.
#[derive(Debug)]
pub struct DisentangledAttention {
    num_heads: usize,
    head_dim: usize,
    scale: f32,
    positions: usize,
    /// The bucket of query `i` and key `j` at `j - i + positions - 1`. It falls along the list.
    buckets: Vec<u32>,
    keys: Option<Table>,
    queries: Option<Table>,
}

/// A table of positions. A head has a row for each of its dimensions.
#[derive(Debug)]
struct Table {
    /// `[num_heads, head_dim, stride]`
    elements: Vec<f32>,
    /// Buckets, and padding behind them: a vector of lanes may begin at any bucket.
    stride: usize,
}

impl DisentangledAttention {
    /// Returns a layer's attention. `bucket` returns the row of a distance `i - j`, which does not
    /// fall as the distance grows.
    ///
    /// # Errors
    /// [`KernelError::CpuOnly`] for a GPU, [`KernelError::OutOfMemory`], sizes of 0, tables of
    /// another length, and a bucket that is out of order or in no table.
    pub fn new(
        shape: DisentangledShape<'_>,
        bucket: impl Fn(i64) -> usize,
        device: &Device,
    ) -> Result<Self, KernelError> {
        match Place::of(device, WHAT)? {
            Place::Cpu => {}
            #[cfg(feature = "gpu")]
            Place::Cube(device) => return Err(KernelError::cpu_only(WHAT, &device)),
        }
        let DisentangledShape { num_heads, head_dim, scale, positions, num_buckets, .. } = shape;
        for (field, size) in
            [("num_heads", num_heads), ("head_dim", head_dim), ("positions", positions)]
        {
            KernelError::require(size > 0, WHAT, field, size as u64, "at least 1")?;
        }
        let table = |rows: Option<&[f32]>, field: &'static str| {
            rows.map(|rows| Table::new(rows, field, shape)).transpose()
        };
        let (keys, queries) = (table(shape.keys, "keys")?, table(shape.queries, "queries")?);
        let mut buckets = try_zeroed::<u32>(2 * positions - 1, WHAT)?;
        let mut before = num_buckets.saturating_sub(1);
        for (at, element) in buckets.iter_mut().enumerate() {
            let found = bucket(positions as i64 - 1 - at as i64);
            let is_next = found <= before && found < num_buckets;
            KernelError::require(is_next, WHAT, "bucket", found as u64, "one in order")?;
            (*element, before) = (found as u32, found);
        }
        Ok(Self { num_heads, head_dim, scale, positions, buckets, keys, queries })
    }

    /// Returns the buckets of query `i` and each of the first `len` keys.
    fn of_query(&self, i: usize, len: usize) -> &[u32] {
        &self.buckets[self.positions - 1 - i..][..len]
    }

    /// Returns the first bucket in a sequence of `len` tokens, and the number of those up to the
    /// last one.
    fn range(&self, len: usize) -> (usize, usize) {
        let of_sequence = &self.buckets[self.positions - len..self.positions + len - 1];
        match of_sequence {
            [last, .., first] => (*first as usize, (last - first) as usize + 1),
            [only] => (*only as usize, 1),
            [] => (0, 0),
        }
    }
}

impl Table {
    fn new(
        rows: &[f32],
        field: &'static str,
        shape: DisentangledShape<'_>,
    ) -> Result<Self, KernelError> {
        let DisentangledShape { num_heads, head_dim, num_buckets, .. } = shape;
        let width = num_heads * head_dim;
        KernelError::require_len(WHAT, field, rows.len(), num_buckets.saturating_mul(width))?;
        let stride = num_buckets + LANES;
        let mut elements = try_zeroed::<f32>(width.saturating_mul(stride), WHAT)?;
        for (bucket, row) in rows.chunks_exact(width).enumerate() {
            for (element, x) in elements.iter_mut().skip(bucket).step_by(stride).zip(row) {
                *element = *x;
            }
        }
        Ok(Self { elements, stride })
    }
}

/// Computes disentangled attention of q over k and v, all `[num_tokens, num_heads * head_dim]`. Of
/// `meta`, only the sequences and the positions are read. Returns the shape of q.
///
/// # Panics
/// If the shapes disagree, a sequence is longer than the layer's positions or not whole, or the
/// tensors are not on the CPU.
#[must_use]
pub fn disentangled_attention(
    q: Tensor<2>,
    k: Tensor<2>,
    v: Tensor<2>,
    meta: &AttentionMetadata,
    attention: &DisentangledAttention,
) -> Tensor<2> {
    let [Some(q), Some(k), Some(v)] = [q, k, v].map(from_tensor) else {
        unreachable!("disentangled_attention: a layer is made for the CPU");
    };
    into_tensor(cpu::disentangled_attention(q, k, v, meta, attention))
}
