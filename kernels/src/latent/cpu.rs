//! Latent attention on the CPU: rows are gathered by head, multiplied, and put back.

use burn_flex::FlexTensor;

use super::{LatentNorm, LatentProjections, Sizes};
use crate::linear::groups::{RowGroups, grouped};
use crate::rms_norm::cpu::norm_in_place;
use crate::rope::RotaryTable;
use crate::rope::cpu::{Angles, Rotate};
use crate::simd::{Isa, Kernel, Simd};
use crate::tensors::{dense, dims2, values, values_mut};
use crate::threads::for_each_rows;
use crate::workspace::{Scratch, give_back, owned, tensor};
use crate::{LinearWeight, rope};

/// The matrices of all heads.
#[derive(Debug)]
pub(crate) struct CpuProjections {
    /// `K_hᵀ`, `[rank, nope]` each; none where values alone are computed.
    keys: Vec<LinearWeight>,
    /// `V_h`, `[value, rank]` each.
    values: Vec<LinearWeight>,
    /// The numbers of all heads.
    heads: Vec<u32>,
}

impl CpuProjections {
    pub(super) fn new(keys: Vec<LinearWeight>, values: Vec<LinearWeight>) -> Self {
        let heads = (0..values.len() as u32).collect();
        Self { keys, values, heads }
    }

    pub(super) fn mapped_bytes(&self) -> usize {
        self.keys.iter().chain(&self.values).map(LinearWeight::mapped_bytes).sum()
    }
}

/// Returns the queries on CPU tensors.
pub(crate) fn latent_queries(
    q: FlexTensor,
    projections: &LatentProjections,
    positions: &[u32],
    table: &RotaryTable,
) -> FlexTensor {
    let [tokens, width] = dims2(&q);
    let Sizes { heads, nope, rope, rank, .. } = projections.sizes;
    let expected = heads * (nope + rope);
    assert_eq!(width, expected, "latent_queries: width of q [{tokens}, {width}]");
    assert_eq!(table.rotary_dim(), rope, "latent_queries: elements of the table");
    rope::check([tokens, rope], positions, rope, table);
    let q = dense(q);
    let mut out = tensor(tokens, heads * (rank + rope));
    let task = Queries { projections, positions, angles: Angles::of(table) };
    queries(Isa::active(), values(&q), &task, values_mut(&mut out));
    give_back(q);
    out
}

/// The arguments of [`latent_queries`] beside q.
pub(super) struct Queries<'a> {
    pub(super) projections: &'a LatentProjections,
    pub(super) positions: &'a [u32],
    pub(super) angles: Angles<'a>,
}

/// Computes the queries on one instruction set.
pub(super) fn queries(isa: Isa, q: &[f32], task: &Queries<'_>, out: &mut [f32]) {
    let Queries { projections, positions, angles } = *task;
    let Sizes { heads, nope, rope, rank, .. } = projections.sizes;
    let from = Heads { count: heads, stride: nope + rope, len: nope };
    let to = Heads { count: heads, stride: rank + rope, len: rank };
    let projections = projections.on_cpu();
    by_head(isa, q, from, projections, &projections.keys, out, to);
    let width = heads * (rank + rope);
    for_each_rows(out, width, |first, rows| {
        let q = &q[first * heads * (nope + rope)..];
        for (row, q) in rows.chunks_exact_mut(rank + rope).zip(q.chunks_exact(nope + rope)) {
            row[rank..].copy_from_slice(&q[nope..]);
        }
        let positions = &positions[first..];
        isa.run(RotateTails { rows, width, head: rank + rope, tail: rope, positions, angles });
    });
}

/// Returns the keys on CPU tensors.
pub(crate) fn latent_keys(
    kv: FlexTensor,
    norm: &LatentNorm,
    positions: &[u32],
    table: &RotaryTable,
) -> FlexTensor {
    let [tokens, width] = dims2(&kv);
    let (rank, rope) = (norm.weight.len(), table.rotary_dim());
    assert_eq!(width, rank + rope, "latent_keys: width of kv [{tokens}, {width}]");
    rope::check([tokens, rope], positions, rope, table);
    let mut kv = owned(kv);
    keys(Isa::active(), values_mut(&mut kv), norm, positions, Angles::of(table), width);
    kv
}

/// Computes the keys in place on one instruction set.
pub(super) fn keys(
    isa: Isa,
    kv: &mut [f32],
    norm: &LatentNorm,
    positions: &[u32],
    angles: Angles<'_>,
    width: usize,
) {
    for_each_rows(kv, width, |first, rows| {
        isa.run(Keys { rows, width, norm, positions: &positions[first..], angles });
    });
}

/// Returns the values on CPU tensors.
pub(crate) fn latent_values(latents: FlexTensor, projections: &LatentProjections) -> FlexTensor {
    let [tokens, width] = dims2(&latents);
    let Sizes { heads, rank, value, .. } = projections.sizes;
    assert_eq!(width, heads * rank, "latent_values: width of latents [{tokens}, {width}]");
    let latents = dense(latents);
    let mut out = tensor(tokens, heads * value);
    expand(Isa::active(), values(&latents), projections, values_mut(&mut out));
    give_back(latents);
    out
}

/// Computes the values on one instruction set.
pub(super) fn expand(isa: Isa, latents: &[f32], projections: &LatentProjections, out: &mut [f32]) {
    let Sizes { heads, rank, value, .. } = projections.sizes;
    let heads = |len| Heads { count: heads, stride: len, len };
    let (from, to) = (heads(rank), heads(value));
    let projections = projections.on_cpu();
    by_head(isa, latents, from, projections, &projections.values, out, to);
}

/// Heads side by side in the row of a token: the first `len` of every `stride` elements.
#[derive(Clone, Copy)]
struct Heads {
    count: usize,
    stride: usize,
    len: usize,
}

impl Heads {
    /// Returns the place of a head of a token.
    fn place(self, token: usize, head: usize) -> std::ops::Range<usize> {
        let start = (token * self.count + head) * self.stride;
        start..start + self.len
    }
}

/// Multiplies each head of x with its weight, and writes the results to the heads of y.
fn by_head(
    isa: Isa,
    x: &[f32],
    from: Heads,
    projections: &CpuProjections,
    weights: &[LinearWeight],
    y: &mut [f32],
    to: Heads,
) {
    let heads = from.count;
    let tokens = x.len() / (heads * from.stride);
    if tokens == 0 {
        return;
    }
    // `[head][token]`
    let (mut gathered, mut products) =
        (tensor(heads * tokens, from.len), tensor(heads * tokens, to.len));
    for_each_rows(values_mut(&mut gathered), from.len, |first, rows| {
        for (row, place) in rows.chunks_exact_mut(from.len).zip(first..) {
            row.copy_from_slice(&x[from.place(place % tokens, place / tokens)]);
        }
    });
    let mut starts = Scratch::new(heads + 1);
    starts.iter_mut().zip(0..).for_each(|(start, head)| *start = (head * tokens) as u32);
    let groups = RowGroups { weights, biases: None, chosen: &projections.heads, starts: &starts };
    grouped(isa, values(&gathered), &groups, false, values_mut(&mut products));
    give_back(gathered);
    let results = values(&products);
    for_each_rows(y, heads * to.stride, |first, rows| {
        for (row, token) in rows.chunks_exact_mut(heads * to.stride).zip(first..) {
            for head in 0..heads {
                let result = &results[(head * tokens + token) * to.len..][..to.len];
                row[to.place(0, head)].copy_from_slice(result);
            }
        }
    });
    give_back(products);
}

/// The task of normalising the latents of some rows, and rotating the rest.
struct Keys<'a> {
    rows: &'a mut [f32],
    width: usize,
    norm: &'a LatentNorm,
    positions: &'a [u32],
    angles: Angles<'a>,
}

impl Kernel for Keys<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { rows, width, norm, positions, angles } = self;
        let weight = norm.weight.cpu();
        let (head, tail) = (width, width - weight.len());
        for row in rows.chunks_exact_mut(width) {
            norm_in_place(s, &mut row[..weight.len()], Some(weight), norm.eps);
        }
        RotateTails { rows, width, head, tail, positions, angles }.run(s);
    }
}

/// The task of rotating the last `tail` elements of each head of some rows.
struct RotateTails<'a> {
    rows: &'a mut [f32],
    width: usize,
    head: usize,
    tail: usize,
    /// One position a row.
    positions: &'a [u32],
    angles: Angles<'a>,
}

impl Kernel for RotateTails<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { rows, width, head, tail, positions, angles } = self;
        for (row, position) in rows.chunks_exact_mut(width).zip(positions) {
            let positions = std::slice::from_ref(position);
            for head in row.chunks_exact_mut(head) {
                let start = head.len() - tail;
                let rows = &mut head[start..];
                Rotate { rows, width: tail, head_dim: tail, positions, angles }.run(s);
            }
        }
    }
}
