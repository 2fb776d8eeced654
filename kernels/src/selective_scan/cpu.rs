//! The CPU's version: neighbouring channels of one sequence are a piece, whose state stays in the
//! cache over all tokens. Vectors run along channels.

use std::ops::Range;

use burn_flex::FlexTensor;

use super::SelectiveScan;
use crate::kv_cache::KvLayer;
use crate::paged_attention::AttentionMetadata;
use crate::simd::{Isa, Kernel, LANES, Simd, exp, softplus};
use crate::states::{Recurrence, advance_states};
use crate::tensors::{dense, dims2, values, values_mut};
use crate::threads::SharedMut;
use crate::workspace::{give_back, tensor};

/// Takes the states over the tokens.
pub(crate) fn selective_scan(
    x: FlexTensor,
    dt: FlexTensor,
    b: FlexTensor,
    c: FlexTensor,
    scan: &SelectiveScan,
    layer: &mut KvLayer,
    meta: &AttentionMetadata,
) -> FlexTensor {
    let of_channels = [meta.num_tokens(), scan.sizes.channels];
    let of_state = [meta.num_tokens(), scan.sizes.state_size];
    assert_eq!([dims2(&x), dims2(&dt)], [of_channels; 2], "selective_scan: shapes of x and dt");
    assert_eq!([dims2(&b), dims2(&c)], [of_state; 2], "selective_scan: shapes of b and c");
    let [x, dt, b, c] = [x, dt, b, c].map(dense);
    let mut y = tensor(meta.num_tokens(), scan.sizes.channels);
    let inputs = Inputs { x: values(&x), dt: values(&dt), b: values(&b), c: values(&c) };
    scanned(Isa::active(), scan, inputs, layer, meta, values_mut(&mut y));
    [x, dt, b, c].into_iter().for_each(give_back);
    y
}

/// The rows of a step.
#[derive(Debug, Clone, Copy)]
pub(super) struct Inputs<'a> {
    pub(super) x: &'a [f32],
    pub(super) dt: &'a [f32],
    pub(super) b: &'a [f32],
    pub(super) c: &'a [f32],
}

/// Takes the states over the tokens on one instruction set, into y.
pub(super) fn scanned(
    isa: Isa,
    scan: &SelectiveScan,
    inputs: Inputs<'_>,
    layer: &mut KvLayer,
    meta: &AttentionMetadata,
    y: &mut [f32],
) {
    // An exponential counts as a dozen multiply-adds.
    let work = 16 * y.len() * scan.sizes.state_size;
    let over_tokens = OverTokens { isa, scan, inputs, y: SharedMut::new(y) };
    advance_states(layer, meta, work, &over_tokens);
}

struct OverTokens<'a> {
    isa: Isa,
    scan: &'a SelectiveScan,
    inputs: Inputs<'a>,
    y: SharedMut<'a, f32>,
}

impl Recurrence for OverTokens<'_> {
    fn num_parts(&self) -> usize {
        self.scan.sizes.num_parts()
    }

    fn part(&self, part: usize) -> Range<usize> {
        let (Range { start, end }, at) = (self.scan.sizes.place(part), self.scan.state_at);
        at + start..at + end
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
        let Self { over: OverTokens { scan, inputs, y, .. }, part, state, rows } = self;
        let channels = scan.sizes.channels_of(part);
        let stride = channels.len().next_multiple_of(LANES);
        let a = &scan.a.cpu()[scan.sizes.place(part)];
        for row in rows {
            let (first, n) = (row * scan.sizes.channels, scan.sizes.state_size);
            let (b, c) = (&inputs.b[row * n..][..n], &inputs.c[row * n..][..n]);
            for v in 0..stride / LANES {
                let start = channels.start + v * LANES;
                let of_vector = first + start..first + channels.end.min(start + LANES);
                let x = padded(s, &inputs.x[of_vector.clone()]);
                let bias = padded(s, &scan.dt_bias.cpu()[start..start + LANES]);
                let dt = padded(s, &inputs.dt[of_vector.clone()]);
                let delta = softplus(s, s.add(dt, bias));
                let input = s.mul(delta, x);
                // The exponentials leave time for the chain of one sum.
                let mut sum = s.splat(0.0);
                for (n, (b, c)) in b.iter().zip(c).enumerate() {
                    let at = n * stride + v * LANES;
                    let decay = exp(s, s.mul(delta, padded(s, &a[at..at + LANES])));
                    let (vector, _) = state[at..at + LANES].as_chunks_mut::<LANES>();
                    let kept = s.mul(s.load(&vector[0]), decay);
                    let next = s.fma(input, s.splat(*b), kept);
                    s.store(&mut vector[0], next);
                    sum = s.fma(next, s.splat(*c), sum);
                }
                let d = padded(s, &scan.d.cpu()[start..start + LANES]);
                let result = s.fma(x, d, sum);
                // SAFETY: no other call has these rows and channels.
                let y = unsafe { y.slice(of_vector.start, of_vector.len()) };
                let mut lanes = [0.0; LANES];
                s.store(&mut lanes, result);
                y.copy_from_slice(&lanes[..y.len()]);
            }
        }
    }
}

/// Returns a vector of up to [`LANES`] values, padded with zeros.
#[inline(always)]
pub(crate) fn padded<S: Simd>(s: S, values: &[f32]) -> S::V {
    match values.first_chunk() {
        Some(vector) => s.load(vector),
        None => {
            let mut lanes = [0.0; LANES];
            lanes[..values.len()].copy_from_slice(values);
            s.load(&lanes)
        }
    }
}
