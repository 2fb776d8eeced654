//! The CPU's version: a head of one sequence is a piece. Vectors run along its channels.

use std::ops::Range;

use burn_flex::FlexTensor;

use super::RgLru;
use crate::kv_cache::KvLayer;
use crate::paged_attention::AttentionMetadata;
use crate::selective_scan::cpu::padded;
use crate::simd::{Isa, Kernel, LANES, Simd, exp, expm1};
use crate::states::{Recurrence, advance_states};
use crate::tensors::{dense, dims2, values, values_mut};
use crate::threads::SharedMut;
use crate::workspace::{give_back, tensor};

/// Takes the states over the tokens.
pub(crate) fn rg_lru(
    x: FlexTensor,
    gates: FlexTensor,
    unit: &RgLru,
    layer: &mut KvLayer,
    meta: &AttentionMetadata,
) -> FlexTensor {
    let (tokens, channels) = (meta.num_tokens(), unit.channels());
    assert_eq!(dims2(&x), [tokens, channels], "rg_lru: shape of x");
    assert_eq!(dims2(&gates), [tokens, 2 * channels], "rg_lru: shape of the gates");
    let [x, gates] = [x, gates].map(dense);
    let mut y = tensor(tokens, channels);
    let inputs = Inputs { x: values(&x), gates: values(&gates) };
    advanced(Isa::active(), unit, inputs, layer, meta, values_mut(&mut y));
    [x, gates].into_iter().for_each(give_back);
    y
}

/// The rows of a step.
#[derive(Debug, Clone, Copy)]
pub(super) struct Inputs<'a> {
    pub(super) x: &'a [f32],
    pub(super) gates: &'a [f32],
}

/// Takes the states over the tokens on one instruction set, into y.
pub(super) fn advanced(
    isa: Isa,
    unit: &RgLru,
    inputs: Inputs<'_>,
    layer: &mut KvLayer,
    meta: &AttentionMetadata,
    y: &mut [f32],
) {
    // An exponential counts as a dozen multiply-adds.
    let work = 64 * y.len();
    let positions = &meta.positions;
    let over_tokens = OverTokens { isa, unit, inputs, positions, y: SharedMut::new(y) };
    advance_states(layer, meta, work, &over_tokens);
}

struct OverTokens<'a> {
    isa: Isa,
    unit: &'a RgLru,
    inputs: Inputs<'a>,
    positions: &'a [u32],
    y: SharedMut<'a, f32>,
}

impl Recurrence for OverTokens<'_> {
    fn num_parts(&self) -> usize {
        self.unit.num_heads
    }

    fn part(&self, part: usize) -> Range<usize> {
        let start = self.unit.state_at + part * self.unit.head_dim;
        start..start + self.unit.head_dim
    }

    fn advance(&self, part: usize, state: &mut [f32], rows: Range<usize>) {
        self.isa.run(Head { over: self, head: part, state, rows });
    }
}

/// One head over some tokens.
struct Head<'a> {
    over: &'a OverTokens<'a>,
    head: usize,
    state: &'a mut [f32],
    rows: Range<usize>,
}

impl Kernel for Head<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { over: OverTokens { unit, inputs, positions, y, .. }, head, state, rows } = self;
        let (channels, dim) = (unit.channels(), unit.head_dim);
        let rates = &unit.rates.cpu()[head * dim..][..dim];
        let (input_biases, biases) =
            unit.gate_biases.cpu()[2 * head * dim..][..2 * dim].split_at(dim);
        for row in rows {
            let first = row * channels + head * dim;
            let x = &inputs.x[first..][..dim];
            let (input_gates, gates) =
                inputs.gates[2 * (row * channels + head * dim)..][..2 * dim].split_at(dim);
            // SAFETY: no other call has these rows and channels.
            let y = unsafe { y.slice(first, dim) };
            for start in (0..dim).step_by(LANES) {
                let of_vector = start..dim.min(start + LANES);
                let rate = padded(s, &rates[of_vector.clone()]);
                let log_a = s.mul(
                    s.mul(rate, s.splat(-1.0)),
                    gate(s, &gates[of_vector.clone()], &biases[of_vector.clone()]),
                );
                let factor = match positions[row] {
                    0 => s.splat(1.0),
                    _ => {
                        let square = s.mul(expm1(s, s.add(log_a, log_a)), s.splat(-1.0));
                        square_root(s, square)
                    }
                };
                let input = s.mul(
                    padded(s, &x[of_vector.clone()]),
                    gate(s, &input_gates[of_vector.clone()], &input_biases[of_vector.clone()]),
                );
                let kept = padded(s, &state[of_vector.clone()]);
                let next = s.fma(kept, exp(s, log_a), s.mul(input, factor));
                let mut lanes = [0.0; LANES];
                s.store(&mut lanes, next);
                let lanes = &lanes[..of_vector.len()];
                state[of_vector.clone()].copy_from_slice(lanes);
                y[of_vector].copy_from_slice(lanes);
            }
        }
    }
}

/// Returns the sigmoid of a vector of gates with their biases.
#[inline(always)]
fn gate<S: Simd>(s: S, gates: &[f32], biases: &[f32]) -> S::V {
    sigmoid(s, s.add(padded(s, gates), padded(s, biases)))
}

#[inline(always)]
fn sigmoid<S: Simd>(s: S, x: S::V) -> S::V {
    let one = s.splat(1.0);
    s.div(one, s.add(one, exp(s, s.mul(x, s.splat(-1.0)))))
}

#[inline(always)]
fn square_root<S: Simd>(s: S, x: S::V) -> S::V {
    let mut lanes = [0.0; LANES];
    s.store(&mut lanes, x);
    lanes.iter_mut().for_each(|x| *x = x.sqrt());
    s.load(&lanes)
}
