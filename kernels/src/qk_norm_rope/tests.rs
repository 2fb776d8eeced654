//! The results equal those of the separate operations, byte for byte.

use burn::tensor::{Device, Tensor, TensorData};
use proptest::prelude::*;

use super::cpu::split;
use super::*;
use crate::kv_cache::cpu::stored;
use crate::rope::cpu::Angles;
use crate::simd::Isa;
use crate::{KvCache, KvCacheShape, KvDtype, clamp, layer_norm, reshape_and_cache, rms_norm, rope};

fn values(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 31 + seed * 17) as f32 * 0.37).sin()).collect()
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

/// The kinds of [`HeadNorm`], and none.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    None,
    Rms,
    RmsAcrossHeads,
    Layer,
    LayerBiased,
    Unit,
}

const KINDS: [Kind; 6] =
    [Kind::None, Kind::Rms, Kind::RmsAcrossHeads, Kind::Layer, Kind::LayerBiased, Kind::Unit];

/// The parts that a model may have.
#[derive(Debug, Clone, Copy)]
struct Parts {
    norm: Kind,
    norms_after_rope: bool,
    clip: Option<f32>,
    has_table: bool,
}

impl Parts {
    /// Norms as those of Qwen 3.
    const USUAL: Self =
        Self { norm: Kind::Rms, norms_after_rope: false, clip: None, has_table: true };
}

struct Case {
    heads: QkvHeads,
    kind: Kind,
    table: Option<RotaryTable>,
    positions: Vec<u32>,
    qkv: Vec<f32>,
}

/// Returns the weight of a norm over `heads` heads.
fn weight(kind: Kind, heads: usize, dim: usize, seed: usize) -> Vec<f32> {
    match kind {
        Kind::None => Vec::new(),
        Kind::Unit => vec![1.0; dim],
        Kind::Rms | Kind::LayerBiased => values(dim, seed),
        Kind::RmsAcrossHeads | Kind::Layer => values(heads * dim, seed),
    }
}

impl Case {
    fn new(tokens: usize, [q, kv, dim]: [usize; 3], parts: Parts, device: &Device) -> Self {
        let norm = |heads, seed| {
            let weight = WeightVector::new(weight(parts.norm, heads, dim, seed), device).unwrap();
            match parts.norm {
                Kind::None => None,
                Kind::Rms => Some(HeadNorm::Rms(weight)),
                Kind::RmsAcrossHeads => Some(HeadNorm::RmsAcrossHeads(weight)),
                Kind::Layer => Some(HeadNorm::Layer(weight)),
                Kind::LayerBiased => {
                    let bias = WeightVector::new(values(dim, seed + 9), device).unwrap();
                    Some(HeadNorm::LayerBiased { weight, bias })
                }
                Kind::Unit => Some(HeadNorm::Unit),
            }
        };
        let angles = |seed| values(64 * dim / 2, seed);
        let table = || RotaryTable::new(angles(3), angles(4), dim, device).unwrap();
        Self {
            heads: QkvHeads {
                num_heads: q,
                num_kv_heads: kv,
                head_dim: dim,
                q_norm: norm(q, 1),
                k_norm: norm(kv, 2),
                norms_after_rope: parts.norms_after_rope,
                eps: 1e-6,
                clip: parts.clip,
            },
            kind: parts.norm,
            table: parts.has_table.then(table),
            positions: (0..tokens as u32).map(|i| i * 7 % 64).collect(),
            qkv: values(tokens * (q + 2 * kv) * dim, 5),
        }
    }

    fn tensor(&self, device: &Device) -> Tensor<2> {
        let shape = [self.positions.len(), self.heads.q_size() + 2 * self.heads.kv_size()];
        Tensor::from_data(TensorData::new(self.qkv.clone(), shape), device)
    }

    /// Returns the heads of each row of x, normalised by another operation.
    fn normed(&self, x: Tensor<2>, seed: usize, device: &Device) -> Tensor<2> {
        let ([rows, width], dim, eps) = (x.dims(), self.heads.head_dim, self.heads.eps);
        let numbers = weight(self.kind, width / dim, dim, seed);
        let weight = |numbers: &[f32]| WeightVector::new(numbers.to_vec(), device).unwrap();
        match self.kind {
            Kind::None => x,
            Kind::RmsAcrossHeads => rms_norm(x, &weight(&numbers), eps),
            Kind::Rms | Kind::Unit => {
                let each = x.reshape([rows * width / dim, dim]);
                rms_norm(each, &weight(&numbers), eps).reshape([rows, width])
            }
            Kind::LayerBiased => {
                let each = x.reshape([rows * width / dim, dim]);
                let bias = weight(&values(dim, seed + 9));
                let each = layer_norm(each, Some(&weight(&numbers)), Some(&bias), eps);
                each.reshape([rows, width])
            }
            Kind::Layer => {
                let head = |(i, part): (usize, &[f32])| {
                    let head = x.clone().narrow(1, i * dim, dim);
                    layer_norm(head, Some(&weight(part)), None, eps)
                };
                Tensor::cat(numbers.chunks_exact(dim).enumerate().map(head).collect(), 1)
            }
        }
    }

    /// Returns queries, keys and values by one operation after another.
    fn one_by_one(&self, device: &Device) -> [Vec<f32>; 3] {
        let Self { heads, table, positions, .. } = self;
        let part =
            |columns: Range<usize>| self.tensor(device).narrow(1, columns.start, columns.len());
        let limited = |x: Tensor<2>| heads.clip.map_or(x.clone(), |limit| clamp(x, limit));
        let rotated = |x: Tensor<2>| {
            let x = limited(x);
            match table {
                Some(table) => rope(x, positions, heads.head_dim, table),
                None => x,
            }
        };
        let turned = |columns: Range<usize>, seed| {
            let x = part(columns);
            if heads.norms_after_rope {
                self.normed(rotated(x), seed, device)
            } else {
                rotated(self.normed(x, seed, device))
            }
        };
        let [q, k, v] = heads.columns();
        [turned(q, 1), turned(k, 2), limited(part(v))].map(data)
    }

    fn at_once(&self, device: &Device) -> [Vec<f32>; 3] {
        let qkv = self.tensor(device);
        let (q, k, v) = qk_norm_rope(qkv, &self.heads, &self.positions, self.table.as_ref());
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
        norm in prop::sample::select(&KINDS[..]),
        norms_after_rope: bool,
        clip in prop::option::of(0.1f32..1.0),
        has_table: bool,
    ) {
        let device = Device::flex();
        let parts = Parts { norm, norms_after_rope, clip, has_table };
        let case = Case::new(tokens, [groups * kv, kv, 2 * half], parts, &device);
        let (got, expected) = (case.at_once(&device), case.one_by_one(&device));
        for (got, expected) in got.iter().zip(&expected) {
            prop_assert_eq!(bits(got), bits(expected));
        }
    }
}

#[test]
fn a_token_does_not_see_its_batch() {
    let device = Device::flex();
    for norm in KINDS {
        // Enough tokens to be divided among the threads.
        let parts = Parts { norm, clip: Some(0.9), ..Parts::USUAL };
        let case = Case::new(200, [8, 2, 64], parts, &device);
        let angles = case.table.as_ref().map(Angles::of);
        for isa in Isa::available() {
            let split = |qkv: &[f32], positions: &[u32]| {
                let mut parts =
                    case.heads.columns().map(|part| vec![f32::NAN; positions.len() * part.len()]);
                let out = parts.each_mut().map(|part| &mut part[..]);
                split(isa, qkv, &case.heads, positions, angles, out);
                parts
            };
            let all = split(&case.qkv, &case.positions);
            let rows = case.qkv.chunks_exact(case.qkv.len() / 200);
            for (i, (row, position)) in rows.zip(&case.positions).enumerate() {
                for (all, alone) in all.iter().zip(split(row, &[*position])) {
                    let same = &all[i * alone.len()..][..alone.len()];
                    assert_eq!(bits(same), bits(&alone), "{} {norm:?} {i}", isa.name());
                }
            }
        }
    }
}

#[test]
fn a_layer_without_positions_and_norms_only_separates() {
    let device = Device::flex();
    let parts = Parts { norm: Kind::None, has_table: false, ..Parts::USUAL };
    let case = Case::new(3, [4, 2, 6], parts, &device);
    let [q, k, v] = case.at_once(&device);
    for (i, row) in case.qkv.chunks_exact(48).enumerate() {
        assert_eq!(q[i * 24..][..24], row[..24]);
        assert_eq!(k[i * 12..][..12], row[24..36]);
        assert_eq!(v[i * 12..][..12], row[36..]);
    }
}

#[test]
#[cfg(feature = "gpu")]
fn a_gpu_gives_the_same_bytes() {
    let Some(device) = crate::cube::test_device::test_device() else { return };
    for shape in [[4, 2, 16], [3, 1, 32], [2, 2, 8], [2, 1, 6]] {
        for norm in KINDS {
            for norms_after_rope in [false, true] {
                for (clip, has_table) in [(None, true), (Some(0.5), true), (None, false)] {
                    let parts = Parts { norm, norms_after_rope, clip, has_table };
                    let case = Case::new(5, shape, parts, &device);
                    let expected = case.one_by_one(&device);
                    for (got, expected) in case.at_once(&device).iter().zip(&expected) {
                        assert_eq!(bits(got), bits(expected), "{shape:?} {parts:?}");
                    }
                }
            }
        }
    }
}

/// A cache of one layer for the keys and values of a case.
fn cache(case: &Case, dtype: KvDtype, device: &Device) -> KvCache {
    let QkvHeads { num_kv_heads, head_dim, .. } = case.heads;
    let shape = KvCacheShape {
        num_layers: 1,
        num_blocks: 3,
        block_size: 4,
        num_kv_heads,
        head_dim,
        value_head_dim: head_dim,
        values_in_keys: false,
        state_len: 0,
    };
    KvCache::new(shape, dtype, device).unwrap()
}

#[test]
#[cfg(feature = "gpu")]
fn a_gpu_writes_the_same_bytes_to_the_cache() {
    use crate::cube::test_device::{by_turns, test_device};
    use crate::kv_cache::cube::{Stored, on_gpu};

    let Some(device) = test_device() else { return };
    let slots = [7, 0, 11, 5, 6];
    let mut in_one_kernel = 0;
    let caches = [
        ([4, 2, 16], KvDtype::F32),
        ([4, 2, 16], KvDtype::Int8),
        ([3, 1, 48], KvDtype::F16),
        ([2, 2, 128], KvDtype::Bf16),
    ];
    let forms =
        [(false, None, true), (false, Some(0.5), true), (false, None, false), (true, None, true)];
    let kinds: Vec<_> = forms.into_iter().flat_map(|form| KINDS.map(|norm| (norm, form))).collect();
    let cases = by_turns(&kinds, &caches);
    for &((norm, (norms_after_rope, clip, has_table)), (shape, dtype)) in &cases {
        let parts = Parts { norm, norms_after_rope, clip, has_table };
        let case = Case::new(slots.len(), shape, parts, &device);
        let (heads, table) = (&case.heads, case.table.as_ref());
        let what = format!("{shape:?} {dtype} {parts:?}");
        let mut caches = [(); 2].map(|()| cache(&case, dtype, &device));
        let (q, k, v) = qk_norm_rope(case.tensor(&device), heads, &case.positions, table);
        reshape_and_cache(k, v, caches[0].layer_mut(0), &slots);
        let layer = caches[1].layer_mut(0);
        in_one_kernel += usize::from(cube::takes(heads, layer));
        let qkv = case.tensor(&device);
        let got = qk_norm_rope_and_cache(qkv, heads, &case.positions, table, layer, &slots);
        assert_eq!(bits(&data(got)), bits(&data(q)), "{what}");
        let [apart, at_once] =
            caches.each_ref().map(|cache| Stored::read(on_gpu(cache.layer(0), "test")));
        for (slot, head) in
            slots.iter().flat_map(|slot| (0..shape[1]).map(|head| (*slot as usize, head)))
        {
            let stored = |stored: &Stored<'_>| stored.at(slot, head).map(|x| bits(&x));
            assert_eq!(stored(&at_once), stored(&apart), "{what} {slot} {head}");
        }
    }
    // Three of the kinds, before the rotation or without norms.
    assert_eq!(in_one_kernel * kinds.len(), cases.len() * (3 * 3 + 1));
}

#[test]
fn the_cache_gets_the_same_bytes() {
    let device = Device::flex();
    let slots = [7, 0, 11, 5, 6];
    for norm in KINDS {
        let case = Case::new(slots.len(), [4, 2, 16], Parts { norm, ..Parts::USUAL }, &device);
        let (heads, table) = (&case.heads, case.table.as_ref());
        let mut caches = [(); 2].map(|()| cache(&case, KvDtype::Bf16, &device));
        let (q, k, v) = qk_norm_rope(case.tensor(&device), heads, &case.positions, table);
        reshape_and_cache(k, v, caches[0].layer_mut(0), &slots);
        let layer = caches[1].layer_mut(0);
        let qkv = case.tensor(&device);
        let got = qk_norm_rope_and_cache(qkv, heads, &case.positions, table, layer, &slots);
        assert_eq!(bits(&data(got)), bits(&data(q)), "{norm:?}");
        for (slot, head) in slots.into_iter().flat_map(|slot| [(slot, 0), (slot, 1)]) {
            let (block, offset) = (slot as usize / 4, slot as usize % 4);
            let [apart, at_once] = caches
                .each_ref()
                .map(|cache| stored(cache.layer(0), block, offset, head).map(|x| bits(&x)));
            assert_eq!(at_once, apart, "{norm:?} {slot} {head}");
        }
    }
}
