//! The results equal those of the separate operations, byte for byte.

use burn::tensor::{Device, Tensor, TensorData};
use proptest::prelude::*;

use super::cpu::split;
use super::*;
use crate::rope::cpu::Angles;
use crate::simd::Isa;
use crate::{rms_norm, rope};

fn values(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 31 + seed * 17) as f32 * 0.37).sin()).collect()
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

struct Case {
    heads: QkvHeads,
    table: RotaryTable,
    positions: Vec<u32>,
    qkv: Vec<f32>,
}

impl Case {
    fn new(tokens: usize, [q, kv, dim]: [usize; 3], is_normed: bool, device: &Device) -> Self {
        let norm = |seed| WeightVector::new(values(dim, seed), device).unwrap();
        let angles = |seed| values(64 * dim / 2, seed);
        Self {
            heads: QkvHeads {
                num_heads: q,
                num_kv_heads: kv,
                head_dim: dim,
                q_norm: is_normed.then(|| norm(1)),
                k_norm: is_normed.then(|| norm(2)),
                eps: 1e-6,
            },
            table: RotaryTable::new(angles(3), angles(4), dim, device).unwrap(),
            positions: (0..tokens as u32).map(|i| i * 7 % 64).collect(),
            qkv: values(tokens * (q + 2 * kv) * dim, 5),
        }
    }

    fn tensor(&self, device: &Device) -> Tensor<2> {
        let shape = [self.positions.len(), self.heads.q_size() + 2 * self.heads.kv_size()];
        Tensor::from_data(TensorData::new(self.qkv.clone(), shape), device)
    }

    /// Returns queries, keys and values by one operation after another.
    fn one_by_one(&self, device: &Device) -> [Vec<f32>; 3] {
        let Self { heads, table, positions, .. } = self;
        let part =
            |columns: Range<usize>| self.tensor(device).narrow(1, columns.start, columns.len());
        let turned = |columns: Range<usize>, norm: &Option<WeightVector>| {
            let (rows, width, dim) = (positions.len(), columns.len(), heads.head_dim);
            let x = match norm {
                None => part(columns),
                Some(norm) => {
                    let each = part(columns).reshape([rows * width / dim, dim]);
                    rms_norm(each, norm, heads.eps).reshape([rows, width])
                }
            };
            rope(x, positions, dim, table)
        };
        let [q, k, v] = heads.columns();
        [turned(q, &heads.q_norm), turned(k, &heads.k_norm), part(v)].map(data)
    }

    fn at_once(&self, device: &Device) -> [Vec<f32>; 3] {
        let qkv = self.tensor(device);
        let (q, k, v) = qk_norm_rope(qkv, &self.heads, &self.positions, &self.table);
        [q, k, v].map(data)
    }
}

fn data(x: Tensor<2>) -> Vec<f32> {
    x.into_data().try_to_vec().unwrap()
}

proptest! {
    #[test]
    fn the_bytes_are_those_of_one_operation_after_another(
        tokens in 1usize..9,
        groups in 1usize..4,
        kv in 1usize..4,
        half in 1usize..40,
        is_normed: bool,
    ) {
        let device = Device::flex();
        let case = Case::new(tokens, [groups * kv, kv, 2 * half], is_normed, &device);
        let (got, expected) = (case.at_once(&device), case.one_by_one(&device));
        for (got, expected) in got.iter().zip(&expected) {
            prop_assert_eq!(bits(got), bits(expected));
        }
    }
}

#[test]
fn a_token_does_not_see_its_batch() {
    // Enough tokens to be divided among the threads.
    let device = Device::flex();
    let case = Case::new(200, [8, 2, 64], true, &device);
    for isa in Isa::available() {
        let split = |qkv: &[f32], positions: &[u32]| {
            let mut parts =
                case.heads.columns().map(|part| vec![f32::NAN; positions.len() * part.len()]);
            let out = parts.each_mut().map(|part| &mut part[..]);
            split(isa, qkv, &case.heads, positions, Angles::of(&case.table), out);
            parts
        };
        let all = split(&case.qkv, &case.positions);
        let width = case.qkv.len() / 200;
        for (i, (row, position)) in case.qkv.chunks_exact(width).zip(&case.positions).enumerate() {
            for (all, alone) in all.iter().zip(split(row, &[*position])) {
                let same = &all[i * alone.len()..][..alone.len()];
                assert_eq!(bits(same), bits(&alone), "{} {i}", isa.name());
            }
        }
    }
}

#[test]
#[cfg(feature = "gpu")]
fn a_gpu_gives_the_same_bytes() {
    let Some(device) = crate::cube::test_device::test_device() else { return };
    for (shape, is_normed) in [([4, 2, 16], true), ([3, 1, 32], false), ([2, 2, 8], true)] {
        let case = Case::new(5, shape, is_normed, &device);
        let expected = case.one_by_one(&device);
        for (got, expected) in case.at_once(&device).iter().zip(&expected) {
            assert_eq!(bits(got), bits(expected), "{shape:?}");
        }
    }
}
