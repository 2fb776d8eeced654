//! Results agree with straight loops in f64, and a token depends on its sequence alone.

use super::cpu::attend;
use super::*;
use crate::simd::Isa;

/// A ragged batch, and the attention over it.
#[derive(Debug, Clone, Copy)]
struct Case {
    lens: &'static [usize],
    num_heads: usize,
    head_dim: usize,
    /// Half of the buckets.
    span: usize,
    has_keys: bool,
    has_queries: bool,
}

const POSITIONS: usize = 90;

fn numbers(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 31 + seed * 17) as f32 * 0.37).sin()).collect()
}

/// Distances within half of the buckets have one each, and the others the first or the last.
fn bucket(span: usize, distance: i64) -> usize {
    (distance + span as i64).clamp(0, 2 * span as i64 - 1) as usize
}

impl Case {
    fn all() -> Vec<Self> {
        let mut cases = Vec::new();
        for (has_keys, has_queries) in [(true, true), (true, false), (false, true)] {
            let case = |lens: &'static [usize], num_heads, head_dim, span| Self {
                lens,
                num_heads,
                head_dim,
                span,
                has_keys,
                has_queries,
            };
            cases.push(case(&[1], 1, 2, 1));
            cases.push(case(&[17, 1, 16, 5], 3, 6, 4));
            cases.push(case(&[40, 90, 2, 33], 2, 32, 24));
            cases.push(case(&[3, 89], 2, 17, 200));
        }
        cases
    }

    fn width(&self) -> usize {
        self.num_heads * self.head_dim
    }

    fn tables(&self) -> [Vec<f32>; 2] {
        [4, 5].map(|seed| numbers(2 * self.span * self.width(), seed))
    }

    fn rows(&self) -> [Vec<f32>; 3] {
        let tokens: usize = self.lens.iter().sum();
        [1, 2, 3].map(|seed| numbers(tokens * self.width(), seed))
    }

    fn attention(&self) -> DisentangledAttention {
        let [keys, queries] = self.tables();
        let shape = DisentangledShape {
            num_heads: self.num_heads,
            head_dim: self.head_dim,
            scale: self.scale(),
            positions: POSITIONS,
            num_buckets: 2 * self.span,
            keys: self.has_keys.then_some(&keys),
            queries: self.has_queries.then_some(&queries),
        };
        let of_distance = |distance| bucket(self.span, distance);
        DisentangledAttention::new(shape, of_distance, &Device::flex()).unwrap()
    }

    fn scale(&self) -> f32 {
        (3.0 * self.head_dim as f32).sqrt().recip()
    }

    /// Computes some sequences of the batch, from the token `first` on.
    fn run(&self, isa: Isa, first: usize, lens: &[usize]) -> Vec<f32> {
        let tokens: usize = lens.iter().sum();
        let rows = self.rows();
        let part =
            |rows: &Vec<f32>| rows[first * self.width()..(first + tokens) * self.width()].to_vec();
        let [q, k, v] = [part(&rows[0]), part(&rows[1]), part(&rows[2])];
        let mut o = vec![f32::NAN; q.len()];
        attend(isa, [&q, &k, &v], &meta(lens), &self.attention(), &mut o);
        o
    }

    /// Returns the result in straight loops.
    fn reference(&self) -> Vec<f64> {
        let ([q, k, v], [keys, queries]) = (self.rows(), self.tables());
        let at = |row: usize, head: usize| (row * self.num_heads + head) * self.head_dim;
        let dot = |a: &[f32], a_row: usize, b: &[f32], b_row: usize, head: usize| -> f64 {
            let (a, b) = (&a[at(a_row, head)..], &b[at(b_row, head)..]);
            let pairs = a.iter().zip(b).take(self.head_dim);
            pairs.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
        };
        let mut o = vec![0.0; q.len()];
        let mut first = 0;
        for len in self.lens {
            for (i, head) in (0..*len).flat_map(|i| (0..self.num_heads).map(move |h| (i, h))) {
                let score = |j: usize| {
                    let row = bucket(self.span, i as i64 - j as i64);
                    let mut score = dot(&q, first + i, &k, first + j, head);
                    if self.has_keys {
                        score += dot(&q, first + i, &keys, row, head);
                    }
                    if self.has_queries {
                        score += dot(&k, first + j, &queries, row, head);
                    }
                    score * f64::from(self.scale())
                };
                let weights: Vec<f64> = (0..*len).map(|j| score(j).exp()).collect();
                let total: f64 = weights.iter().sum();
                for (j, weight) in weights.iter().enumerate() {
                    for d in 0..self.head_dim {
                        let value = f64::from(v[at(first + j, head) + d]);
                        o[at(first + i, head) + d] += weight / total * value;
                    }
                }
            }
            first += len;
        }
        o
    }
}

fn meta(lens: &[usize]) -> AttentionMetadata {
    let mut meta = AttentionMetadata { query_start_loc: vec![0], ..Default::default() };
    for len in lens {
        meta.positions.extend(0..*len as u32);
        meta.query_start_loc.push(meta.positions.len() as u32);
        meta.seq_lens.push(*len as u32);
    }
    meta
}

#[test]
fn ragged_batches_agree_with_the_reference() {
    for isa in Isa::available() {
        for case in Case::all() {
            let (got, exact) = (case.run(isa, 0, case.lens), case.reference());
            assert_eq!(got.len(), exact.len());
            for (i, (got, exact)) in got.iter().zip(&exact).enumerate() {
                let close = (f64::from(*got) - exact).abs() <= 1e-5;
                assert!(close, "{isa:?} {case:?}: [{i}] is {got}, not {exact}");
            }
        }
    }
}

#[test]
fn a_sequence_does_not_depend_on_its_batch() {
    for isa in Isa::available() {
        for case in Case::all() {
            let (all, mut first) = (case.run(isa, 0, case.lens), 0);
            for len in case.lens {
                let alone = case.run(isa, first, &[*len]);
                let of_batch = &all[first * case.width()..(first + len) * case.width()];
                let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&alone), bits(of_batch), "{isa:?} {case:?}: {len} tokens");
                first += len;
            }
        }
    }
}

#[test]
fn wrong_sizes_are_refused() {
    let table = vec![0.0; 4 * 6];
    let shape = DisentangledShape {
        num_heads: 3,
        head_dim: 2,
        scale: 1.0,
        positions: 8,
        num_buckets: 4,
        keys: Some(&table),
        queries: None,
    };
    let refused = |shape: DisentangledShape<'_>, bucket: fn(i64) -> usize| {
        DisentangledAttention::new(shape, bucket, &Device::flex()).unwrap_err().to_string()
    };
    let in_order: fn(i64) -> usize = |distance| bucket(2, distance);
    assert!(DisentangledAttention::new(shape, in_order, &Device::flex()).is_ok());
    assert!(refused(DisentangledShape { num_buckets: 5, ..shape }, in_order).contains("keys"));
    let queries = Some(&table[1..]);
    assert!(refused(DisentangledShape { queries, ..shape }, in_order).contains("queries"));
    assert!(refused(DisentangledShape { positions: 0, ..shape }, in_order).contains("positions"));
    assert!(refused(shape, |_| 4).contains("bucket"));
    assert!(refused(shape, |distance| bucket(2, -distance)).contains("bucket"));
}
