//! On a GPU: results agree with the reference, and a token depends only on the keys that it sees.

use burn::backend::DispatchTensorKind;
use burn::tensor::Device;

use super::cube::Routine;
use super::*;
use crate::cube::into_tensor;
use crate::cube::test_device::{
    assert_near, bits, by_turns, numbers, tensor, test_client, test_device, values, vector,
};
use crate::kv_cache::KvStorage;
use crate::kv_cache::cube::Stored;
use crate::{KvCache, KvCacheShape, KvDtype, cache_keys, reshape_and_cache};

/// A cache of one layer, with sequences whose keys and values are written.
struct World {
    device: Device,
    shape: KvCacheShape,
    cache: KvCache,
    /// One table a sequence, with blocks in order of the sequence, not of the arena.
    tables: Vec<Vec<u32>>,
    /// The routine for long chunks.
    routine: Option<Routine>,
}

impl World {
    /// Makes sequences of `lens` tokens; block ids descend where `reversed`.
    fn new(
        device: &Device,
        lens: &[usize],
        block_size: usize,
        [num_kv_heads, head_dim]: [usize; 2],
        dtype: KvDtype,
        reversed: bool,
    ) -> Self {
        let widths = [num_kv_heads, head_dim, head_dim];
        Self::of_widths(device, lens, block_size, widths, dtype, reversed)
    }

    /// Makes sequences whose values differ from their keys in width.
    fn of_widths(
        device: &Device,
        lens: &[usize],
        block_size: usize,
        widths: [usize; 3],
        dtype: KvDtype,
        reversed: bool,
    ) -> Self {
        Self::of_form(device, lens, block_size, widths, false, dtype, reversed)
    }

    /// Makes sequences whose values may be parts of their keys.
    fn of_form(
        device: &Device,
        lens: &[usize],
        block_size: usize,
        [num_kv_heads, head_dim, value_head_dim]: [usize; 3],
        values_in_keys: bool,
        dtype: KvDtype,
        reversed: bool,
    ) -> Self {
        let num_blocks = 1 + lens.iter().map(|len| len.div_ceil(block_size)).sum::<usize>();
        let shape = KvCacheShape {
            num_layers: 1,
            num_blocks,
            block_size,
            num_kv_heads,
            head_dim,
            value_head_dim,
            values_in_keys,
            state_len: 0,
        };
        let cache = KvCache::new(shape, dtype, device).unwrap();
        let mut ids: Vec<u32> = (1..num_blocks as u32).collect();
        if reversed {
            ids.reverse();
        }
        let tables = lens.iter().map(|len| ids.drain(..len.div_ceil(block_size)).collect());
        let tables = tables.collect();
        let mut world = Self { device: device.clone(), shape, cache, tables, routine: None };
        for (seq, len) in lens.iter().enumerate() {
            let k = numbers(len * num_kv_heads * head_dim, 2 * seq);
            let v = numbers(len * num_kv_heads * value_head_dim, 2 * seq + 1);
            world.write(seq, 0..*len, &k, &v);
        }
        world
    }

    fn slot(&self, seq: usize, position: usize) -> u32 {
        let block_size = self.shape.block_size;
        self.tables[seq][position / block_size] * block_size as u32 + (position % block_size) as u32
    }

    fn write(&mut self, seq: usize, positions: std::ops::Range<usize>, k: &[f32], v: &[f32]) {
        let slots: Vec<u32> = positions.map(|position| self.slot(seq, position)).collect();
        let KvCacheShape { num_kv_heads, head_dim, value_head_dim, values_in_keys, .. } =
            self.shape;
        let [k, v] = [(k, head_dim), (v, value_head_dim)]
            .map(|(x, dim)| tensor(x, num_kv_heads * dim, &self.device));
        match values_in_keys {
            true => cache_keys(k, self.cache.layer_mut(0), &slots),
            false => reshape_and_cache(k, v, self.cache.layer_mut(0), &slots),
        }
    }

    /// Returns a batch of (sequence, first position, tokens).
    fn meta(&self, chunks: &[(usize, usize, usize)]) -> AttentionMetadata {
        let mut meta = AttentionMetadata { query_start_loc: vec![0], ..Default::default() };
        for (seq, first, count) in chunks {
            for position in *first..first + count {
                meta.positions.push(position as u32);
                meta.slot_mapping.push(self.slot(*seq, position));
            }
            meta.query_start_loc.push(meta.positions.len() as u32);
            meta.seq_lens.push((first + count) as u32);
            meta.block_tables.push(self.tables[*seq].clone());
        }
        meta.validate(&self.shape).unwrap();
        meta
    }

    /// Returns the result. Asserts that it is the same whether cubes join their spans or not.
    fn run(&self, q: &[f32], meta: &AttentionMetadata, params: &AttentionParams) -> Vec<f32> {
        let q = tensor(q, params.num_heads * self.shape.head_dim, &self.device);
        let run = |cubes_enough| {
            let DispatchTensorKind::Cube(q) = q.clone().into_dispatch().kind else {
                unreachable!()
            };
            let layer = self.cache.layer(0);
            let o = cube::attention(q.float(), layer, meta, params, cubes_enough, self.routine);
            values(into_tensor(o))
        };
        let (joined, split) = (run(0), run(usize::MAX));
        assert!(bits(&joined) == bits(&split), "{:?} {params:?}", self.shape);
        split
    }

    /// Asserts that the result is the reference's.
    fn check(&self, chunks: &[(usize, usize, usize)], params: &AttentionParams) {
        self.check_within(2e-5, chunks, params);
    }

    fn check_within(&self, bound: f64, chunks: &[(usize, usize, usize)], params: &AttentionParams) {
        self.check_meta(bound, chunks, &self.meta(chunks), params);
    }

    fn check_meta(
        &self,
        bound: f64,
        chunks: &[(usize, usize, usize)],
        meta: &AttentionMetadata,
        params: &AttentionParams,
    ) {
        let q = numbers(meta.num_tokens() * params.num_heads * self.shape.head_dim, 9);
        let KvStorage::Cube(kv) = self.cache.layer(0).storage() else { unreachable!() };
        let arena = Stored::read(kv);
        let read = |position: usize, of: usize, head: usize| {
            arena.at(self.slot(chunks[of].0, position) as usize, head)
        };
        let exact = reference::paged_attention(&q, &self.shape, meta, params, read);
        let o = self.run(&q, meta, params);
        let what = format!("{:?} {:?} {params:?}", self.shape, self.cache.dtype());
        assert_near(&o, &exact, bound, &what);
    }
}

fn params(num_heads: usize) -> AttentionParams {
    AttentionParams::new(num_heads, 0.3)
}

/// Returns parameters with slopes of ALiBi, and sinks below and above the scores.
fn biased(num_heads: usize, device: &Device) -> AttentionParams {
    let slopes = (1..=num_heads).map(|h| (-8.0 * h as f32 / num_heads as f32).exp2());
    let sinks = [-3.0, 0.5, 7.0, 60.0, 2.0].into_iter().cycle().take(num_heads);
    AttentionParams {
        alibi_slopes: Some(vector(&Vec::from_iter(slopes), device)),
        sinks: Some(vector(&Vec::from_iter(sinks), device)),
        ..params(num_heads)
    }
}

const DTYPES: [KvDtype; 4] = [KvDtype::F32, KvDtype::F16, KvDtype::Bf16, KvDtype::Int8];

#[test]
fn head_sizes_and_groups_agree_with_the_reference() {
    let Some(device) = test_device() else { return };
    let heads = [(32, 2, 1), (64, 1, 2), (128, 2, 3)];
    let wide = [(80, 2, 4), (256, 1, 1), (40, 1, 2), (64, 2, 7), (32, 1, 40)];
    let (heads, wide) = (by_turns(&heads, &DTYPES), by_turns(&wide, &DTYPES[..2]));
    for ((head_dim, kv_heads, group), dtype) in heads.into_iter().chain(wide) {
        let world = World::new(&device, &[40, 17, 1], 16, [kv_heads, head_dim], dtype, true);
        let chunks = [(0, 39, 1), (1, 3, 14), (2, 0, 1)];
        world.check(&chunks, &params(kv_heads * group));
    }
}

#[test]
fn tokens_may_see_keys_after_their_own() {
    let Some(device) = test_device() else { return };
    for dtype in DTYPES {
        let world = World::new(&device, &[400, 40], 16, [2, 32], dtype, true);
        let chunks = [(0, 100, 300), (1, 39, 1)];
        let mut meta = world.meta(&chunks);
        let end = |position: &u32| if (120..390).contains(position) { 390 } else { position + 1 };
        meta.visible_ends = meta.positions.iter().map(end).collect();
        for mask in [AttentionMask::Full, AttentionMask::Sliding(30)] {
            let params = AttentionParams { mask, ..params(4) };
            world.check_meta(2e-5, &chunks, &meta, &params);
        }
    }
}

#[test]
fn long_sequences_cross_spans_and_windows() {
    let Some(device) = test_device() else { return };
    let caches =
        [(KvDtype::F32, 16), (KvDtype::Bf16, 24), (KvDtype::Int8, 8), (KvDtype::Bf16, 512)];
    let scores = [
        (AttentionMask::Full, None),
        (AttentionMask::Sliding(1), None),
        (AttentionMask::Sliding(300), Some(2.0)),
        (AttentionMask::Chunked(1), None),
        (AttentionMask::Chunked(253), None),
        (AttentionMask::ChunkPairs(120), None),
        (AttentionMask::Full, Some(30.0)),
    ];
    for ((mask, soft_cap), (dtype, block_size)) in by_turns(&scores, &caches) {
        let world = World::new(&device, &[600, 257], block_size, [2, 32], dtype, false);
        let params = AttentionParams { mask, soft_cap, ..params(4) };
        world.check(&[(0, 599, 1), (1, 250, 7)], &params);
    }
}

/// The same tokens have the same bytes in one prefill, in chunks, alone, beside others and in other
/// blocks. One cube or many may join the spans.
#[test]
fn a_token_does_not_depend_on_its_batch() {
    let Some(device) = test_device() else { return };
    for (dtype, mask, is_biased) in [
        (KvDtype::F32, AttentionMask::Full, false),
        (KvDtype::Bf16, AttentionMask::Sliding(150), false),
        (KvDtype::Bf16, AttentionMask::Chunked(150), true),
        (KvDtype::Int8, AttentionMask::Full, true),
    ] {
        let (len, cut, width) = (300, 130, 4 * 32);
        let of_heads = if is_biased { biased(4, &device) } else { params(4) };
        let params = AttentionParams { mask, ..of_heads };
        let q = numbers(len * width, 3);
        let world = World::new(&device, &[len], 16, [2, 32], dtype, false);
        let other = World::new(&device, &[len, 70], 16, [2, 32], dtype, true);
        let whole = bits(&world.run(&q, &world.meta(&[(0, 0, len)]), &params));
        let first = world.run(&q[..cut * width], &world.meta(&[(0, 0, cut)]), &params);
        assert!(bits(&first) == whole[..cut * width], "{dtype}: the first chunk");
        let rest = world.run(&q[cut * width..], &world.meta(&[(0, cut, len - cut)]), &params);
        assert!(bits(&rest) == whole[cut * width..], "{dtype}: the second chunk");
        let last = &q[(len - 1) * width..];
        let alone = world.run(last, &world.meta(&[(0, len - 1, 1)]), &params);
        assert!(bits(&alone) == whole[(len - 1) * width..], "{dtype}: alone");
        let beside = [&numbers(3 * width, 8), last].concat();
        let meta = other.meta(&[(1, 60, 3), (0, len - 1, 1)]);
        let beside = other.run(&beside, &meta, &params);
        assert!(bits(&beside[3 * width..]) == whole[(len - 1) * width..], "{dtype}: beside others");
    }
}

/// Groups that fill a tile of heads and groups that do not, with sinks and slopes by head.
#[test]
fn slopes_and_sinks_agree_with_the_reference() {
    let Some(device) = test_device() else { return };
    let worlds =
        [(KvDtype::F32, 2, 1), (KvDtype::Bf16, 1, 5), (KvDtype::Int8, 2, 4), (KvDtype::F32, 1, 16)];
    let kinds: [fn(AttentionParams) -> AttentionParams; 4] = [
        |both| both,
        |both| AttentionParams { mask: AttentionMask::Chunked(128), ..both },
        |slopes| AttentionParams { sinks: None, soft_cap: Some(2.0), ..slopes },
        |sinks| AttentionParams { alibi_slopes: None, ..sinks },
    ];
    for ((dtype, kv_heads, group), kind) in by_turns(&worlds, &kinds) {
        let world = World::new(&device, &[300, 40], 16, [kv_heads, 32], dtype, true);
        let params = kind(biased(kv_heads * group, &device));
        world.check(&[(0, 290, 10), (1, 39, 1)], &params);
    }
}

/// Values narrower and wider than keys.
#[test]
fn values_may_have_another_width_than_keys() {
    let Some(device) = test_device() else { return };
    for (dtype, head_dim, value_head_dim, group) in [
        (KvDtype::Bf16, 192, 128, 1),
        (KvDtype::F32, 192, 128, 16),
        (KvDtype::F32, 24, 40, 3),
        (KvDtype::Int8, 64, 32, 2),
    ] {
        let widths = [2, head_dim, value_head_dim];
        let world = World::of_widths(&device, &[300, 17], 16, widths, dtype, true);
        world.check(&[(0, 290, 10), (1, 16, 1)], &params(2 * group));
        world.check(&[(0, 299, 1)], &biased(2 * group, &device));
    }
}

/// Values that are parts of their keys, as wide as DeepSeek's and narrower.
#[test]
fn values_in_keys_agree_with_the_reference() {
    let Some(device) = test_device() else { return };
    for (dtype, head_dim, value_head_dim, group, block_size) in [
        (KvDtype::Bf16, 576, 512, 16, 16),
        (KvDtype::F32, 32, 24, 4, 24),
        (KvDtype::F32, 40, 40, 3, 8),
        (KvDtype::Int8, 64, 32, 20, 16),
    ] {
        let widths = [1, head_dim, value_head_dim];
        let world = World::of_form(&device, &[300, 17], block_size, widths, true, dtype, true);
        let params = AttentionParams { scale: 0.1, ..params(group) };
        world.check(&[(0, 290, 10), (1, 16, 1)], &params);
        world.check(&[(0, 299, 1)], &params);
    }
}

/// Tensor cores are not used where cubek computes another attention.
#[test]
fn tensor_cores_are_left_to_plain_attention() {
    let Some(device) = test_device() else { return };
    let computes = |widths, dtype, params: &AttentionParams| {
        let world = World::of_widths(&device, &[8], 8, widths, dtype, false);
        let KvStorage::Cube(kv) = world.cache.layer(0).storage() else { unreachable!() };
        Routine::computes(kv, params)
    };
    let scale = 0.125;
    let plain = || AttentionParams { scale, ..params(4) };
    let with_biases = || AttentionParams { scale, ..biased(4, &device) };
    assert!(computes([2, 64, 64], KvDtype::Bf16, &plain()));
    assert!(!computes([2, 64, 64], KvDtype::F32, &plain()));
    assert!(!computes([2, 64, 32], KvDtype::Bf16, &plain()));
    for variant in [
        AttentionParams { scale: 0.1, ..plain() },
        AttentionParams { mask: AttentionMask::Sliding(4096), ..plain() },
        AttentionParams { mask: AttentionMask::Chunked(8192), ..plain() },
        AttentionParams { soft_cap: Some(30.0), ..plain() },
        AttentionParams { sinks: None, ..with_biases() },
        AttentionParams { alibi_slopes: None, ..with_biases() },
    ] {
        assert!(!computes([2, 64, 64], KvDtype::Bf16, &variant), "{variant:?}");
    }
}

/// Old content of a block, NaN included, must not leak from one request to another.
#[test]
fn stale_garbage_beyond_the_sequence_is_not_read() {
    let Some(device) = test_device() else { return };
    for dtype in DTYPES {
        let mut world = World::new(&device, &[32], 16, [1, 32], dtype, false);
        let mut meta = world.meta(&[(0, 10, 10)]);
        meta.seq_lens[0] = 20;
        let q = numbers(10 * 32, 3);
        let clean = world.run(&q, &meta, &params(1));
        assert!(clean.iter().all(|x| x.is_finite()));
        let garbage = vec![f32::NAN; 12 * 32];
        world.write(0, 20..32, &garbage, &garbage);
        assert_eq!(bits(&world.run(&q, &meta, &params(1))), bits(&clean), "{dtype}");
    }
}

#[test]
fn garbage_that_is_seen_shows() {
    let Some(device) = test_device() else { return };
    let world = World::new(&device, &[20], 16, [1, 32], KvDtype::F32, false);
    let mut q = numbers(2 * 32, 3);
    q[33] = f32::NAN;
    let o = world.run(&q, &world.meta(&[(0, 18, 2)]), &params(1));
    assert!(o[..32].iter().all(|x| x.is_finite()) && o[32..].iter().all(|x| x.is_nan()));
}

/// The attention by tensor cores, and the same without them, is within float16's rounding of the
/// reference. Its chunks begin a sequence or continue one. They are longer than a stripe and no
/// multiple of a tile, and stand beside other sequences.
#[test]
fn long_chunks_in_one_piece_agree_with_the_reference() {
    let (Some(device), Some((client, place))) = (test_device(), test_client()) else { return };
    let worlds = [(KvDtype::Bf16, 24, 2, 2), (KvDtype::Int8, 8, 1, 1)];
    for ((dtype, block_size, kv_heads, group), routine) in by_turns(&worlds, &Routine::all(&client))
    {
        // A device without tensor cores compiles each width for a minute.
        let head_dim = if routine == Routine::Unit { 32 } else { 64 / kv_heads };
        assert!(routine.is_right(&place, head_dim), "a trial of {routine:?}");
        let heads = [kv_heads, head_dim];
        let mut world = World::new(&device, &[150, 300, 40], block_size, heads, dtype, true);
        let scale = (head_dim as f32).sqrt().recip();
        let params = AttentionParams { scale, ..params(kv_heads * group) };
        world.routine = Some(routine);
        world.check_within(2e-3, &[(2, 39, 1), (0, 20, 130), (2, 10, 20)], &params);
        world.check_within(2e-3, &[(1, 0, 300)], &params);
        // The other kernel adds in another order, so equal bytes would mean that it ran instead.
        let (q, meta) = (numbers(300 * params.num_heads * head_dim, 9), world.meta(&[(1, 0, 300)]));
        let by_routine = bits(&world.run(&q, &meta, &params));
        world.routine = None;
        let left = 300 % 64 * params.num_heads * head_dim;
        let by_spans = bits(&world.run(&q, &meta, &params));
        assert!(by_routine[..left] == by_spans[..left], "what is left goes by spans");
        assert!(by_routine[left..] != by_spans[left..], "{routine:?} was not used");
        if routine == Routine::Accelerated {
            // Over four times as many keys as queries.
            let mut world = World::new(&device, &[700], block_size, heads, dtype, true);
            world.routine = Some(routine);
            world.check_within(2e-3, &[(0, 572, 128)], &params);
            let (q, meta) = (&q[..128 * params.num_heads * head_dim], world.meta(&[(0, 572, 128)]));
            let by_routine = bits(&world.run(q, &meta, &params));
            world.routine = None;
            assert!(by_routine != bits(&world.run(q, &meta, &params)), "{routine:?} was not used");
        }
    }
}

#[test]
fn an_empty_batch_is_accepted() {
    let Some(device) = test_device() else { return };
    let world = World::new(&device, &[20], 16, [1, 32], KvDtype::F32, false);
    assert!(world.run(&[], &world.meta(&[]), &params(1)).is_empty());
}
