//! The last step of a product: from sums to results.

use super::pack::PANEL;
use crate::activation::Activation;
use crate::activation::cpu::{Activated, Gate, Silu};
use crate::simd::{LANES, PairMap, Simd};
use crate::threads::SharedMut;

/// The operation on sums while they are in the cache.
#[derive(Debug, Clone, Copy)]
pub(super) enum Epilogue<'a> {
    /// Adds the bias `[outputs]`, if there is one.
    Bias(Option<&'a [f32]>),
    /// Adds the same bias, and then applies the function. The bytes equal those of a later
    /// `activate`.
    Activated(Option<&'a [f32]>, Activation),
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
            Epilogue::Bias(_) | Epilogue::Activated(..) => 1,
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
        match self.epilogue {
            Epilogue::Bias(_) => {}
            Epilogue::Activated(bias, activation) => {
                if let Some(bias) = bias {
                    let bias = self.of_panel(panel, bias);
                    for total in first.iter_mut() {
                        for (total, bias) in total.iter_mut().zip(&bias) {
                            *total += bias;
                        }
                    }
                }
                // A function of its own, because products in every form would contain all
                // activations.
                s.enter(Activated { x: first.as_flattened_mut(), activation });
            }
            Epilogue::SwiGlu => {
                let gates = first.as_flattened_mut().as_chunks_mut::<LANES>().0;
                let ups = second.as_flattened().as_chunks::<LANES>().0;
                for (gate, up) in gates.iter_mut().zip(ups) {
                    s.store(gate, Gate(Silu).map(s, s.load(gate), s.load(up)));
                }
            }
        }
        self.write(panel, first_row, first);
    }

    /// Returns the bias of a panel's outputs. Missing outputs have 0.
    #[inline(always)]
    fn of_panel(&self, panel: usize, all: &[f32]) -> [f32; PANEL] {
        let first = panel * PANEL;
        let width = PANEL.min(self.outputs - first);
        let mut bias = [0.0; PANEL];
        bias[..width].copy_from_slice(&all[first..first + width]);
        bias
    }

    /// Adds the bias of [`Epilogue::Bias`] to a panel's totals, one row each from `first_row` on,
    /// and writes them to their columns.
    #[inline(always)]
    pub(super) fn write(&self, panel: usize, first_row: usize, totals: &[[f32; PANEL]]) {
        let first = panel * PANEL;
        let width = PANEL.min(self.outputs - first);
        let bias = match self.epilogue {
            Epilogue::Bias(Some(all)) => Some(self.of_panel(panel, all)),
            _ => None,
        };
        for (r, total) in totals.iter().enumerate() {
            let mut total = *total;
            if let Some(bias) = &bias {
                for (total, bias) in total.iter_mut().zip(bias) {
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
