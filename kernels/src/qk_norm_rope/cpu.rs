//! The operation row by row: each head of a token is read once, and rotated while it is in the
//! cache.

use burn_flex::FlexTensor;

use super::QkvHeads;
use crate::rms_norm::cpu::NormRows;
use crate::rope::RotaryTable;
use crate::rope::cpu::{Angles, Rotate};
use crate::simd::{Isa, Kernel, Simd};
use crate::tensors::{dense, dims2, values, values_mut};
use crate::threads::for_each_rows;
use crate::workspace::{give_back, tensor};

/// Splits, normalises and rotates.
pub(crate) fn qk_norm_rope(
    qkv: FlexTensor,
    heads: &QkvHeads,
    positions: &[u32],
    table: &RotaryTable,
) -> (FlexTensor, FlexTensor, FlexTensor) {
    let [rows, width] = dims2(&qkv);
    heads.check([rows, width], positions, table);
    let qkv = dense(qkv);
    let mut parts = heads.columns().map(|columns| tensor(rows, columns.len()));
    {
        let [q, k, v] = &mut parts;
        let out = [values_mut(q), values_mut(k), values_mut(v)];
        split(Isa::active(), values(&qkv), heads, positions, Angles::of(table), out);
    }
    give_back(qkv);
    parts.into()
}

/// Computes the same on one instruction set.
pub(super) fn split(
    isa: Isa,
    qkv: &[f32],
    heads: &QkvHeads,
    positions: &[u32],
    angles: Angles<'_>,
    [q, k, v]: [&mut [f32]; 3],
) {
    let (head_dim, eps) = (heads.head_dim, heads.eps);
    let [q_columns, k_columns, v_columns] = heads.columns();
    let stride = v_columns.end;
    for (columns, norm, y) in [(q_columns, &heads.q_norm, q), (k_columns, &heads.k_norm, k)] {
        let (start, width) = (columns.start, columns.len());
        let norm = norm.as_ref().map(|norm| norm.cpu());
        for_each_rows(y, width, |first, rows| {
            let (x, positions) = (&qkv[first * stride + start..], &positions[first..]);
            let turned = Rotate { rows, width, head_dim, positions, angles };
            isa.run(Heads { x, stride, norm, eps, turned });
        });
    }
    let width = v_columns.len();
    for_each_rows(v, width, |first, rows| {
        let x = qkv[first * stride + v_columns.start..].chunks(stride);
        rows.chunks_exact_mut(width).zip(x).for_each(|(v, x)| v.copy_from_slice(&x[..width]));
    });
}

/// Some rows of queries or keys.
struct Heads<'a> {
    /// Elements from the first row on.
    x: &'a [f32],
    /// Elements from one row of x to the next.
    stride: usize,
    norm: Option<&'a [f32]>,
    eps: f32,
    turned: Rotate<'a>,
}

impl Kernel for Heads<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { x, stride, norm, eps, turned } = self;
        for (y, x) in turned.rows.chunks_exact_mut(turned.width).zip(x.chunks(stride)) {
            let x = &x[..turned.width];
            match norm {
                Some(weight) => NormRows { x, weight, eps, y }.run(s),
                None => y.copy_from_slice(x),
            }
        }
        turned.run(s);
    }
}
