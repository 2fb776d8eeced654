//! The last step of a product: from sums to results.

use super::pack::PANEL;
use crate::activation::cpu::{Gate, Silu};
use crate::simd::{LANES, PairMap, Simd};
use crate::threads::SharedMut;

/// The operation on sums while they are in the cache.
#[derive(Debug, Clone, Copy)]
pub(super) enum Epilogue<'a> {
    /// Adds the bias `[outputs]`, if there is one.
    Bias(Option<&'a [f32]>),
    /// Gates the second half of the sums with the first. The bytes equal those of a later `gated`.
    SwiGlu,
}

/// The destination of totals: each element of y is written once.
pub(super) struct Output<'a> {
    pub(super) y: SharedMut<'a, f32>,
    /// Number of columns of y.
    pub(super) outputs: usize,
    pub(super) epilogue: Epilogue<'a>,
}

impl Output<'_> {
    /// Returns the panels of y.
    pub(super) fn panels(&self) -> usize {
        self.outputs.div_ceil(PANEL)
    }

    /// Returns the panels of weights for one panel of y. Each lies [`Self::panels`] after the one
    /// before.
    pub(super) fn parts(&self) -> usize {
        match self.epilogue {
            Epilogue::Bias(_) => 1,
            Epilogue::SwiGlu => 2,
        }
    }

    /// Writes a panel's totals to y, one row each from `first_row` on. `second` has the totals of
    /// the second part, if there is one.
    #[inline(always)]
    pub(super) fn finish<S: Simd>(
        &self,
        s: S,
        panel: usize,
        first_row: usize,
        first: &mut [[f32; PANEL]],
        second: &[[f32; PANEL]],
    ) {
        if matches!(self.epilogue, Epilogue::SwiGlu) {
            let gates = first.as_flattened_mut().as_chunks_mut::<LANES>().0;
            for (gate, up) in gates.iter_mut().zip(second.as_flattened().as_chunks::<LANES>().0) {
                s.store(gate, Gate(Silu).map(s, s.load(gate), s.load(up)));
            }
        }
        self.write(panel, first_row, first);
    }

    /// Adds the bias to a panel's totals, one row each from `first_row` on, and writes them to
    /// their columns.
    #[inline(always)]
    pub(super) fn write(&self, panel: usize, first_row: usize, totals: &[[f32; PANEL]]) {
        let first = panel * PANEL;
        let width = PANEL.min(self.outputs - first);
        let mut bias = [0.0; PANEL];
        let has_bias = match self.epilogue {
            Epilogue::Bias(Some(all)) => {
                bias[..width].copy_from_slice(&all[first..first + width]);
                true
            }
            _ => false,
        };
        for (r, total) in totals.iter().enumerate() {
            let mut total = *total;
            if has_bias {
                for (total, bias) in total.iter_mut().zip(&bias) {
                    *total += bias;
                }
            }
            // SAFETY: only one piece writes a panel of a row.
            let out = unsafe { self.y.slice((first_row + r) * self.outputs + first, width) };
            match <&mut [_; PANEL]>::try_from(&mut *out) {
                Ok(out) => *out = total,
                Err(_) => out.copy_from_slice(&total[..width]),
            }
        }
    }
}
