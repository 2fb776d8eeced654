//! The operation row by row: each head of a token is read once, and normalised and rotated while it
//! is in the cache.

use burn_flex::FlexTensor;

use super::{HeadNorm, QkvHeads};
use crate::elementwise::cpu::{Clamp, InPlace};
use crate::kv_cache::KvLayer;
use crate::kv_cache::cpu::reshape_and_cache;
use crate::profile::timed;
use crate::rope::RotaryTable;
use crate::rope::cpu::{Angles, Rotate};
use crate::simd::{Isa, Kernel, Simd};
use crate::tensors::{dense, dims2, values, values_mut};
use crate::threads::for_each_rows;
use crate::workspace::{give_back, tensor};
use crate::{layer_norm, rms_norm};

/// Splits, normalises and rotates.
pub(crate) fn qk_norm_rope(
    qkv: FlexTensor,
    heads: &QkvHeads,
    positions: &[u32],
    table: Option<&RotaryTable>,
) -> (FlexTensor, FlexTensor, FlexTensor) {
    let [rows, width] = dims2(&qkv);
    heads.check([rows, width], positions, table);
    let qkv = dense(qkv);
    let mut parts = heads.columns().map(|columns| tensor(rows, columns.len()));
    {
        let [q, k, v] = &mut parts;
        let out = [values_mut(q), values_mut(k), values_mut(v)];
        split(Isa::active(), values(&qkv), heads, positions, table.map(Angles::of), out);
    }
    give_back(qkv);
    parts.into()
}

/// Splits, normalises and rotates, and writes keys and values to the cache. Returns the queries.
pub(crate) fn qk_norm_rope_and_cache(
    qkv: FlexTensor,
    heads: &QkvHeads,
    positions: &[u32],
    table: Option<&RotaryTable>,
    layer: &mut KvLayer,
    slot_mapping: &[u32],
) -> FlexTensor {
    let (q, k, v) = timed("qk_norm_rope", || qk_norm_rope(qkv, heads, positions, table));
    timed("kv_write", || reshape_and_cache(k, v, layer, slot_mapping));
    q
}

/// Computes [`qk_norm_rope`] on one instruction set.
pub(super) fn split(
    isa: Isa,
    qkv: &[f32],
    heads: &QkvHeads,
    positions: &[u32],
    angles: Option<Angles<'_>>,
    [q, k, v]: [&mut [f32]; 3],
) {
    let [q_columns, k_columns, v_columns] = heads.columns();
    let stride = v_columns.end;
    for (columns, norm, y) in [(q_columns, &heads.q_norm, q), (k_columns, &heads.k_norm, k)] {
        let (start, width) = (columns.start, columns.len());
        let norm = norm.as_ref().map(Norm::of);
        for_each_rows(y, width, |first, y| {
            copy(&qkv[first * stride + start..], stride, width, y);
            let positions = &positions[first..];
            isa.run(Heads { y, width, heads, norm, positions, angles });
        });
    }
    let (start, width) = (v_columns.start, v_columns.len());
    for_each_rows(v, width, |first, y| {
        copy(&qkv[first * stride + start..], stride, width, y);
        if let Some(limit) = heads.clip {
            isa.run(InPlace { x: y, f: Clamp(limit) });
        }
    });
}

/// Copies the first `width` elements of rows that are `stride` apart.
fn copy(x: &[f32], stride: usize, width: usize, y: &mut [f32]) {
    for (y, x) in y.chunks_exact_mut(width).zip(x.chunks(stride)) {
        y.copy_from_slice(&x[..width]);
    }
}

/// A [`HeadNorm`] on the CPU.
#[derive(Clone, Copy)]
enum Norm<'a> {
    Rms(&'a [f32]),
    RmsAcrossHeads(&'a [f32]),
    Layer(&'a [f32]),
    LayerBiased(&'a [f32], &'a [f32]),
    Unit,
}

impl<'a> Norm<'a> {
    fn of(norm: &'a HeadNorm) -> Self {
        match norm {
            HeadNorm::Rms(weight) => Self::Rms(weight.cpu()),
            HeadNorm::RmsAcrossHeads(weight) => Self::RmsAcrossHeads(weight.cpu()),
            HeadNorm::Layer(weight) => Self::Layer(weight.cpu()),
            HeadNorm::LayerBiased { weight, bias } => Self::LayerBiased(weight.cpu(), bias.cpu()),
            HeadNorm::Unit => Self::Unit,
        }
    }

    /// Normalises the heads of one token, `head_dim` elements each.
    #[inline(always)]
    fn apply<S: Simd>(self, s: S, row: &mut [f32], head_dim: usize, eps: f32) {
        if let Self::RmsAcrossHeads(weight) = self {
            return rms_norm::cpu::norm_in_place(s, row, Some(weight), eps);
        }
        for (i, head) in row.chunks_exact_mut(head_dim).enumerate() {
            match self {
                Self::Layer(weight) => {
                    let weight = &weight[i * head_dim..][..head_dim];
                    layer_norm::cpu::norm_in_place(s, head, Some(weight), None, eps);
                }
                Self::LayerBiased(weight, bias) => {
                    layer_norm::cpu::norm_in_place(s, head, Some(weight), Some(bias), eps);
                }
                Self::Rms(weight) => rms_norm::cpu::norm_in_place(s, head, Some(weight), eps),
                Self::RmsAcrossHeads(_) | Self::Unit => {
                    rms_norm::cpu::norm_in_place(s, head, None, eps);
                }
            }
        }
    }
}

/// The task of normalising, limiting and rotating some rows of queries or keys in place.
struct Heads<'a> {
    y: &'a mut [f32],
    width: usize,
    heads: &'a QkvHeads,
    norm: Option<Norm<'a>>,
    /// One position a row.
    positions: &'a [u32],
    angles: Option<Angles<'a>>,
}

impl Kernel for Heads<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { y, width, heads, norm, positions, angles } = self;
        let QkvHeads { head_dim, eps, norms_after_rope, .. } = *heads;
        for (row, position) in y.chunks_exact_mut(width).zip(positions) {
            if let (Some(norm), false) = (norm, norms_after_rope) {
                norm.apply(s, row, head_dim, eps);
            }
            if let Some(limit) = heads.clip {
                InPlace { x: &mut *row, f: Clamp(limit) }.run(s);
            }
            if let Some(angles) = angles {
                let positions = std::slice::from_ref(position);
                Rotate { rows: row, width, head_dim, positions, angles }.run(s);
            }
            if let (Some(norm), true) = (norm, norms_after_rope) {
                norm.apply(s, row, head_dim, eps);
            }
        }
    }
}
