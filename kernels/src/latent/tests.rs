//! Comparisons with the reference, and with each token alone, byte by byte.

use burn::tensor::{Device, Tensor, TensorData};
use half::bf16;
use proptest::prelude::*;

use super::cpu::{Queries, expand, keys, queries};
use super::reference::{angle, normed, product, rotated};
use super::*;
use crate::rope::cpu::Angles;
use crate::simd::Isa;
use crate::{WeightDtype, WeightView};

pub(super) const EPS: f32 = 1e-6;

/// Returns reproducible values in (-1, 1).
pub(super) fn values(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 37 + seed * 101) as f32 * 0.61).sin()).collect()
}

/// A layer, with its matrices as they were before they were packed.
pub(super) struct Layer {
    pub(super) sizes: Sizes,
    pub(super) keys: Vec<Vec<f32>>,
    pub(super) values: Vec<Vec<f32>>,
    pub(super) projections: LatentProjections,
    pub(super) table: RotaryTable,
}

pub(super) fn weight(
    w: &[f32],
    inputs: usize,
    dtype: WeightDtype,
    device: &Device,
) -> LinearWeight {
    LinearWeight::pack(&[WeightView::F32(w)], inputs, dtype, device).unwrap()
}

impl Layer {
    fn new(sizes: Sizes, dtype: WeightDtype) -> Self {
        Self::on(sizes, dtype, &Device::flex())
    }

    pub(super) fn on(sizes: Sizes, dtype: WeightDtype, device: &Device) -> Self {
        let Sizes { heads, nope, rope, rank, value } = sizes;
        let round = |x: f32| match dtype {
            WeightDtype::Bf16 => bf16::from_f32(x).to_f32(),
            _ => x,
        };
        let matrices = |len: usize, seed: usize| -> Vec<Vec<f32>> {
            let of_head = |head| values(len, seed + head).into_iter().map(round).collect();
            (0..heads).map(of_head).collect()
        };
        let (keys, values) = (matrices(rank * nope, 1), matrices(value * rank, 1000));
        let packed = |matrices: &[Vec<f32>], inputs: usize| {
            matrices.iter().map(|w| weight(w, inputs, dtype, device)).collect()
        };
        let packed = [packed(&keys, nope), packed(&values, rank)];
        let [packed_keys, packed_values] = packed;
        let projections = LatentProjections::new(packed_keys, packed_values, rope).unwrap();
        Self { sizes, keys, values, projections, table: table(rope, device) }
    }

    fn queries(&self, isa: Isa, q: &[f32], positions: &[u32]) -> Vec<f32> {
        let Sizes { heads, rope, rank, .. } = self.sizes;
        let mut out = vec![f32::NAN; positions.len() * heads * (rank + rope)];
        let angles = Angles::of(&self.table);
        let task = Queries { projections: &self.projections, positions, angles };
        queries(isa, q, &task, &mut out);
        out
    }

    fn values(&self, isa: Isa, latents: &[f32]) -> Vec<f32> {
        let Sizes { heads, rank, value, .. } = self.sizes;
        let mut out = vec![f32::NAN; latents.len() / rank * value];
        assert_eq!(out.len() % (heads * value), 0);
        expand(isa, latents, &self.projections, &mut out);
        out
    }
}

pub(super) fn table(rope: usize, device: &Device) -> RotaryTable {
    let half = rope / 2;
    let of = |f: fn(f64) -> f64| -> Vec<f32> {
        (0..64).flat_map(|p| (0..half).map(move |i| f(angle(p, i, half)) as f32)).collect()
    };
    RotaryTable::new(of(f64::cos), of(f64::sin), rope, device).unwrap()
}

pub(super) const SIZES: [Sizes; 4] = [
    Sizes { heads: 4, nope: 12, rope: 8, rank: 24, value: 10 },
    Sizes { heads: 3, nope: 1, rope: 2, rank: 2, value: 1 },
    Sizes { heads: 1, nope: 33, rope: 34, rank: 70, value: 65 },
    Sizes { heads: 16, nope: 128, rope: 64, rank: 512, value: 128 },
];

fn assert_near(isa: Isa, got: &[f32], expected: impl IntoIterator<Item = (f64, f64)>) {
    for (got, (expected, size)) in got.iter().zip(expected) {
        let error = (f64::from(*got) - expected).abs();
        assert!(error < 1e-5 * (size + 1.0), "{}: {got} {expected}", isa.name());
    }
}

#[test]
fn projected_heads_agree_with_the_reference() {
    for (sizes, dtype) in SIZES
        .into_iter()
        .flat_map(|sizes| [WeightDtype::F32, WeightDtype::Bf16].map(|dtype| (sizes, dtype)))
    {
        let Sizes { heads, nope, rope, rank, .. } = sizes;
        let (layer, positions) = (Layer::new(sizes, dtype), [3u32, 0, 63, 17, 3]);
        let q = values(positions.len() * heads * (nope + rope), 7);
        let latents = values(positions.len() * heads * rank, 8);
        for isa in Isa::available() {
            let seen = |x: &[f32]| -> Vec<f32> {
                let rounds = dtype == WeightDtype::Bf16 && isa.rounds_activations();
                let round = |x: &f32| if rounds { bf16::from_f32(*x).to_f32() } else { *x };
                x.iter().map(round).collect()
            };
            let out = layer.queries(isa, &q, &positions);
            let rows = out.chunks_exact(rank + rope).zip(q.chunks_exact(nope + rope));
            for (i, (out, q)) in rows.enumerate() {
                let expected = product(&layer.keys[i % heads], &seen(&q[..nope]));
                assert_near(isa, &out[..rank], expected);
                let turned = rotated(&q[nope..], positions[i / heads]);
                assert_near(isa, &out[rank..], turned.into_iter().map(|x| (x, 0.0)));
            }
            let out = layer.values(isa, &latents);
            let rows = out.chunks_exact(sizes.value).zip(latents.chunks_exact(rank));
            for (i, (out, latent)) in rows.enumerate() {
                assert_near(isa, out, product(&layer.values[i % heads], &seen(latent)));
            }
        }
    }
}

#[test]
fn keys_are_normalised_and_rotated() {
    for Sizes { rope, rank, .. } in SIZES {
        let (width, positions) = (rank + rope, [3u32, 0, 63, 17, 3]);
        let kv = values(positions.len() * width, 5);
        let weight = values(rank, 6);
        let norm = LatentNorm {
            weight: WeightVector::new(weight.clone(), &Device::flex()).unwrap(),
            eps: EPS,
        };
        let table = table(rope, &Device::flex());
        for isa in Isa::available() {
            let mut out = kv.clone();
            keys(isa, &mut out, &norm, &positions, Angles::of(&table), width);
            for ((out, kv), position) in
                out.chunks_exact(width).zip(kv.chunks_exact(width)).zip(positions)
            {
                let expected = normed(&kv[..rank], &weight, EPS).into_iter();
                let expected = expected.chain(rotated(&kv[rank..], position));
                assert_near(isa, out, expected.map(|x| (x, 0.0)));
            }
        }
    }
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    /// A token has the same bytes alone and in a batch of any size.
    #[test]
    fn a_token_does_not_depend_on_its_batch(
        tokens in 1usize..60,
        sizes in prop::sample::select(SIZES[..3].to_vec()),
        dtype in prop::sample::select(vec![WeightDtype::F32, WeightDtype::Bf16]),
    ) {
        let layer = Layer::new(sizes, dtype);
        let Sizes { heads, nope, rope, rank, value } = sizes;
        let positions: Vec<u32> = (0..tokens as u32).collect();
        let q = values(tokens * heads * (nope + rope), 7);
        let latents = values(tokens * heads * rank, 8);
        let widths = [nope + rope, rank + rope, rank, value].map(|width| heads * width);
        for isa in Isa::available() {
            let (all_q, all_v) = (layer.queries(isa, &q, &positions), layer.values(isa, &latents));
            for t in [0, tokens / 2, tokens - 1] {
                let of = |x: &[f32], width: usize| x[t * width..(t + 1) * width].to_vec();
                let one = layer.queries(isa, &of(&q, widths[0]), &positions[t..=t]);
                prop_assert_eq!(bits(&one), bits(&of(&all_q, widths[1])));
                let one = layer.values(isa, &of(&latents, widths[2]));
                prop_assert_eq!(bits(&one), bits(&of(&all_v, widths[3])));
            }
        }
    }
}

fn tensor(data: Vec<f32>, width: usize) -> Tensor<2> {
    let rows = data.len() / width;
    Tensor::from_data(TensorData::new(data, [rows, width]), &Device::flex())
}

#[test]
fn an_empty_batch_is_accepted() {
    let layer = Layer::new(SIZES[0], WeightDtype::F32);
    let q = latent_queries(tensor(Vec::new(), 80), &layer.projections, &[], &layer.table);
    assert_eq!(q.dims(), [0, 4 * 32]);
    assert_eq!(latent_values(tensor(Vec::new(), 96), &layer.projections).dims(), [0, 40]);
}

#[test]
fn a_shared_tensor_is_left_alone() {
    let norm =
        LatentNorm { weight: WeightVector::new(vec![2.0; 4], &Device::flex()).unwrap(), eps: EPS };
    let kv = tensor(values(6, 1), 6);
    let _ = latent_keys(kv.clone(), &norm, &[5], &table(2, &Device::flex()));
    assert_eq!(kv.into_data().try_to_vec::<f32>().unwrap(), values(6, 1));
}

#[test]
fn weights_that_do_not_fit_are_refused_by_name() {
    let of = |outputs: usize, inputs: usize| {
        weight(&values(outputs * inputs, 1), inputs, WeightDtype::F32, &Device::flex())
    };
    let error =
        |keys, values, rope| LatentProjections::new(keys, values, rope).unwrap_err().to_string();
    assert!(error(vec![], vec![], 2).contains("number of heads"));
    assert!(error(vec![of(4, 3), of(4, 3)], vec![of(2, 4)], 2).contains("values"));
    assert!(error(vec![of(4, 3)], vec![of(2, 5)], 2).contains("in_features of values[0]"));
    let two = || vec![of(4, 3), of(4, 2)];
    assert!(error(two(), vec![of(2, 4), of(2, 4)], 2).contains("in_features of keys[1]"));
    assert!(error(vec![of(4, 3)], vec![of(2, 4)], 3).contains("rope"));
}
