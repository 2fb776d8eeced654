//! The CPU's version: pieces of neighbouring channels, token after token.

use std::ops::Range;

use burn_flex::FlexTensor;

use super::{CausalConv, PART};
use crate::activation::cpu::activate_row;
use crate::kv_cache::KvLayer;
use crate::paged_attention::AttentionMetadata;
use crate::simd::{Isa, Kernel, LANES, Simd};
use crate::states::{Recurrence, advance_states};
use crate::tensors::{dense, dims2, values, values_mut};
use crate::threads::SharedMut;
use crate::workspace::{give_back, tensor};

/// Most taps whose window fits the buffer of a piece.
const TAPS_MAX: usize = 16;

/// Convolves.
pub(crate) fn causal_conv(
    x: FlexTensor,
    column: usize,
    conv: &CausalConv,
    layer: &mut KvLayer,
    meta: &AttentionMetadata,
) -> FlexTensor {
    let [rows, columns] = dims2(&x);
    assert_eq!(rows, meta.num_tokens(), "causal_conv: rows of x");
    assert!(column + conv.channels <= columns, "causal_conv: columns of x");
    let x = dense(x);
    let mut y = tensor(rows, conv.channels);
    let input = Columns { values: values(&x), columns, first: column };
    convolve(Isa::active(), conv, input, layer, meta, values_mut(&mut y));
    give_back(x);
    y
}

/// Some columns of a row-major matrix.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Columns<'a> {
    pub(crate) values: &'a [f32],
    /// Columns of the whole matrix.
    pub(crate) columns: usize,
    /// The first of these columns.
    pub(crate) first: usize,
}

impl<'a> Columns<'a> {
    /// Returns the elements `range` of a row.
    #[inline(always)]
    pub(crate) fn row(&self, row: usize, range: Range<usize>) -> &'a [f32] {
        &self.values[row * self.columns + self.first + range.start..][..range.len()]
    }
}

/// Convolves on one instruction set, into y `[num_tokens, channels]`.
pub(super) fn convolve(
    isa: Isa,
    conv: &CausalConv,
    x: Columns<'_>,
    layer: &mut KvLayer,
    meta: &AttentionMetadata,
    y: &mut [f32],
) {
    let work = y.len() * (conv.kernel + 1);
    let over_tokens = OverTokens { isa, conv, x, y: SharedMut::new(y) };
    advance_states(layer, meta, work, &over_tokens);
}

/// The recurrence of a convolution, whose state is the window before the next token: of each piece
/// `[kernel − 1][channels of the piece]`, the oldest token first.
struct OverTokens<'a> {
    isa: Isa,
    conv: &'a CausalConv,
    x: Columns<'a>,
    y: SharedMut<'a, f32>,
}

impl Recurrence for OverTokens<'_> {
    fn num_parts(&self) -> usize {
        self.conv.num_parts()
    }

    fn part(&self, part: usize) -> Range<usize> {
        let Range { start, end } = self.conv.channels_of(part);
        let (before, at) = (self.conv.kernel - 1, self.conv.state_at);
        at + start * before..at + end * before
    }

    fn advance(&self, part: usize, state: &mut [f32], rows: Range<usize>) {
        self.isa.run(Part { over: self, part, state, rows });
    }
}

/// One part over some tokens.
struct Part<'a> {
    over: &'a OverTokens<'a>,
    part: usize,
    state: &'a mut [f32],
    rows: Range<usize>,
}

impl Kernel for Part<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { over, part, state, rows } = self;
        let conv = over.conv;
        let channels = conv.channels_of(part);
        let (width, kernel) = (channels.len(), conv.kernel);
        let weight = &conv.weight.cpu()[part * kernel * PART..][..kernel * PART];
        let bias = &conv.bias.cpu()[part * PART..][..PART];
        // The taps of a token, the newest last, each padded to whole vectors.
        let mut window = [0.0f32; TAPS_MAX * PART];
        let is_small = kernel <= TAPS_MAX;
        let mut large = if is_small { Vec::new() } else { vec![0.0; kernel * PART] };
        let window = if is_small { &mut window[..kernel * PART] } else { &mut large[..] };
        for (tap, stored) in window.chunks_exact_mut(PART).zip(state.chunks_exact(width)) {
            tap[..width].copy_from_slice(stored);
        }
        // The window is a ring: token `t` is in slot `(t + kernel − 1) % kernel`.
        let mut newest = kernel - 1;
        for row in rows {
            let x = over.x.row(row, channels.clone());
            window[newest * PART..][..width].copy_from_slice(x);
            // SAFETY: no other call has these rows and channels.
            let y = unsafe { over.y.slice(row * conv.channels + channels.start, width) };
            let oldest = if newest + 1 == kernel { 0 } else { newest + 1 };
            for (v, y) in y.chunks_mut(LANES).enumerate() {
                let mut sum = s.load(vector(bias, v * LANES));
                let mut slot = oldest;
                for tap in 0..kernel {
                    let weight = s.load(vector(weight, tap * PART + v * LANES));
                    sum = s.fma(weight, s.load(vector(window, slot * PART + v * LANES)), sum);
                    slot = if slot + 1 == kernel { 0 } else { slot + 1 };
                }
                let mut lanes = [0.0; LANES];
                s.store(&mut lanes, sum);
                y.copy_from_slice(&lanes[..y.len()]);
            }
            if let Some(activation) = conv.activation {
                activate_row(s, y, activation);
            }
            newest = oldest;
        }
        let mut slot = if newest + 1 == kernel { 0 } else { newest + 1 };
        for stored in state.chunks_exact_mut(width) {
            stored.copy_from_slice(&window[slot * PART..][..width]);
            slot = if slot + 1 == kernel { 0 } else { slot + 1 };
        }
    }
}

/// Returns the vector that begins at element `at`.
#[inline(always)]
fn vector(values: &[f32], at: usize) -> &[f32; LANES] {
    match values[at..].first_chunk() {
        Some(vector) => vector,
        None => unreachable!("the memory of a piece is padded to whole vectors"),
    }
}
