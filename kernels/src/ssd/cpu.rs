//! The CPU's version: one head of one sequence is a piece, whose state stays in the cache over all
//! tokens. Vectors run along `head_dim`.

use std::ops::Range;

use burn_flex::FlexTensor;

use super::{Ssd, SsdSizes};
use crate::causal_conv::cpu::Columns;
use crate::kv_cache::KvLayer;
use crate::paged_attention::AttentionMetadata;
use crate::simd::{Isa, Kernel, LANES, Simd};
use crate::states::{Recurrence, advance_states};
use crate::tensors::{dense, dims2, values, values_mut};
use crate::threads::SharedMut;
use crate::workspace::{give_back, tensor};

/// Vectors of a head that one pass over the state takes.
const TILE: usize = 4;

/// Takes the states over the tokens.
pub(crate) fn ssd(
    xbc: FlexTensor,
    dt: FlexTensor,
    column: usize,
    model: &Ssd,
    layer: &mut KvLayer,
    meta: &AttentionMetadata,
) -> FlexTensor {
    let [rows, columns] = dims2(&xbc);
    assert_eq!([rows, columns], [meta.num_tokens(), model.columns()], "ssd: shape of x, B and C");
    let [dt_rows, dt_columns] = dims2(&dt);
    assert_eq!(rows, dt_rows, "ssd: rows of dt");
    assert!(column + model.sizes.num_heads <= dt_columns, "ssd: columns of dt");
    let (xbc, dt) = (dense(xbc), dense(dt));
    let mut y = tensor(rows, model.width());
    let of_dt = Columns { values: values(&dt), columns: dt_columns, first: column };
    scan(Isa::active(), model, values(&xbc), of_dt, layer, meta, values_mut(&mut y));
    give_back(xbc);
    give_back(dt);
    y
}

/// Takes the states over the tokens on one instruction set, into y.
pub(super) fn scan(
    isa: Isa,
    model: &Ssd,
    xbc: &[f32],
    dt: Columns<'_>,
    layer: &mut KvLayer,
    meta: &AttentionMetadata,
    y: &mut [f32],
) {
    let work = 3 * y.len() * model.sizes.state_size;
    let columns = model.columns();
    let xbc = Columns { values: xbc, columns, first: 0 };
    let over_tokens = OverTokens { isa, model, xbc, dt, y: SharedMut::new(y) };
    advance_states(layer, meta, work, &over_tokens);
}

struct OverTokens<'a> {
    isa: Isa,
    model: &'a Ssd,
    xbc: Columns<'a>,
    dt: Columns<'a>,
    y: SharedMut<'a, f32>,
}

impl Recurrence for OverTokens<'_> {
    fn num_parts(&self) -> usize {
        self.model.sizes.num_heads
    }

    fn part(&self, head: usize) -> Range<usize> {
        self.model.state_of(head)
    }

    fn advance(&self, head: usize, state: &mut [f32], rows: Range<usize>) {
        self.isa.run(Head { over: self, head, state, rows });
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
        let Self { over, head, state, rows } = self;
        let model = over.model;
        let SsdSizes { num_heads, head_dim, state_size, num_groups } = model.sizes;
        let [a, d, dt_bias] = [&model.a, &model.d, &model.dt_bias].map(|x| x.cpu()[head]);
        let (width, group) = (model.width(), head / (num_heads / num_groups));
        let [b_at, c_at] = [0, num_groups].map(|g| width + (g + group) * state_size);
        for row in rows {
            let delta = delta(model, dt_bias, over.dt.row(row, head..head + 1)[0]);
            let x = over.xbc.row(row, head * head_dim..(head + 1) * head_dim);
            // SAFETY: no other call has these rows and this head.
            let y = unsafe { over.y.slice(row * width + head * head_dim, head_dim) };
            let token = Token {
                delta,
                decay: (delta * a).exp(),
                d,
                b: over.xbc.row(row, b_at..b_at + state_size),
                c: over.xbc.row(row, c_at..c_at + state_size),
            };
            token.advance(s, x, state, y);
        }
    }
}

/// Returns Δ of a token in a head.
#[inline(always)]
fn delta(model: &Ssd, dt_bias: f32, dt: f32) -> f32 {
    let dt = dt * model.dt_scale + dt_bias;
    // As torch: from 20 on, softplus is the identity.
    let softplus = if dt > 20.0 { dt } else { dt.exp().ln_1p() };
    let [least, most] = model.dt_limit;
    // A NaN stays one, so that every reader sees the fault.
    if softplus < least {
        least
    } else if softplus > most {
        most
    } else {
        softplus
    }
}

/// The numbers of one token that all elements of a head share.
struct Token<'a> {
    delta: f32,
    decay: f32,
    d: f32,
    b: &'a [f32],
    c: &'a [f32],
}

impl Token<'_> {
    /// Takes the state `[state_size, head_dim rounded up]` over the token, and writes its y.
    #[inline(always)]
    fn advance<S: Simd>(&self, s: S, x: &[f32], state: &mut [f32], y: &mut [f32]) {
        let stride = x.len().next_multiple_of(LANES);
        let mut at = 0;
        while at < x.len() {
            let vectors = (stride - at) / LANES;
            let end = x.len().min(at + vectors.min(TILE) * LANES);
            let (x, y) = (&x[at..end], &mut y[at..end]);
            match vectors {
                1 => self.advance_tile::<S, 1>(s, x, &mut state[at..], stride, y),
                2 => self.advance_tile::<S, 2>(s, x, &mut state[at..], stride, y),
                3 => self.advance_tile::<S, 3>(s, x, &mut state[at..], stride, y),
                _ => self.advance_tile::<S, TILE>(s, x, &mut state[at..], stride, y),
            }
            at += TILE * LANES;
        }
    }

    /// Does the same for `V` vectors of the head. The rows of their state are `stride` apart. Sums
    /// run over even and odd elements of the state apart.
    #[inline(always)]
    fn advance_tile<S: Simd, const V: usize>(
        &self,
        s: S,
        x: &[f32],
        state: &mut [f32],
        stride: usize,
        y: &mut [f32],
    ) {
        let mut padded = [[0.0f32; LANES]; V];
        padded.as_flattened_mut()[..x.len()].copy_from_slice(x);
        // Closures do not inherit the instruction set, hence the loops.
        let mut input = [s.splat(0.0); V];
        for (input, x) in input.iter_mut().zip(&padded) {
            *input = s.mul(s.load(x), s.splat(self.delta));
        }
        let decay = s.splat(self.decay);
        let (mut even, mut odd) = ([s.splat(0.0); V], [s.splat(0.0); V]);
        let mut rows = state.chunks_mut(stride);
        let mut factors = self.b.iter().zip(self.c);
        while let (Some(row), Some((b, c))) = (rows.next(), factors.next()) {
            advance_row(s, decay, &input, [*b, *c], row, &mut even);
            if let (Some(row), Some((b, c))) = (rows.next(), factors.next()) {
                advance_row(s, decay, &input, [*b, *c], row, &mut odd);
            }
        }
        for (v, x) in padded.iter_mut().enumerate() {
            let sum = s.add(even[v], odd[v]);
            let y = s.fma(s.load(x), s.splat(self.d), sum);
            s.store(x, y);
        }
        y.copy_from_slice(&padded.as_flattened()[..y.len()]);
    }
}

/// Takes one row of the state over a token, `row · decay + input · b`, and adds its product with c
/// to `sums`.
#[inline(always)]
fn advance_row<S: Simd, const V: usize>(
    s: S,
    decay: S::V,
    input: &[S::V; V],
    [b, c]: [f32; 2],
    row: &mut [f32],
    sums: &mut [S::V; V],
) {
    let (b, c) = (s.splat(b), s.splat(c));
    let (vectors, _) = row.as_chunks_mut::<LANES>();
    for ((element, input), sum) in vectors.iter_mut().zip(input).zip(sums) {
        let next = s.fma(*input, b, s.mul(s.load(element), decay));
        s.store(element, next);
        *sum = s.fma(next, c, *sum);
    }
}
