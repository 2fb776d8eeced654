//! Results agree with straight loops, and a token depends on itself and the keys alone.

use super::cpu::attend;
use super::*;
use crate::simd::Isa;

/// Tokens, keys, query heads, key-value heads, and the width of a head in units.
pub(super) const CASES: [[usize; 5]; 5] =
    [[1, 1, 1, 1, 1], [3, 16, 2, 2, 3], [1, 257, 4, 2, 8], [30, 100, 3, 3, 16], [5, 1500, 2, 2, 8]];

fn numbers(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 31 + seed * 17) as f32 * 0.37).sin()).collect()
}

/// Returns q, k and v.
pub(super) fn rows([tokens, keys, heads, kv_heads, dim]: [usize; 5]) -> [Vec<f32>; 3] {
    let [q, kv] = [tokens * heads * dim, keys * kv_heads * dim];
    [numbers(q, 1), numbers(kv, 2), numbers(kv, 3)]
}

pub(super) fn params([_, _, heads, _, dim]: [usize; 5]) -> AttentionParams {
    let scale = (dim as f32).sqrt().recip();
    AttentionParams { mask: AttentionMask::Both, ..AttentionParams::new(heads, scale) }
}

/// Returns the result in straight loops.
pub(super) fn reference(case: [usize; 5]) -> Vec<f64> {
    let [tokens, keys, heads, kv_heads, dim] = case;
    let [q, k, v] = rows(case).map(|rows| rows.into_iter().map(f64::from).collect::<Vec<_>>());
    let scale = f64::from(params(case).scale);
    let mut o = Vec::new();
    for (token, head) in (0..tokens).flat_map(|token| (0..heads).map(move |head| (token, head))) {
        let at = |key: usize| (key * kv_heads + head / (heads / kv_heads)) * dim;
        let query = &q[(token * heads + head) * dim..][..dim];
        let score = |key: usize| -> f64 {
            let products = query.iter().zip(&k[at(key)..][..dim]).map(|(x, y)| x * y);
            scale * products.sum::<f64>()
        };
        let weights: Vec<f64> = (0..keys).map(|key| score(key).exp()).collect();
        let total: f64 = weights.iter().sum();
        o.extend((0..dim).map(|i| {
            let weighted = weights.iter().enumerate().map(|(key, w)| w * v[at(key) + i]);
            weighted.sum::<f64>() / total
        }));
    }
    o
}

fn run(isa: Isa, case: [usize; 5], tokens: std::ops::Range<usize>) -> Vec<f32> {
    let [_, _, heads, kv_heads, dim] = case;
    let ([q, k, v], width) = (rows(case), heads * dim);
    let q = &q[tokens.start * width..tokens.end * width];
    let mut o = vec![f32::NAN; q.len()];
    attend(isa, [q, &k, &v], [kv_heads, dim], &params(case), &mut o);
    o
}

#[test]
fn all_keys_are_read() {
    for isa in Isa::available() {
        for case in
            CASES.map(|[tokens, keys, heads, kv, units]| [tokens, keys, heads, kv, 2 * units])
        {
            let (got, exact) = (run(isa, case, 0..case[0]), reference(case));
            assert_eq!(got.len(), exact.len());
            for (i, (got, exact)) in got.iter().zip(&exact).enumerate() {
                let close = (f64::from(*got) - exact).abs() <= 4e-6;
                assert!(close, "{isa:?} {case:?}: [{i}] is {got}, not {exact}");
            }
        }
    }
}

#[test]
fn a_token_does_not_depend_on_the_others() {
    for isa in Isa::available() {
        for case in
            CASES.map(|[tokens, keys, heads, kv, units]| [tokens, keys, heads, kv, 2 * units])
        {
            let all = run(isa, case, 0..case[0]);
            let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            let width = case[2] * case[4];
            for (token, row) in all.chunks(width).enumerate() {
                let alone = run(isa, case, token..token + 1);
                assert_eq!(bits(&alone), bits(row), "{isa:?} {case:?}: token {token}");
            }
        }
    }
}
