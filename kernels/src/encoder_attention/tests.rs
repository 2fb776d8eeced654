//! Results agree with the reference, and a token depends on its sequence alone.

use burn::tensor::{Device, TensorData};

use super::cpu::attend;
use super::*;
use crate::paged_attention::reference::paged_attention;
use crate::simd::{Isa, bf16_bits};
use crate::{AttentionMask, DistanceBiases, qk_norm_rope};

/// A ragged batch, and the attention over it.
#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) lens: Vec<usize>,
    /// Query heads, and key-value heads.
    pub(super) heads: [usize; 2],
    pub(super) head_dim: usize,
    mask: AttentionMask,
    has_biases: bool,
    rounds_to_bf16: bool,
}

fn numbers(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 31 + seed * 17) as f32 * 0.37).sin()).collect()
}

impl Case {
    /// Returns batches whose heads are multiples of `unit` wide.
    pub(super) fn all(unit: usize) -> Vec<Self> {
        let masks = [
            AttentionMask::Both,
            AttentionMask::Around(1),
            AttentionMask::Around(7),
            AttentionMask::Around(65),
            AttentionMask::Around(u32::MAX),
        ];
        let of_mask = |mask: AttentionMask| {
            let case = |lens: &[usize], heads, head_dim| Self {
                lens: lens.to_vec(),
                heads,
                head_dim,
                mask,
                has_biases: false,
                rounds_to_bf16: false,
            };
            [
                case(&[1], [1, 1], unit),
                case(&[17, 1, 16, 5], [3, 3], 3 * unit),
                case(&[40, 300, 2, 128], [4, 2], 16 * unit),
            ]
        };
        masks.into_iter().flat_map(of_mask).collect()
    }

    pub(super) fn with_biases(unit: usize) -> impl Iterator<Item = Self> {
        Self::all(unit).into_iter().map(|case| Self { has_biases: true, ..case })
    }

    /// Returns batches whose products may be rounded, some of several spans.
    fn rounded() -> impl Iterator<Item = Self> {
        let masks = [AttentionMask::Both, AttentionMask::Around(65)];
        let of_mask = |mask: AttentionMask| {
            let case = |lens: &[usize], heads, head_dim| Self {
                lens: lens.to_vec(),
                heads,
                head_dim,
                mask,
                has_biases: false,
                rounds_to_bf16: false,
            };
            [
                case(&[128, 33], [2, 2], 64),
                case(&[530, 31], [2, 1], 80),
                case(&[257], [1, 1], 128),
                case(&[19], [3, 1], 34),
            ]
        };
        let wide = masks.into_iter().flat_map(of_mask);
        let all = Self::all(2).into_iter().chain(Self::with_biases(2)).chain(wide);
        all.map(|case| Self { rounds_to_bf16: true, ..case })
    }

    pub(super) fn params(&self) -> AttentionParams {
        self.params_on(&Device::flex())
    }

    pub(super) fn params_on(&self, device: &Device) -> AttentionParams {
        let scale = (self.head_dim as f32).sqrt().recip();
        let bias = |head: usize, distance: i64| ((head * 7) as f32 + distance as f32).cos();
        let biases = || DistanceBiases::new(self.heads[0], 300, bias, device).unwrap();
        AttentionParams {
            mask: self.mask,
            distance_biases: self.has_biases.then(biases),
            rounds_to_bf16: self.rounds_to_bf16,
            ..AttentionParams::new(self.heads[0], scale)
        }
    }

    /// Returns q, k and v.
    pub(super) fn rows(&self) -> [Vec<f32>; 3] {
        let tokens: usize = self.lens.iter().sum();
        let [queries, keys] = self.heads.map(|heads| tokens * heads * self.head_dim);
        [numbers(queries, 1), numbers(keys, 2), numbers(keys, 3)]
    }

    /// Returns the same, rounded to bfloat16.
    fn rounded_rows(&self) -> [Vec<f32>; 3] {
        let rounded = |x: f32| f32::from_bits(u32::from(bf16_bits(x)) << 16);
        self.rows().map(|rows| rows.into_iter().map(rounded).collect())
    }

    pub(super) fn meta(lens: &[usize]) -> AttentionMetadata {
        let mut meta = AttentionMetadata { query_start_loc: vec![0], ..Default::default() };
        for len in lens {
            meta.positions.extend(0..*len as u32);
            meta.query_start_loc.push(meta.positions.len() as u32);
            meta.seq_lens.push(*len as u32);
        }
        meta
    }

    /// Computes some sequences of the batch, from the token `first` on.
    fn run(&self, isa: Isa, first: usize, lens: &[usize]) -> Vec<f32> {
        let [num_heads, num_kv_heads] = self.heads;
        let tokens: usize = lens.iter().sum();
        let [q, k, v] = self.rows();
        let part = |rows: &'_ Vec<f32>, heads: usize| {
            let width = heads * self.head_dim;
            rows[first * width..(first + tokens) * width].to_vec()
        };
        let (q, k, v) = (part(&q, num_heads), part(&k, num_kv_heads), part(&v, num_kv_heads));
        let mut o = vec![f32::NAN; q.len()];
        let heads = [num_kv_heads, self.head_dim];
        attend(isa, [&q, &k, &v], heads, &Self::meta(lens), &self.params(), &mut o);
        o
    }
}

/// Returns the result in straight loops.
pub(super) fn reference(case: &Case, params: &AttentionParams) -> Vec<f64> {
    reference_of(case, params, case.rows())
}

/// Returns the result over q, k and v in straight loops.
fn reference_of(case: &Case, params: &AttentionParams, [q, k, v]: [Vec<f32>; 3]) -> Vec<f64> {
    let ([_, num_kv_heads], head_dim) = (case.heads, case.head_dim);
    let meta = Case::meta(&case.lens);
    let shape = KvCacheShape { ..shape(&meta, num_kv_heads, head_dim) };
    let stored = |position: usize, seq: usize, head: usize| {
        let token = meta.query_start_loc[seq] as usize + position;
        let at = (token * num_kv_heads + head) * head_dim;
        [&k, &v].map(|rows| rows[at..at + head_dim].to_vec())
    };
    paged_attention(&q, &shape, &meta, params, stored)
}

#[test]
fn ragged_batches_agree_with_the_reference() {
    for isa in Isa::available() {
        for case in Case::all(2).into_iter().chain(Case::with_biases(2)) {
            let exact = reference(&case, &case.params());
            let got = case.run(isa, 0, &case.lens);
            assert_eq!(got.len(), exact.len());
            for (i, (got, exact)) in got.iter().zip(&exact).enumerate() {
                let close = (f64::from(*got) - exact).abs() <= 4e-6;
                assert!(close, "{isa:?} {case:?}: [{i}] is {got}, not {exact}");
            }
        }
    }
}

/// Over rounded operands, only the rounding of the weights is left: 2⁻⁹ of each.
#[test]
fn rounded_products_agree_with_the_reference() {
    for isa in Isa::available() {
        for case in Case::rounded() {
            let (rows, tolerance) = match isa.rounds_pairs() {
                true => (case.rounded_rows(), 4e-3),
                false => (case.rows(), 1e-5),
            };
            let exact = reference_of(&case, &case.params(), rows);
            let got = case.run(isa, 0, &case.lens);
            assert_eq!(got.len(), exact.len());
            for (i, (got, exact)) in got.iter().zip(&exact).enumerate() {
                let close = (f64::from(*got) - exact).abs() <= tolerance;
                assert!(close, "{isa:?} {case:?}: [{i}] is {got}, not {exact}");
            }
        }
    }
}

/// The attention that has no rounded products is that of f32.
#[test]
fn a_soft_cap_is_computed_in_f32() {
    let case = |rounds_to_bf16: bool| {
        let case = Case::rounded().last().unwrap();
        Case { rounds_to_bf16, ..case }
    };
    let run = |case: Case| {
        let params = AttentionParams { soft_cap: Some(2.0), ..case.params() };
        let ([q, k, v], meta) = (case.rows(), Case::meta(&case.lens));
        let mut o = vec![f32::NAN; q.len()];
        let heads = [case.heads[1], case.head_dim];
        attend(Isa::active(), [&q, &k, &v], heads, &meta, &params, &mut o);
        o
    };
    assert_eq!(run(case(true)), run(case(false)));
}

#[test]
fn heads_are_read_where_they_are() {
    let device = Device::flex();
    let dense = |rows: &[f32], width: usize| {
        Tensor::<2>::from_data(TensorData::new(rows.to_vec(), [rows.len() / width, width]), &device)
    };
    for case in Case::all(2).into_iter().chain(Case::rounded()) {
        let ([num_heads, num_kv_heads], head_dim) = (case.heads, case.head_dim);
        let (meta, params) = (Case::meta(&case.lens), case.params());
        let [q, k, v] = case.rows();
        let [q, k, v] = [(q, num_heads), (k, num_kv_heads), (v, num_kv_heads)]
            .map(|(rows, heads)| dense(&rows, heads * head_dim));
        for clip in [None, Some(0.5)] {
            let heads = QkvHeads {
                num_heads,
                num_kv_heads,
                head_dim,
                q_norm: None,
                k_norm: None,
                norms_after_rope: false,
                eps: 0.0,
                clip,
            };
            let qkv = Tensor::cat(vec![q.clone(), k.clone(), v.clone()], 1);
            let positions = &meta.positions;
            let (q, k, v) = qk_norm_rope(qkv.clone(), &heads, positions, None);
            let expected = encoder_attention(q, k, v, num_kv_heads, &meta, &params);
            let got = encoder_self_attention(qkv, &heads, positions, None, &meta, &params);
            assert_eq!(got.into_data(), expected.into_data(), "{case:?} {clip:?}");
        }
    }
}

#[test]
fn a_sequence_does_not_depend_on_its_batch() {
    for isa in Isa::available() {
        let of_f32 = Case::all(2).into_iter().chain(Case::with_biases(2));
        for case in of_f32.chain(Case::rounded()) {
            let all = case.run(isa, 0, &case.lens);
            let (mut first, width) = (0, case.heads[0] * case.head_dim);
            for len in &case.lens {
                let alone = case.run(isa, first, &[*len]);
                let of_batch = &all[first * width..(first + len) * width];
                let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&alone), bits(of_batch), "{isa:?} {case:?}: {len} tokens");
                first += len;
            }
        }
    }
}

/// The memory of a call is reused. Numbers of an earlier call must not matter.
#[test]
fn numbers_of_a_call_before_are_not_read() {
    for rounds_to_bf16 in [false, true] {
        let case = |lens: &[usize]| Case {
            lens: lens.to_vec(),
            heads: [2, 2],
            head_dim: 8,
            mask: AttentionMask::Both,
            has_biases: false,
            rounds_to_bf16,
        };
        let isa = Isa::active();
        let fresh = case(&[5, 3]).run(isa, 0, &[5, 3]);
        let mut o = vec![0.0; 64 * 16];
        let nan = vec![f32::NAN; 64 * 16];
        let params = case(&[64]).params();
        attend(isa, [&nan, &nan, &nan], [2, 8], &Case::meta(&[64]), &params, &mut o);
        assert_eq!(case(&[5, 3]).run(isa, 0, &[5, 3]), fresh);
    }
}
