//! Recorded steps of layers with states give the same results as steps that are not recorded.

use std::slice::from_mut;

use burn::tensor::Device;

use super::*;
use crate::cube::test_device::{bits, numbers, test_device, values};
use crate::{
    CausalConv, KvCache, KvCacheShape, KvDtype, LinearWeight, Ssd, SsdConfig, WeightDtype,
    WeightView, causal_conv, ssd, tied_embedding,
};

const BLOCK_SIZE: usize = 4;
/// Blocks of a sequence.
const NUM_BLOCKS: usize = 6;
const NUM_SEQS: usize = 6;
const KERNEL: usize = 4;
const VOCAB: usize = 20;

/// A convolution, and a state-space model over its channels.
struct Model {
    embedding: LinearWeight,
    conv: CausalConv,
    ssd: Ssd,
}

impl Model {
    fn new(device: &Device) -> Self {
        let config = SsdConfig {
            num_heads: 2,
            head_dim: 8,
            state_size: 16,
            num_groups: 1,
            a: vec![-0.5, -0.1],
            d: vec![1.0, 0.5],
            dt_bias: vec![0.1, -0.2],
            dt_scale: 1.0,
            dt_limit: [0.0, f32::INFINITY],
            state_at: CausalConv::state_len(48, KERNEL),
        };
        let ssd = Ssd::new(config, device).unwrap();
        let channels = ssd.columns();
        let weight = numbers(channels * KERNEL, 1);
        let table = numbers(VOCAB * channels, 2);
        let views = [WeightView::F32(&table)];
        Self {
            embedding: LinearWeight::pack(&views, channels, WeightDtype::F32, device).unwrap(),
            conv: CausalConv::new(&weight, None, KERNEL, None, 0, device).unwrap(),
            ssd,
        }
    }

    fn cache(&self, device: &Device) -> KvCache {
        let shape = KvCacheShape {
            num_layers: 1,
            num_blocks: 1 + NUM_SEQS * NUM_BLOCKS,
            block_size: BLOCK_SIZE,
            num_kv_heads: 0,
            head_dim: 0,
            value_head_dim: 0,
            values_in_keys: false,
            state_len: CausalConv::state_len(48, KERNEL) + Ssd::state_len(2, 8, 16),
        };
        KvCache::new(shape, KvDtype::F32, device).unwrap()
    }

    fn forward(&self, ids: &[u32], meta: &AttentionMetadata, kv: &mut KvCache) -> Tensor<2> {
        let x = tied_embedding(&self.embedding, ids);
        let xbc = causal_conv(x.clone(), 0, &self.conv, kv.layer_mut(0), meta);
        ssd(xbc, x, 3, &self.ssd, kv.layer_mut(0), meta)
    }
}

/// Returns a batch of the next token of each (sequence, earlier tokens).
fn batch(seqs: &[(usize, usize)]) -> (Vec<u32>, AttentionMetadata) {
    let table = |seq: usize| (0..NUM_BLOCKS).map(move |i| (1 + seq * NUM_BLOCKS + i) as u32);
    let tables = seqs.iter().map(|(seq, _)| table(*seq).collect()).collect();
    batch_of(seqs, tables)
}

fn batch_of(seqs: &[(usize, usize)], tables: Vec<Vec<u32>>) -> (Vec<u32>, AttentionMetadata) {
    let mut meta = AttentionMetadata { query_start_loc: vec![0], ..Default::default() };
    for (i, ((_, len), table)) in seqs.iter().zip(&tables).enumerate() {
        meta.query_start_loc.push(i as u32 + 1);
        meta.seq_lens.push(*len as u32 + 1);
        let block = table[len / BLOCK_SIZE] as usize;
        meta.slot_mapping.push((block * BLOCK_SIZE + len % BLOCK_SIZE) as u32);
        meta.positions.push(*len as u32);
    }
    meta.block_tables = tables;
    let ids = seqs.iter().map(|(seq, len)| ((seq * 7 + len * 3) % VOCAB) as u32).collect();
    (ids, meta)
}

#[test]
fn replayed_states_are_those_of_steps_that_were_not_recorded() {
    let Some(device) = test_device() else { return };
    let model = Model::new(&device);
    let (mut plain, mut recorded) = (model.cache(&device), model.cache(&device));
    let mut graphs = StepGraphs::new(&device, 1 << 30);
    let mut lens = [0usize; NUM_SEQS];
    // Sequences cross the ends of blocks, join and leave. Steps of three are filled up to four.
    for seqs in [&[0, 1, 2][..]; 9].into_iter().chain([&[3, 1, 5][..], &[0, 3, 4], &[5], &[2, 0]]) {
        let seqs: Vec<_> = seqs.iter().map(|seq| (*seq, lens[*seq])).collect();
        let (mut ids, mut meta) = batch(&seqs);
        let expected = values(model.forward(&ids, &meta, &mut plain));
        let forward =
            |ids: &[u32], metas: &[AttentionMetadata]| model.forward(ids, &metas[0], &mut recorded);
        let got =
            values(graphs.run(&mut ids, from_mut(&mut meta), forward).narrow(0, 0, seqs.len()));
        assert!(bits(&got) == bits(&expected), "{seqs:?} after {:?}", graphs.stats());
        seqs.iter().for_each(|(seq, len)| lens[*seq] = len + 1);
    }
    let stats = graphs.stats();
    assert!(stats.recorded >= 2 && stats.replayed >= 6, "{stats:?}");
    assert_eq!(graphs.take_failure(), None);
}

/// Two launches, in an order that the batch decides, are no recording.
#[test]
fn a_step_in_which_a_state_is_hit_is_not_replayed() {
    let Some(device) = test_device() else { return };
    let model = Model::new(&device);
    let (mut plain, mut recorded) = (model.cache(&device), model.cache(&device));
    let mut graphs = StepGraphs::new(&device, 1 << 30);
    for len in 0..5 {
        let (mut ids, mut meta) = batch(&[(0, len), (1, len)]);
        let _ = model.forward(&ids, &meta, &mut plain);
        let _ = graphs.run(&mut ids, from_mut(&mut meta), |ids, metas| {
            model.forward(ids, &metas[0], &mut recorded)
        });
    }
    let before = graphs.stats();
    for len in 0..3 {
        let (ids, meta) = batch_of(&[(3, len)], vec![vec![13]]);
        let _ = [&mut plain, &mut recorded].map(|kv| model.forward(&ids, &meta, kv));
    }
    // The second fills the block that the first one hits.
    let (mut ids, mut meta) = batch_of(&[(2, 4), (3, 3)], vec![vec![13, 20], vec![13]]);
    let expected = values(model.forward(&ids, &meta, &mut plain));
    let got = graphs.run(&mut ids, from_mut(&mut meta), |ids, metas| {
        model.forward(ids, &metas[0], &mut recorded)
    });
    // The first row begins at the state that the second row wrote.
    assert!(bits(&values(got)) == bits(&expected));
    assert_eq!(
        (graphs.stats().recorded, graphs.stats().replayed),
        (before.recorded, before.replayed)
    );
    assert_eq!(graphs.take_failure(), None);
}
