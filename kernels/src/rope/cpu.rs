//! The rotation on the CPU, in place where no other owner has the tensor.

use burn_flex::FlexTensor;

use super::{RotaryStorage, RotaryTable};
use crate::simd::{Isa, Kernel, LANES, Simd};
use crate::tensors::{dense, dims2, values_mut};
use crate::threads::for_each_rows;

/// Rotates every head of `x`.
pub(crate) fn rope(
    x: FlexTensor,
    positions: &[u32],
    head_dim: usize,
    table: &RotaryTable,
) -> FlexTensor {
    let [tokens, width] = dims2(&x);
    super::check([tokens, width], positions, head_dim, table);
    let angles = Angles::of(table);
    let mut x = dense(x);
    for_each_rows(values_mut(&mut x), width, |first, rows| {
        let positions = &positions[first..];
        Isa::active().run(Rotate { rows, width, head_dim, positions, angles });
    });
    x
}

/// A table on the CPU.
#[derive(Clone, Copy)]
pub(crate) struct Angles<'a> {
    cos: &'a [f32],
    sin: &'a [f32],
    half: usize,
}

impl<'a> Angles<'a> {
    pub(crate) fn of(table: &'a RotaryTable) -> Self {
        match &table.storage {
            RotaryStorage::Cpu { cos, sin } => Self { cos, sin, half: table.rotary_dim / 2 },
            #[cfg(feature = "gpu")]
            RotaryStorage::Cube(_) => unreachable!("rope: x is on the CPU, the table is not"),
        }
    }
}

/// The task of rotating some rows of heads.
pub(crate) struct Rotate<'a> {
    pub(crate) rows: &'a mut [f32],
    pub(crate) width: usize,
    pub(crate) head_dim: usize,
    /// One position a row.
    pub(crate) positions: &'a [u32],
    pub(crate) angles: Angles<'a>,
}

impl Kernel for Rotate<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for (row, position) in self.rows.chunks_exact_mut(self.width).zip(self.positions) {
            let Angles { cos, sin, half } = self.angles;
            let start = *position as usize * half;
            let (cos, sin) = (&cos[start..][..half], &sin[start..][..half]);
            for head in row.chunks_exact_mut(self.head_dim) {
                rotate(s, &mut head[..2 * half], cos, sin);
            }
        }
    }
}

/// Rotates the pairs `(x[i], x[i + half])`.
#[inline(always)]
fn rotate<S: Simd>(s: S, x: &mut [f32], cos: &[f32], sin: &[f32]) {
    let (low, high) = x.split_at_mut(cos.len());
    let ((a, a_rest), (b, b_rest)) = (low.as_chunks_mut::<LANES>(), high.as_chunks_mut::<LANES>());
    let ((cos, cos_rest), (sin, sin_rest)) = (cos.as_chunks(), sin.as_chunks());
    for (((a, b), cos), sin) in a.iter_mut().zip(b).zip(cos).zip(sin) {
        turn(s, a, b, cos, sin);
    }
    if !a_rest.is_empty() {
        let [mut a, mut b, mut cos, mut sin] = [[0.0; LANES]; 4];
        let len = a_rest.len();
        a[..len].copy_from_slice(a_rest);
        b[..len].copy_from_slice(b_rest);
        cos[..len].copy_from_slice(cos_rest);
        sin[..len].copy_from_slice(sin_rest);
        turn(s, &mut a, &mut b, &cos, &sin);
        a_rest.copy_from_slice(&a[..len]);
        b_rest.copy_from_slice(&b[..len]);
    }
}

/// Turns `(a, b)` into `(a · cos − b · sin, b · cos + a · sin)`.
#[inline(always)]
fn turn<S: Simd>(
    s: S,
    a: &mut [f32; LANES],
    b: &mut [f32; LANES],
    cos: &[f32; LANES],
    sin: &[f32; LANES],
) {
    let (x, y) = (s.load(a), s.load(b));
    let (cos, sin) = (s.load(cos), s.load(sin));
    let minus_sin = s.mul(sin, s.splat(-1.0));
    s.store(a, s.fma(y, minus_sin, s.mul(x, cos)));
    s.store(b, s.fma(x, sin, s.mul(y, cos)));
}
