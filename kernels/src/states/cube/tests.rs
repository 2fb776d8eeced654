//! On a GPU: states and keys share an arena, and a hit waits for its state.

use burn::tensor::Device;

use crate::causal_conv::{CausalConv, causal_conv};
use crate::cube::test_device::{bits, numbers, tensor, test_device, values};
use crate::kv_cache::cube::{Stored, on_gpu};
use crate::{AttentionMetadata, KvCache, KvCacheShape, KvDtype, reshape_and_cache};

const BLOCK_SIZE: usize = 4;
const CHANNELS: usize = 50;
const KERNEL: usize = 4;

fn cache(dtype: KvDtype, num_blocks: usize, device: &Device) -> KvCache {
    let shape = KvCacheShape {
        num_layers: 1,
        num_blocks,
        block_size: BLOCK_SIZE,
        num_kv_heads: 2,
        head_dim: 16,
        value_head_dim: 16,
        values_in_keys: false,
        state_len: CausalConv::state_len(CHANNELS, KERNEL),
    };
    KvCache::new(shape, dtype, device).unwrap()
}

fn conv(device: &Device) -> CausalConv {
    let weight = numbers(CHANNELS * KERNEL, 1);
    CausalConv::new(&weight, None, KERNEL, None, 0, device).unwrap()
}

/// Convolves one step of sequences: positions and table of each. Their tokens depend on the
/// position alone. Returns the rows of each.
fn step(
    kv: &mut KvCache,
    conv: &CausalConv,
    seqs: &[(std::ops::Range<u32>, &[u32])],
    device: &Device,
) -> Vec<Vec<u32>> {
    let mut meta = AttentionMetadata { query_start_loc: vec![0], ..Default::default() };
    let mut rows = Vec::new();
    for (positions, table) in seqs {
        meta.positions.extend(positions.clone());
        meta.query_start_loc.push(meta.positions.len() as u32);
        meta.seq_lens.push(positions.end);
        meta.block_tables.push(table.to_vec());
        rows.extend(positions.clone().flat_map(|p| numbers(CHANNELS, p as usize + 7)));
    }
    let y = values(causal_conv(tensor(&rows, CHANNELS, device), 0, conv, kv.layer_mut(0), &meta));
    let of_seq = |seq: usize| {
        let rows = meta.tokens_of(seq);
        bits(&y[rows.start * CHANNELS..rows.end * CHANNELS])
    };
    (0..seqs.len()).map(of_seq).collect()
}

/// A hit on blocks that two others fill in the same step, in an order that does not matter.
#[test]
fn a_hit_within_a_step_waits_for_its_state() {
    let Some(device) = test_device() else { return };
    let conv = conv(&device);
    let whole = step(&mut cache(KvDtype::F32, 8, &device), &conv, &[(0..10, &[1, 2, 3])], &device);
    let of = |positions: std::ops::Range<usize>| {
        whole[0][positions.start * CHANNELS..positions.end * CHANNELS].to_vec()
    };
    let mut kv = cache(KvDtype::Bf16, 8, &device);
    let seqs: [(_, &[u32]); 3] = [(8..9, &[0, 2, 3]), (4..10, &[1, 2, 4]), (0..5, &[1, 5])];
    let y = step(&mut kv, &conv, &seqs, &device);
    assert!(y == [of(8..9), of(4..10), of(0..5)]);
    // The states are snapshots, which later steps hit.
    let y = step(&mut kv, &conv, &[(4..10, &[1, 6, 7]), (8..10, &[0, 2, 6])], &device);
    assert!(y == [of(4..10), of(8..10)]);
}

/// Keys and values of a block, and states of its neighbours.
#[test]
fn pages_of_keys_and_of_states_do_not_overlap() {
    let Some(device) = test_device() else { return };
    for dtype in [KvDtype::F32, KvDtype::Bf16, KvDtype::Int8] {
        let mut kv = cache(dtype, 6, &device);
        let (k, v) = (numbers(BLOCK_SIZE * 32, 1), numbers(BLOCK_SIZE * 32, 2));
        let slots: Vec<u32> = (8..12).collect();
        let [on_k, on_v] = [&k, &v].map(|x| tensor(x, 32, &device));
        reshape_and_cache(on_k, on_v, kv.layer_mut(0), &slots);
        let read = |kv: &mut KvCache| {
            let stored = Stored::read(on_gpu(kv.layer(0), "test"));
            slots.iter().flat_map(|slot| stored.at(*slot as usize, 1)).collect::<Vec<_>>().concat()
        };
        let before = read(&mut kv);
        let conv = conv(&device);
        let whole = step(&mut kv, &conv, &[(0..8, &[1, 3])], &device);
        assert!(read(&mut kv) == before, "{dtype}");
        let again = step(&mut kv, &conv, &[(4..8, &[1, 4])], &device);
        assert!(again[0] == whole[0][4 * CHANNELS..], "{dtype}");
    }
}
