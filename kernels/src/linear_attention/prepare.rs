//! The inputs of the gated delta rule before the recurrence: normalised queries and keys, and the
//! factors of each token and head.

use super::recurrence::Factors;
use super::{GatedDeltaRule, LinearHeads};
use crate::simd::{Isa, Kernel, Map, Simd, map_in_place, sum_of_squares};
use crate::threads::for_each_rows;

/// Added to the sum of squares of a query or key: HF `l2norm`.
pub(super) const EPS: f32 = 1e-6;

/// From here on, torch's `softplus` returns its argument.
const SOFTPLUS_LINEAR: f32 = 20.0;

/// Divides queries and keys of `qkv`, `[num_tokens, heads.inputs()]`, by their lengths, and queries
/// by `√key_dim`.
pub(super) fn normalize(isa: Isa, qkv: &mut [f32], heads: LinearHeads) {
    for_each_rows(qkv, heads.inputs(), |_, rows| isa.run(NormalizeRows { rows, heads }));
}

/// The task of normalising some tokens.
struct NormalizeRows<'a> {
    rows: &'a mut [f32],
    heads: LinearHeads,
}

impl Kernel for NormalizeRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let LinearHeads { num_key_heads, key_dim, .. } = self.heads;
        let scale = (key_dim as f32).sqrt().recip();
        for row in self.rows.chunks_exact_mut(self.heads.inputs()) {
            let heads = row.chunks_exact_mut(key_dim).take(2 * num_key_heads);
            for (index, head) in heads.enumerate() {
                let inverse = 1.0 / (sum_of_squares(s, head) + EPS).sqrt();
                let scale = if index < num_key_heads { scale } else { 1.0 };
                map_in_place(s, head, Times(inverse * scale));
            }
        }
    }
}

/// The map `x · factor`.
#[derive(Clone, Copy)]
struct Times(f32);

impl Map for Times {
    #[inline(always)]
    fn map<S: Simd>(self, s: S, x: S::V) -> S::V {
        s.mul(x, s.splat(self.0))
    }
}

/// Writes the factors of each token and head. `gates` is `[num_tokens, 2 · num_heads]`: b, then a.
/// There are few, so the standard library's functions are used.
pub(super) fn fill_factors(rule: &GatedDeltaRule, gates: &[f32], factors: &mut [Factors]) {
    let heads = rule.heads.num_heads;
    let (a_log, dt_bias) = (rule.a_log.cpu(), rule.dt_bias.cpu());
    for (gates, factors) in gates.chunks_exact(2 * heads).zip(factors.chunks_exact_mut(heads)) {
        let (b, a) = gates.split_at(heads);
        for (head, factors) in factors.iter_mut().enumerate() {
            let rate = softplus(a[head] + dt_bias[head]);
            let decay = (-a_log[head].exp() * rate).exp();
            *factors = [decay, rule.beta_max / (1.0 + (-b[head]).exp())];
        }
    }
}

/// Returns `ln(1 + e^x)` as torch computes it.
fn softplus(x: f32) -> f32 {
    if x > SOFTPLUS_LINEAR { x } else { x.exp().ln_1p() }
}
