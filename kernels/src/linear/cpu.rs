//! The native product: panels over threads; within a panel, a block of inputs over all rows.

use burn_flex::FlexTensor;

use super::pack::{K_BLOCK, PANEL, PackedWeight, panel_len_bf16, panel_len_f32};
use super::{LinearStorage, LinearWeight, quantized};
use crate::simd::{Element, Isa, Kernel, LANES, Simd, Task, Tiles, pack_steps};
use crate::tensors::{dense, dims2, from_rows, values};
use crate::threads::{SharedMut, for_each_piece};

/// Vectors across a panel.
const VECTORS: usize = PANEL / LANES;

/// Weight bytes that one piece of work streams, at least.
const PIECE_BYTES: usize = 1 << 17;

/// `x Wᵀ + b` on CPU tensors.
pub(crate) fn linear(x: FlexTensor, weight: &LinearWeight, bias: Option<FlexTensor>) -> FlexTensor {
    let [rows, inputs] = dims2(&x);
    let (x, bias, outputs) = (dense(x), bias.map(dense), weight.out_features);
    assert_eq!(inputs, weight.in_features, "linear: width of x [{rows}, {inputs}]");
    let bias = bias.as_ref().map(values);
    assert!(bias.is_none_or(|b| b.len() == outputs), "linear: bias must have {outputs} elements");
    let (isa, x) = (Isa::active(), values(&x));
    let y = match &weight.storage {
        LinearStorage::Cpu(packed) => product(isa, x, packed, [inputs, outputs], bias),
        LinearStorage::CpuQuantized(packed) => quantized::product(isa, x, packed, bias),
    };
    from_rows(y, rows, outputs)
}

/// `x Wᵀ + b` on one instruction set, for row-major x `[rows, inputs]`.
pub(super) fn product(
    isa: Isa,
    x: &[f32],
    packed: &PackedWeight,
    [inputs, outputs]: [usize; 2],
    bias: Option<&[f32]>,
) -> Vec<f32> {
    let mut y = vec![0.0; x.len() / inputs * outputs];
    let output = Output { y: SharedMut::new(&mut y), outputs, bias };
    match packed {
        PackedWeight::F32(weights) => {
            let panel_len = panel_len_f32(inputs);
            isa.run(Product { x, inputs, weights, panel_len, output: &output });
        }
        PackedWeight::Bf16(weights) => {
            #[cfg(target_arch = "x86_64")]
            if let Some(amx) = isa.amx() {
                super::amx::product(amx, x, inputs, weights, &output);
                return y;
            }
            let panel_len = panel_len_bf16(inputs);
            isa.run(Product { x, inputs, weights, panel_len, output: &output });
        }
    }
    y
}

/// Panels of so many bytes that one piece of work takes.
pub(super) fn panels_per_piece(panel_bytes: usize) -> usize {
    PIECE_BYTES.div_ceil(panel_bytes)
}

/// Where totals go.
pub(super) struct Output<'a> {
    y: SharedMut<'a, f32>,
    pub(super) outputs: usize,
    bias: Option<&'a [f32]>,
}

impl Output<'_> {
    /// Adds the bias to a panel's totals, one row each, and writes them to their columns.
    #[inline(always)]
    pub(super) fn write(&self, panel: usize, totals: &[[f32; PANEL]]) {
        let first = panel * PANEL;
        let width = PANEL.min(self.outputs - first);
        for (r, total) in totals.iter().enumerate() {
            // SAFETY: each panel is written by one piece, to its own columns of each row.
            let out = unsafe { self.y.slice(r * self.outputs + first, width) };
            match self.bias {
                None => out.copy_from_slice(&total[..width]),
                Some(bias) => {
                    for ((o, t), b) in out.iter_mut().zip(total).zip(&bias[first..]) {
                        *o = t + b;
                    }
                }
            }
        }
    }
}

/// The whole product.
struct Product<'a, E> {
    x: &'a [f32],
    inputs: usize,
    weights: &'a [E],
    panel_len: usize,
    output: &'a Output<'a>,
}

impl<E: Element> Kernel for Product<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let rows = self.x.len() / self.inputs;
        let steps = self.inputs.div_ceil(E::INPUTS);
        let tiles = Tiles::new(rows, S::TILE_VECTORS / VECTORS);
        let row = |r: usize| &self.x[r * self.inputs..(r + 1) * self.inputs];
        let packed = pack_steps::<S, E>(simd, tiles.clone(), row, steps);
        let panels = self.output.outputs.div_ceil(PANEL);
        let per_piece = panels_per_piece(self.panel_len * size_of::<E>());
        let work = self.x.len() * self.output.outputs;
        for_each_piece(panels.div_ceil(per_piece), work, |piece| {
            for panel in piece * per_piece..panels.min((piece + 1) * per_piece) {
                let tiles = tiles.clone();
                simd.enter(Panel { product: &self, packed: &packed, tiles, rows, panel });
            }
        });
    }
}

/// One panel of it: columns `panel * PANEL ..` of every row.
struct Panel<'a, S: Simd, E: Element> {
    product: &'a Product<'a, E>,
    packed: &'a [E::Step<S>],
    tiles: Tiles,
    rows: usize,
    panel: usize,
}

impl<S: Simd, E: Element> Panel<'_, S, E> {
    /// Adds the products of one tile of rows with one block of inputs, `steps`, to its totals.
    #[inline(always)]
    fn block<const R: usize>(
        &self,
        s: S,
        x: &[E::Step<S>],
        w: &[E::Group],
        totals: &mut [[f32; PANEL]],
    ) {
        let mut sums = [[s.splat(0.0); VECTORS]; R];
        for (x, w) in x.as_chunks::<R>().0.iter().zip(w.as_chunks::<VECTORS>().0) {
            for (sums, x) in sums.iter_mut().zip(x) {
                for (sum, w) in sums.iter_mut().zip(w) {
                    *sum = E::fma(s, *sum, *x, w);
                }
            }
        }
        for (total, sums) in totals.iter_mut().zip(sums) {
            for (total, sum) in total.as_chunks_mut::<LANES>().0.iter_mut().zip(sums) {
                s.store(total, s.add(s.load(total), sum));
            }
        }
    }
}

impl<S: Simd, E: Element> Task<S> for Panel<'_, S, E> {
    type Output = ();

    #[inline(always)]
    fn run(self, s: S) {
        let steps = self.product.inputs.div_ceil(E::INPUTS);
        let panel_len = self.product.panel_len;
        let weights = &self.product.weights[self.panel * panel_len..][..panel_len];
        let weights = E::groups(weights);
        let mut totals = vec![[0.0; PANEL]; self.rows];
        for first in (0..steps).step_by(K_BLOCK / E::INPUTS) {
            let last = steps.min(first + K_BLOCK / E::INPUTS);
            let w = &weights[first * VECTORS..last * VECTORS];
            for tile in self.tiles.clone() {
                let (start, n) = (tile.start * steps, tile.len());
                let x = &self.packed[start + first * n..start + last * n];
                let totals = &mut totals[tile];
                match n {
                    12 => self.block::<12>(s, x, w, totals),
                    8 => self.block::<8>(s, x, w, totals),
                    4 => self.block::<4>(s, x, w, totals),
                    3 => self.block::<3>(s, x, w, totals),
                    2 => self.block::<2>(s, x, w, totals),
                    _ => self.block::<1>(s, x, w, totals),
                }
            }
        }
        self.product.output.write(self.panel, &totals);
    }
}
