//! Results agree with the reference, and a token depends only on the keys that it sees.

mod latent;
mod variants;

use burn::tensor::{Device, Tensor, TensorData};
use half::bf16;
use proptest::prelude::*;

use super::cpu::attention;
use super::*;
use crate::kv_cache::cpu::stored;
use crate::simd::Isa;
use crate::{KvCache, KvCacheShape, KvDtype, WeightVector, cache_keys, reshape_and_cache};

/// A cache of one layer, with sequences whose keys and values are written.
struct World {
    shape: KvCacheShape,
    cache: KvCache,
    /// One table a sequence, with blocks in order of the sequence, not of the arena.
    tables: Vec<Vec<u32>>,
}

fn values(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 31 + seed * 17) as f32 * 0.37).sin()).collect()
}

fn tensor(data: Vec<f32>, width: usize) -> Tensor<2> {
    let rows = data.len() / width;
    Tensor::from_data(TensorData::new(data, [rows, width]), &Device::flex())
}

impl World {
    /// Makes sequences of `lens` tokens; block ids descend where `reversed`.
    fn new(
        lens: &[usize],
        block_size: usize,
        [num_kv_heads, head_dim]: [usize; 2],
        dtype: KvDtype,
        reversed: bool,
    ) -> Self {
        Self::of_widths(lens, block_size, [num_kv_heads, head_dim, head_dim], dtype, reversed)
    }

    /// Makes sequences whose values are the first elements of their keys.
    fn latent(
        lens: &[usize],
        block_size: usize,
        [head_dim, value_head_dim]: [usize; 2],
        dtype: KvDtype,
        reversed: bool,
    ) -> Self {
        let shape = KvCacheShape {
            num_layers: 1,
            num_blocks: 1,
            block_size,
            num_kv_heads: 1,
            head_dim,
            value_head_dim,
            values_in_keys: true,
            state_len: 0,
        };
        Self::of_shape(lens, shape, dtype, reversed)
    }

    /// Makes sequences whose values differ from their keys in width.
    fn of_widths(
        lens: &[usize],
        block_size: usize,
        [num_kv_heads, head_dim, value_head_dim]: [usize; 3],
        dtype: KvDtype,
        reversed: bool,
    ) -> Self {
        let shape = KvCacheShape {
            num_layers: 1,
            num_blocks: 1,
            block_size,
            num_kv_heads,
            head_dim,
            value_head_dim,
            values_in_keys: false,
            state_len: 0,
        };
        Self::of_shape(lens, shape, dtype, reversed)
    }

    /// Makes sequences in a cache of this shape with as many blocks as they need.
    fn of_shape(lens: &[usize], shape: KvCacheShape, dtype: KvDtype, reversed: bool) -> Self {
        let KvCacheShape { block_size, num_kv_heads, head_dim, value_head_dim, .. } = shape;
        let num_blocks = 1 + lens.iter().map(|len| len.div_ceil(block_size)).sum::<usize>();
        let shape = KvCacheShape { num_blocks, ..shape };
        let mut cache = KvCache::new(shape, dtype, &Device::flex()).unwrap();
        let mut ids: Vec<u32> = (1..num_blocks as u32).collect();
        if reversed {
            ids.reverse();
        }
        let mut tables = Vec::new();
        for (seq, len) in lens.iter().enumerate() {
            let table: Vec<u32> = ids.drain(..len.div_ceil(block_size)).collect();
            let slots: Vec<u32> = (0..*len)
                .map(|p| table[p / block_size] * block_size as u32 + (p % block_size) as u32)
                .collect();
            let [k, v] = [(head_dim, 2 * seq), (value_head_dim, 2 * seq + 1)].map(|(dim, seed)| {
                let width = num_kv_heads * dim;
                tensor(values(len * width, seed), width)
            });
            match shape.values_in_keys {
                true => cache_keys(k, cache.layer_mut(0), &slots),
                false => reshape_and_cache(k, v, cache.layer_mut(0), &slots),
            }
            tables.push(table);
        }
        Self { shape, cache, tables }
    }

    /// Returns a batch of (sequence, first position, tokens).
    fn meta(&self, chunks: &[(usize, usize, usize)]) -> AttentionMetadata {
        let mut meta = AttentionMetadata { query_start_loc: vec![0], ..Default::default() };
        let block_size = self.shape.block_size;
        for (seq, first, count) in chunks {
            let table = &self.tables[*seq];
            for p in *first..first + count {
                meta.positions.push(p as u32);
                let slot = table[p / block_size] as usize * block_size + p % block_size;
                meta.slot_mapping.push(slot as u32);
            }
            meta.query_start_loc.push(meta.positions.len() as u32);
            meta.seq_lens.push((first + count) as u32);
            meta.block_tables.push(table.clone());
        }
        meta.validate(&self.shape).unwrap();
        meta
    }

    fn run(
        &self,
        isa: Isa,
        q: &[f32],
        meta: &AttentionMetadata,
        params: &AttentionParams,
    ) -> Vec<f32> {
        let kv = self.cache.layer(0).cpu();
        let width = params.num_heads * self.shape.value_head_dim;
        let mut o = vec![f32::NAN; meta.num_tokens() * width];
        attention(isa, q, kv, meta, params, &mut o);
        o
    }

    /// Returns the largest error compared with the reference.
    fn error(
        &self,
        isa: Isa,
        q: &[f32],
        meta: &AttentionMetadata,
        params: &AttentionParams,
    ) -> f64 {
        let block_size = self.shape.block_size;
        let rounds = self.cache.dtype() == KvDtype::Bf16 && isa.rounds_pairs();
        let round = |x: &f32| if rounds { bf16::from_f32(*x).to_f32() } else { *x };
        let seen: Vec<f32> = q.iter().map(round).collect();
        let read = |position: usize, seq: usize, head: usize| {
            let block = meta.block_tables[seq][position / block_size] as usize;
            stored(self.cache.layer(0), block, position % block_size, head)
        };
        let exact = reference::paged_attention(&seen, &self.shape, meta, params, read);
        let o = self.run(isa, q, meta, params);
        assert_eq!(o.len(), exact.len());
        o.iter().zip(exact).map(|(o, e)| (f64::from(*o) - e).abs()).fold(0.0, f64::max)
    }
}

fn params(num_heads: usize) -> AttentionParams {
    AttentionParams::new(num_heads, 0.3)
}

fn vector(values: Vec<f32>) -> Option<WeightVector> {
    Some(WeightVector::new(values, &Device::flex()).unwrap())
}

/// Returns the slopes of ALiBi's paper, for a number of heads that is a power of two.
fn slopes(num_heads: usize) -> Option<WeightVector> {
    vector((1..=num_heads).map(|h| (-8.0 * h as f32 / num_heads as f32).exp2()).collect())
}

/// Returns sinks below and above the scores, one so large that it takes all weight.
fn sinks(num_heads: usize) -> Option<WeightVector> {
    vector([-3.0, 0.5, 7.0, 120.0, 2.0].into_iter().cycle().take(num_heads).collect())
}

/// Returns any mask.
fn masks() -> impl Strategy<Value = AttentionMask> {
    prop_oneof![
        Just(AttentionMask::Full),
        (1u32..200).prop_map(AttentionMask::Sliding),
        (1u32..200).prop_map(AttentionMask::Chunked),
        (1u32..200).prop_map(AttentionMask::ChunkPairs),
    ]
}

/// Returns parameters with any mask, and with or without slopes and sinks.
fn variants(num_heads: usize) -> impl Strategy<Value = AttentionParams> {
    (masks(), any::<[bool; 2]>()).prop_map(move |(mask, [has_slopes, has_sinks])| AttentionParams {
        mask,
        alibi_slopes: slopes(num_heads).filter(|_| has_slopes),
        sinks: sinks(num_heads).filter(|_| has_sinks),
        ..params(num_heads)
    })
}

const DTYPES: [KvDtype; 3] = [KvDtype::F32, KvDtype::Bf16, KvDtype::Int8];

#[test]
fn head_sizes_and_groups_agree_with_the_reference() {
    for dtype in DTYPES {
        for (head_dim, kv_heads, group) in [
            (32, 2, 1),
            (64, 1, 2),
            (80, 2, 4),
            (96, 1, 8),
            (128, 2, 3),
            (256, 1, 1),
            (40, 1, 2),
            (64, 2, 7),
            (64, 1, 16),
            (16, 1, 40),
        ] {
            let world = World::new(&[40, 17, 1], 16, [kv_heads, head_dim], dtype, true);
            let meta = world.meta(&[(0, 39, 1), (1, 3, 14), (2, 0, 1)]);
            let heads = kv_heads * group;
            let q = values(meta.num_tokens() * heads * head_dim, 9);
            for isa in Isa::available() {
                let error = world.error(isa, &q, &meta, &params(heads));
                assert!(error < 2e-6, "{} {dtype:?} {head_dim} {group}: {error}", isa.name());
            }
        }
    }
}

#[test]
fn long_sequences_cross_spans_and_windows() {
    let [f32, bf16, int8] = DTYPES;
    for (dtype, block_size) in [
        (f32, 16),
        (bf16, 16),
        (int8, 16),
        (bf16, 24),
        (int8, 24),
        (f32, 8),
        (int8, 1),
        (bf16, 512),
        (int8, 512),
    ] {
        let world = World::new(&[600, 257], block_size, [2, 32], dtype, false);
        let meta = world.meta(&[(0, 599, 1), (1, 200, 57)]);
        let q = values(meta.num_tokens() * 4 * 32, 9);
        for (mask, soft_cap, has_slopes) in [
            (AttentionMask::Full, None, false),
            (AttentionMask::Sliding(1), None, false),
            (AttentionMask::Sliding(16), None, true),
            (AttentionMask::Sliding(300), Some(2.0), false),
            (AttentionMask::Chunked(1), None, false),
            (AttentionMask::Chunked(100), None, false),
            (AttentionMask::Chunked(300), Some(2.0), true),
            (AttentionMask::Full, Some(30.0), false),
            (AttentionMask::Full, None, true),
        ] {
            let alibi_slopes = slopes(4).filter(|_| has_slopes);
            let params = AttentionParams { mask, soft_cap, alibi_slopes, ..params(4) };
            for isa in Isa::available() {
                let error = world.error(isa, &q, &meta, &params);
                assert!(error < 4e-6, "{} {block_size} {params:?}: {error}", isa.name());
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn any_chunk_agrees_with_the_reference(
        len in 1usize..330,
        count in 1usize..40,
        block_size in prop::sample::select(vec![8usize, 16, 32, 48]),
        (group, params) in prop::sample::select(vec![1usize, 2, 4, 8])
            .prop_flat_map(|group| (Just(group), variants(group))),
        dtype in prop::sample::select(DTYPES.to_vec()),
    ) {
        let world = World::new(&[len], block_size, [1, 32], dtype, true);
        let count = count.min(len);
        let meta = world.meta(&[(0, len - count, count)]);
        let q = values(count * group * 32, 3);
        for isa in Isa::available() {
            let error = world.error(isa, &q, &meta, &params);
            prop_assert!(error < 4e-6, "{}: {error}", isa.name());
        }
    }

    /// The same tokens have the same bytes in one prefill, in chunks, alone, beside others and in
    /// other blocks.
    #[test]
    fn a_token_does_not_depend_on_its_batch(
        len in 2usize..300,
        cut in 1usize..299,
        params in variants(4),
        dtype in prop::sample::select(DTYPES.to_vec()),
    ) {
        let (cut, width) = (cut.min(len - 1), 4 * 32);
        let q = values(len * width, 3);
        let world = World::new(&[len], 16, [2, 32], dtype, false);
        let other = World::new(&[len, 70], 16, [2, 32], dtype, true);
        for isa in Isa::available() {
            let whole = world.run(isa, &q, &world.meta(&[(0, 0, len)]), &params);
            let first = world.run(isa, &q[..cut * width], &world.meta(&[(0, 0, cut)]), &params);
            prop_assert_eq!(bits(&first), bits(&whole[..cut * width]));
            let rest = world.meta(&[(0, cut, len - cut)]);
            let rest = world.run(isa, &q[cut * width..], &rest, &params);
            prop_assert_eq!(bits(&rest), bits(&whole[cut * width..]));
            let beside = [&values(3 * width, 8), &q[(len - 1) * width..]].concat();
            let meta = other.meta(&[(1, 60, 3), (0, len - 1, 1)]);
            let beside = other.run(isa, &beside, &meta, &params);
            prop_assert_eq!(bits(&beside[3 * width..]), bits(&whole[(len - 1) * width..]));
        }
    }

    /// The error of int8 stays within the bound that the module states.
    #[test]
    fn int8_stays_within_its_bound(
        len in 1usize..400,
        head_dim in prop::sample::select(vec![40usize, 64, 128]),
        size in 0.1f32..3.0,
    ) {
        let world = World::new(&[len], 16, [2, head_dim], KvDtype::Int8, false);
        let exact = World::new(&[len], 16, [2, head_dim], KvDtype::F32, false);
        let meta = world.meta(&[(0, len - 1, 1)]);
        let params = AttentionParams { scale: 0.1, ..params(4) };
        let q: Vec<f32> = values(4 * head_dim, 3).into_iter().map(|q| size * q).collect();
        let read = |position: usize, seq: usize, head: usize| {
            let block = meta.block_tables[seq][position / 16] as usize;
            stored(exact.cache.layer(0), block, position % 16, head)
        };
        let expected = reference::paged_attention(&q, &exact.shape, &meta, &params, read);
        let largest = |row: &[f32]| row.iter().fold(0.0, |m: f64, x| m.max(f64::from(x.abs())));
        for isa in Isa::available() {
            let o = world.run(isa, &q, &meta, &params);
            for (h, (o, expected)) in o.chunks(head_dim).zip(expected.chunks(head_dim)).enumerate() {
                let q: f64 = q[h * head_dim..][..head_dim].iter().map(|q| f64::from(q.abs())).sum();
                let rows = (0..len).map(|j| read(j, 0, h / 2));
                let (k, v) = rows.fold((0.0_f64, 0.0_f64), |(k, v), [key, value]| {
                    (k.max(largest(&key)), v.max(largest(&value)))
                });
                let e = f64::from(params.scale) * q * k / 253.0;
                let bound = ((2.0 * e).exp() - 1.0 + 1.0 / 253.0) * v;
                for (o, expected) in o.iter().zip(expected) {
                    let error = (f64::from(*o) - expected).abs();
                    prop_assert!(error <= bound, "{}: {error} > {bound}", isa.name());
                }
            }
        }
    }
}

/// A token whose context is divided among threads has the same bytes as one whose context is not.
#[test]
fn a_long_context_in_parts_gives_the_same_bytes() {
    let len = 2300;
    for (dtype, mask, has_more) in [
        (KvDtype::F32, AttentionMask::Full, false),
        (KvDtype::F32, AttentionMask::Full, true),
        (KvDtype::Bf16, AttentionMask::Sliding(1900), false),
        (KvDtype::Bf16, AttentionMask::Chunked(1150), true),
        (KvDtype::Int8, AttentionMask::Full, false),
        (KvDtype::Int8, AttentionMask::Sliding(1900), true),
    ] {
        let world = World::new(&[len], 16, [1, 32], dtype, false);
        let kv = world.cache.layer(0).cpu();
        let (alibi_slopes, sinks) = (slopes(4).filter(|_| has_more), sinks(4).filter(|_| has_more));
        let params = AttentionParams { mask, alibi_slopes, sinks, ..params(4) };
        let width = 4 * 32;
        let q = values(len * width, 3);
        let (whole, last) = (world.meta(&[(0, 0, len)]), world.meta(&[(0, len - 1, 1)]));
        let num_records = |meta| {
            let mut plan = plan::Plan::default();
            plan.cut(&kv.layout, meta, &params);
            plan.records_len
        };
        assert!(num_records(&whole) == 0 && num_records(&last) > 0);
        for isa in Isa::available() {
            let whole = world.run(isa, &q, &whole, &params);
            let last = world.run(isa, &q[(len - 1) * width..], &last, &params);
            assert_eq!(bits(&last), bits(&whole[(len - 1) * width..]), "{} {dtype:?}", isa.name());
        }
    }
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

/// Old content of a block, NaN included, must not leak from one request to another.
#[test]
fn stale_garbage_beyond_the_sequence_is_not_read() {
    for dtype in DTYPES {
        let mut world = World::new(&[20], 16, [1, 32], dtype, false);
        let meta = world.meta(&[(0, 10, 10)]);
        let q = values(10 * 32, 3);
        let run = |world: &World| -> Vec<Vec<u32>> {
            let run = |isa| bits(&world.run(isa, &q, &meta, &params(1)));
            Isa::available().into_iter().map(run).collect()
        };
        let clean = run(&world);
        let slots: Vec<u32> = (20..32).map(|p| world.tables[0][1] * 16 + p - 16).collect();
        let garbage = || tensor(vec![f32::NAN; 12 * 32], 32);
        reshape_and_cache(garbage(), garbage(), world.cache.layer_mut(0), &slots);
        assert_eq!(run(&world), clean);
    }
}

#[test]
fn garbage_that_is_seen_shows() {
    let world = World::new(&[20], 16, [1, 32], KvDtype::F32, false);
    let meta = world.meta(&[(0, 18, 2)]);
    let mut q = values(2 * 32, 3);
    q[33] = f32::NAN;
    for isa in Isa::available() {
        let o = world.run(isa, &q, &meta, &params(1));
        assert!(o[..32].iter().all(|x| x.is_finite()) && o[32..].iter().all(|x| x.is_nan()));
    }
}

#[test]
fn an_empty_batch_is_accepted() {
    let world = World::new(&[20], 16, [1, 32], KvDtype::F32, false);
    let o =
        paged_attention(tensor(Vec::new(), 32), world.cache.layer(0), &world.meta(&[]), &params(1));
    assert_eq!(o.dims(), [0, 32]);
}

#[test]
fn metadata_that_disagrees_is_refused_by_name() {
    let world = World::new(&[20, 5], 16, [1, 32], KvDtype::F32, false);
    let good = world.meta(&[(0, 18, 2), (1, 4, 1)]);
    let refuses = |field: &str, spoil: fn(&mut AttentionMetadata)| {
        let mut meta = good.clone();
        spoil(&mut meta);
        let error = meta.validate(&world.shape).unwrap_err().to_string();
        assert!(error.contains(field), "{error}");
    };
    refuses("query_start_loc", |m| m.query_start_loc.truncate(2));
    refuses("query_start_loc[0]", |m| m.query_start_loc[0] = 1);
    refuses("query_start_loc[2]", |m| m.query_start_loc[1] = 9);
    refuses("slot_mapping", |m| m.slot_mapping.truncate(2));
    refuses("slot_mapping[1]", |m| m.slot_mapping[1] = 0);
    refuses("positions[2]", |m| m.positions[2] = 3);
    refuses("block_tables[0]", |m| m.block_tables[0].truncate(1));
    refuses("block_tables[1]", |m| m.block_tables[1][0] = 99);
    refuses("seq_lens[1]", |m| m.seq_lens[1] = 0);
}
