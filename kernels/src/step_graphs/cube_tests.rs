//! Recorded steps give the same results as steps that are not recorded.

use std::slice::{from_mut, from_ref};

use burn::tensor::Device;

use super::*;
use crate::cube::test_device::{bits, numbers, tensor, test_device, values, vector};
use crate::cube::weight_copies;
use crate::{
    AttentionMask, AttentionParams, KvCache, KvCacheShape, KvDtype, LinearWeight, RotaryTable,
    WeightDtype, WeightView, linear, paged_attention, reshape_and_cache, rope, scale_rows, swiglu,
    tied_embedding,
};

const HEAD_DIM: usize = 16;
const NUM_HEADS: usize = 4;
const KV_HEADS: usize = 2;
const HIDDEN: usize = NUM_HEADS * HEAD_DIM;
const VOCAB: usize = 40;
const BLOCK_SIZE: usize = 16;
/// Number of tokens that a sequence has blocks for.
const LEN_MAX: usize = 320;
/// Bytes that recordings may hold, in tests of other properties.
const BYTES_MAX: u64 = 1 << 30;

/// A model of two layers with random weights. One of them has a sliding window, slopes and sinks.
struct Model {
    embedding: LinearWeight,
    layers: Vec<[LinearWeight; 5]>,
    attention: [AttentionParams; 2],
    rotary: RotaryTable,
}

impl Model {
    fn new(device: &Device) -> Self {
        let mut seed = 0;
        let mut weight = |inputs: usize, outputs: usize| {
            seed += 1;
            let w = numbers(inputs * outputs, seed);
            LinearWeight::pack(&[WeightView::F32(&w)], inputs, WeightDtype::F32, device).unwrap()
        };
        let kv = KV_HEADS * HEAD_DIM;
        let embedding = weight(HIDDEN, VOCAB);
        let mut layer = || {
            [
                weight(HIDDEN, HIDDEN),
                weight(HIDDEN, kv),
                weight(HIDDEN, kv),
                weight(HIDDEN, 2 * HIDDEN),
                weight(HIDDEN, HIDDEN),
            ]
        };
        let layers = vec![layer(), layer()];
        let angles = |f: fn(f32) -> f32| (0..LEN_MAX * HEAD_DIM / 2).map(|i| f(i as f32)).collect();
        let rotary = RotaryTable::new(angles(f32::cos), angles(f32::sin), HEAD_DIM, device);
        let plain = || AttentionParams::new(NUM_HEADS, 0.2);
        let biased = AttentionParams {
            mask: AttentionMask::Sliding(100),
            alibi_slopes: Some(vector(&[0.25, 0.06, 0.016, 0.004], device)),
            sinks: Some(vector(&[0.5, -1.0, 2.0, 0.0], device)),
            ..plain()
        };
        Self { embedding, layers, attention: [plain(), biased], rotary: rotary.unwrap() }
    }

    /// Computes a step. With two groups, the layers share a layer of the cache, and none has a
    /// window.
    fn forward(&self, ids: &[u32], metas: &[AttentionMetadata], kv: &mut KvCache) -> Tensor<2> {
        let mut x = tied_embedding(&self.embedding, ids);
        for (i, [q, k, v, up, down]) in self.layers.iter().enumerate() {
            let (group, layer) = if metas.len() > 1 { (i, 0) } else { (0, i) };
            let meta = &metas[group];
            let turned =
                |w| rope(linear(x.clone(), w, None), &meta.positions, HEAD_DIM, &self.rotary);
            let (q, k, v) = (turned(q), turned(k), linear(x.clone(), v, None));
            reshape_and_cache(k, v, kv.layer_of_group(layer, group), &meta.slot_mapping);
            let o = paged_attention(q, kv.layer(layer), meta, &self.attention[layer]);
            x = linear(swiglu(linear(o, up, None)), down, None);
        }
        x
    }
}

/// Returns a cache for sequences with their own blocks, none of which is block 0.
fn cache(device: &Device, seqs: usize) -> KvCache {
    let num_blocks = 1 + seqs * LEN_MAX / BLOCK_SIZE;
    let shape = KvCacheShape {
        num_layers: 2,
        num_blocks,
        block_size: BLOCK_SIZE,
        num_kv_heads: KV_HEADS,
        head_dim: HEAD_DIM,
        value_head_dim: HEAD_DIM,
        values_in_keys: false,
        state_len: 0,
    };
    let mut cache = KvCache::new(shape, KvDtype::F32, device).unwrap();
    // Content of earlier tokens: any numbers, the same in each cache.
    let slots: Vec<u32> = (0..shape.num_slots() as u32).collect();
    for layer in 0..2 {
        let width = KV_HEADS * HEAD_DIM;
        let [k, v] = [1, 2]
            .map(|seed| tensor(&numbers(slots.len() * width, 7 * layer + seed), width, device));
        reshape_and_cache(k, v, cache.layer_mut(layer), &slots);
    }
    cache
}

/// Returns a batch of the next token of each (sequence, earlier tokens).
fn batch(seqs: &[(usize, usize)]) -> (Vec<u32>, AttentionMetadata) {
    let mut meta = AttentionMetadata { query_start_loc: vec![0], ..Default::default() };
    let mut ids = Vec::new();
    for (i, (seq, len)) in seqs.iter().enumerate() {
        let first = 1 + seq * LEN_MAX / BLOCK_SIZE;
        let block = first + len / BLOCK_SIZE;
        ids.push(((seq * 7 + len * 3) % VOCAB) as u32);
        meta.query_start_loc.push(i as u32 + 1);
        meta.seq_lens.push(*len as u32 + 1);
        meta.block_tables.push((first as u32..=block as u32).collect());
        meta.slot_mapping.push((block * BLOCK_SIZE + len % BLOCK_SIZE) as u32);
        meta.positions.push(*len as u32);
    }
    (ids, meta)
}

#[test]
fn replayed_steps_are_those_that_were_not_recorded() {
    let Some(device) = test_device() else { return };
    let model = Model::new(&device);
    let (mut plain, mut recorded) = (cache(&device, 6), cache(&device, 6));
    let mut graphs = StepGraphs::new(&device, BYTES_MAX);
    // Sequences grow over the spans of attention, join and leave.
    let mut lens = [3usize, 126, 250, 40, 0, 127];
    let mut step = |seqs: &[usize]| {
        let seqs: Vec<_> = seqs.iter().map(|seq| (*seq, lens[*seq])).collect();
        let (mut ids, mut meta) = batch(&seqs);
        let expected = values(model.forward(&ids, from_ref(&meta), &mut plain));
        let forward =
            |ids: &[u32], metas: &[AttentionMetadata]| model.forward(ids, metas, &mut recorded);
        let hidden = graphs.run(&mut ids, from_mut(&mut meta), forward);
        let got = values(hidden.narrow(0, 0, seqs.len()));
        assert!(bits(&got) == bits(&expected), "{seqs:?} after {:?}", graphs.stats());
        for (seq, len) in seqs {
            lens[seq] = len + 1;
        }
        graphs.stats()
    };
    for _ in 0..4 {
        step(&[0, 1, 2]);
    }
    let StepGraphStats { recorded, replayed, .. } = step(&[0, 1, 2]);
    assert!(recorded >= 1 && replayed >= 2, "{recorded} recorded, {replayed} replayed");
    // Other sequences in the same form, more of them, fewer, in another order, and the first again.
    for seqs in [&[3, 1, 2][..], &[0, 1, 2, 3, 4, 5], &[5], &[2, 0, 1], &[0, 1, 2, 3, 4], &[4]] {
        for _ in 0..3 {
            step(seqs);
        }
    }
    let stats = step(&[0, 1, 2]);
    assert!(stats.replayed > 2 * stats.recorded, "{stats:?}");
    assert_eq!(graphs.take_failure(), None);
}

/// A replay could not renew the factors.
#[test]
fn a_step_that_scales_rows_by_numbers_of_its_caller_is_not_recorded() {
    let Some(device) = test_device() else { return };
    let model = Model::new(&device);
    let mut graphs = StepGraphs::new(&device, BYTES_MAX);
    for len in 0..4 {
        let (mut ids, meta) = batch(&[(0, len)]);
        let mut metas = [meta];
        let hidden = graphs.run(&mut ids, &mut metas, |ids, metas| {
            let factors: Vec<f32> = metas[0].positions.iter().map(|p| *p as f32).collect();
            scale_rows(tied_embedding(&model.embedding, ids), &factors)
        });
        let embedded = values(tied_embedding(&model.embedding, &ids[..1]));
        let expected: Vec<f32> = embedded.iter().map(|x| x * len as f32).collect();
        assert_eq!(values(hidden.narrow(0, 0, 1)), expected);
    }
    assert_eq!(graphs.stats(), StepGraphStats::default());
    assert!(graphs.take_failure().is_some_and(|why| why.contains("renew")));
}

/// Two groups of layers of one kind: their recorded inputs differ in block tables and slots alone.
#[test]
fn groups_of_layers_have_inputs_of_their_own() {
    let Some(device) = test_device() else { return };
    let model = Model::new(&device);
    let (mut plain, mut recorded) = (cache(&device, 6), cache(&device, 6));
    let mut graphs = StepGraphs::new(&device, BYTES_MAX);
    // The second group has the blocks of the sequences from 3 on.
    let batches = |lens: [usize; 3]| {
        let of_group = |first: usize| {
            Vec::from_iter(lens.iter().enumerate().map(|(i, len)| (first + i, *len)))
        };
        let (ids, meta) = batch(&of_group(0));
        (ids, [meta, batch(&of_group(3)).1])
    };
    for number in 0..6 {
        let (mut ids, mut metas) = batches([3, 130, 60].map(|len| len + number));
        let expected = values(model.forward(&ids, &metas, &mut plain));
        let forward =
            |ids: &[u32], metas: &[AttentionMetadata]| model.forward(ids, metas, &mut recorded);
        let got = values(graphs.run(&mut ids, &mut metas, forward).narrow(0, 0, 3));
        assert!(bits(&got) == bits(&expected), "step {number} after {:?}", graphs.stats());
    }
    let StepGraphStats { recorded, replayed, .. } = graphs.stats();
    assert!(recorded >= 1 && replayed >= 3, "{recorded} recorded, {replayed} replayed");
    assert_eq!(graphs.take_failure(), None);
}

/// Rows that are multiplied in tiles are padded to the next size.
#[test]
fn steps_of_many_sequences_are_recorded_too() {
    let Some(device) = test_device() else { return };
    let model = Model::new(&device);
    let (mut plain, mut recorded) = (cache(&device, 70), cache(&device, 70));
    let mut graphs = StepGraphs::new(&device, BYTES_MAX);
    let mut lens: Vec<usize> = (0..70).map(|seq| seq * 37 % 300).collect();
    for seqs in [40, 70, 41, 69, 33, 70, 40] {
        let batch_of = |lens: &[usize]| {
            let seqs: Vec<_> = lens.iter().copied().enumerate().take(seqs).collect();
            batch(&seqs)
        };
        let (mut ids, mut meta) = batch_of(&lens);
        let expected = values(model.forward(&ids, from_ref(&meta), &mut plain));
        let forward =
            |ids: &[u32], metas: &[AttentionMetadata]| model.forward(ids, metas, &mut recorded);
        let got = values(graphs.run(&mut ids, from_mut(&mut meta), forward).narrow(0, 0, seqs));
        assert!(bits(&got) == bits(&expected), "{seqs} after {:?}", graphs.stats());
        lens[..seqs].iter_mut().for_each(|len| *len += 1);
    }
    let stats = graphs.stats();
    assert!(stats.recorded >= 2 && stats.recorded + stats.replayed == 7, "{stats:?}");
    assert!(stats.replayed >= 3, "{stats:?}");
    assert_eq!(graphs.take_failure(), None);
}

/// Other operations between replays take memory, free it and write to it. In cubecl 0.10 a later
/// recording then read from memory that was no longer its own
/// (<https://github.com/tracel-ai/cubecl/issues/1612>).
#[test]
fn operations_between_replays_change_neither_these_nor_later_recordings() {
    let Some(device) = test_device() else { return };
    let model = Model::new(&device);
    let (mut plain, mut recorded) = (cache(&device, 8), cache(&device, 8));
    let mut graphs = StepGraphs::new(&device, BYTES_MAX);
    let mut kept = Vec::new();
    for (number, seqs) in [2, 2, 8, 2, 4, 8, 2, 4, 4].into_iter().enumerate() {
        let seqs: Vec<_> = (0..seqs).map(|seq| (seq, 3 + number)).collect();
        let (mut ids, mut meta) = batch(&seqs);
        let expected = values(model.forward(&ids, from_ref(&meta), &mut plain));
        let forward =
            |ids: &[u32], metas: &[AttentionMetadata]| model.forward(ids, metas, &mut recorded);
        let hidden = graphs.run(&mut ids, from_mut(&mut meta), forward);
        // Results of many sizes, of which every third outlives the next steps.
        for size in 1..12 {
            let other = tensor(&numbers(size * 37 * HIDDEN, size + number), HIDDEN, &device);
            let product = linear(other, &model.layers[0][0], None);
            if size % 3 == 0 {
                kept.push(product);
            }
        }
        kept.drain(..kept.len().saturating_sub(5));
        let got = values(hidden.narrow(0, 0, seqs.len()));
        assert!(bits(&got) == bits(&expected), "step {number} after {:?}", graphs.stats());
    }
    let stats = graphs.stats();
    assert!(stats.recorded == 3 && stats.replayed >= 3, "{stats:?}");
    assert_eq!(graphs.take_failure(), None);
}

/// Compares steps with and without `graphs`, one after the other. `steps` has the sequences of
/// each.
fn compare_steps(device: &Device, graphs: &mut StepGraphs, steps: &[usize]) {
    let model = Model::new(device);
    let (mut plain, mut recorded) = (cache(device, 12), cache(device, 12));
    for (number, seqs) in steps.iter().enumerate() {
        let seqs: Vec<_> = (0..*seqs).map(|seq| (seq, 5 + number)).collect();
        let (mut ids, mut meta) = batch(&seqs);
        let expected = values(model.forward(&ids, from_ref(&meta), &mut plain));
        let forward =
            |ids: &[u32], metas: &[AttentionMetadata]| model.forward(ids, metas, &mut recorded);
        let got =
            values(graphs.run(&mut ids, from_mut(&mut meta), forward).narrow(0, 0, seqs.len()));
        assert!(bits(&got) == bits(&expected), "{seqs:?} after {:?}", graphs.stats());
    }
    assert_eq!(graphs.take_failure(), None);
}

#[test]
fn recordings_hold_no_more_than_they_may() {
    let Some(device) = test_device() else { return };
    let mut all = StepGraphs::new(&device, BYTES_MAX);
    compare_steps(&device, &mut all, &[8, 4]);
    let both = all.stats();
    assert_eq!((both.kept, both.recorded), (2, 2));
    // At least eight rows of hidden states and those of the MLP.
    assert!(both.bytes > 8 * 3 * HIDDEN as u64 * 4, "{both:?}");
    all.clear();
    assert_eq!((all.stats().kept, all.stats().bytes), (0, 0));

    // Each fits, but not both: the least recently used one is dropped.
    let mut one = StepGraphs::new(&device, both.bytes - 1);
    compare_steps(&device, &mut one, &[8, 8, 4, 4, 8, 8, 4]);
    let stats = one.stats();
    assert_eq!((stats.recorded, stats.replayed, stats.kept), (4, 3, 1), "{stats:?}");
    assert!(stats.bytes < both.bytes, "{stats:?}");

    // Dropping a recording does not move the others.
    let mut three = StepGraphs::new(&device, BYTES_MAX);
    compare_steps(&device, &mut three, &[8, 4, 2]);
    let mut two = StepGraphs::new(&device, three.stats().bytes - 1);
    compare_steps(&device, &mut two, &[8, 4, 2, 4, 2, 4]);
    let stats = two.stats();
    assert_eq!((stats.recorded, stats.replayed, stats.kept), (3, 3, 2), "{stats:?}");

    // No recording fits, and none is tried again.
    let mut none = StepGraphs::new(&device, 100);
    compare_steps(&device, &mut none, &[8, 8, 4]);
    assert_eq!(none.stats(), StepGraphStats::default());
    let gpu = none.gpu.as_ref().unwrap();
    assert!(gpu.takes(8), "of another form one might be smaller");
}

#[test]
fn a_step_that_lays_large_weights_out_anew_is_not_recorded() {
    let Some(device) = test_device() else { return };
    let model = Model::new(&device);
    let mut cache = cache(&device, 5);
    let mut graphs = StepGraphs::new(&device, BYTES_MAX);
    let mut calls = 0;
    let mut step = |seqs: usize, laid_out: usize| {
        let seqs: Vec<_> = (0..seqs).map(|seq| (seq, 7)).collect();
        let (mut ids, mut meta) = batch(&seqs);
        let hidden = graphs.run(&mut ids, from_mut(&mut meta), |ids, metas| {
            calls += 1;
            weight_copies::note(laid_out);
            model.forward(ids, metas, &mut cache)
        });
        (hidden.dims()[0], graphs.stats().recorded, calls)
    };
    let much = BYTES_MAX as usize / 16 + 1;
    assert_eq!(step(3, much), (4, 0, 1), "filled up, and computed once");
    assert_eq!(step(3, much), (3, 0, 2), "not even filled up");
    assert_eq!(step(5, 1).1, 1, "of small ones it is");
}

#[test]
fn dropped_recordings_are_made_again() {
    let Some(device) = test_device() else { return };
    let model = Model::new(&device);
    let mut cache = cache(&device, 2);
    let mut graphs = StepGraphs::new(&device, BYTES_MAX);
    let mut step = |graphs: &mut StepGraphs| {
        let (mut ids, mut meta) = batch(&[(0, 5), (1, 9)]);
        let forward =
            |ids: &[u32], metas: &[AttentionMetadata]| model.forward(ids, metas, &mut cache);
        bits(&values(graphs.run(&mut ids, from_mut(&mut meta), forward)))
    };
    let first = step(&mut graphs);
    let (recorded, _) = (graphs.stats().recorded, graphs.clear());
    assert!(step(&mut graphs) == first && step(&mut graphs) == first);
    let stats = graphs.stats();
    assert!(stats.recorded > recorded && stats.replayed > 0, "{stats:?}");
    assert_eq!(graphs.take_failure(), None);
}

#[test]
fn a_step_that_cannot_be_recorded_is_computed_and_the_reason_reported_once() {
    let Some(device) = test_device() else { return };
    let model = Model::new(&device);
    let mut cache = cache(&device, 2);
    let mut graphs = StepGraphs::new(&device, BYTES_MAX);
    for times in 0..3 {
        let (mut ids, mut meta) = batch(&[(0, 5), (1, 9)]);
        let expected = values(model.forward(&ids, from_ref(&meta), &mut cache));
        let mut calls = 0;
        let hidden = graphs.run(&mut ids, from_mut(&mut meta), |ids, metas| {
            calls += 1;
            // A copy in the middle of a recording is not part of it, so the recording fails.
            let extra = tensor(&vec![calls as f32; 2 * HIDDEN], HIDDEN, &device);
            model.forward(ids, metas, &mut cache) + extra.clone() - extra
        });
        let got = values(hidden);
        assert!(got.iter().zip(&expected).all(|(got, expected)| (got - expected).abs() < 1e-3));
        assert_eq!(graphs.take_failure().is_some(), times == 0);
        assert_eq!(graphs.stats(), StepGraphStats::default());
    }
}
