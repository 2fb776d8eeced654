//! What is written is what is read, wherever the slot lies.

use burn::tensor::{Device, Tensor, TensorData};
use half::bf16;
use proptest::prelude::*;

use super::*;

fn shape(block_size: usize, num_kv_heads: usize, head_dim: usize) -> KvCacheShape {
    KvCacheShape { num_layers: 2, num_blocks: 7, block_size, num_kv_heads, head_dim }
}

fn rows(count: usize, width: usize, phase: f32) -> Vec<f32> {
    (0..count * width).map(|i| (i as f32 * 0.71 + phase).sin()).collect()
}

fn tensor(data: &[f32], width: usize) -> Tensor<2> {
    Tensor::from_data(TensorData::new(data.to_vec(), [data.len() / width, width]), &Device::flex())
}

proptest! {
    #[test]
    fn slots_hold_what_was_written_to_them(
        block_size in prop::sample::select(vec![1usize, 8, 16, 24, 32]),
        heads in 1usize..4,
        head_dim in prop::sample::select(vec![2usize, 32, 80, 96]),
        bf16_cache: bool,
        slots in prop::collection::btree_set(0u32..7, 1..5),
    ) {
        let shape = shape(block_size, heads, head_dim);
        let dtype = if bf16_cache { WeightDtype::Bf16 } else { WeightDtype::F32 };
        let mut cache = KvCache::new(shape, dtype, &Device::flex()).unwrap();
        let slots: Vec<u32> = slots.into_iter().collect();
        let width = heads * head_dim;
        let (k, v) = (rows(slots.len(), width, 0.0), rows(slots.len(), width, 1.0));
        reshape_and_cache(tensor(&k, width), tensor(&v, width), cache.layer_mut(1), &slots);
        let round = |x: &f32| if bf16_cache { bf16::from_f32(*x).to_f32() } else { *x };
        for (t, slot) in slots.iter().enumerate() {
            let (block, offset) = (*slot as usize / block_size, *slot as usize % block_size);
            for head in 0..heads {
                let range = t * width + head * head_dim..t * width + (head + 1) * head_dim;
                let expected = [&k[range.clone()], &v[range]].map(|x| x.iter().map(round).collect::<Vec<_>>());
                prop_assert_eq!(cpu::stored(cache.layer(1), block, offset, head), expected);
                let untouched = cpu::stored(cache.layer(0), block, offset, head);
                prop_assert!(untouched.iter().flatten().all(|x| *x == 0.0));
            }
        }
    }
}

#[test]
fn bytes_count_padding_and_both_halves() {
    let shape = KvCacheShape {
        num_layers: 3,
        num_blocks: 5,
        block_size: 16,
        num_kv_heads: 2,
        head_dim: 64,
    };
    assert_eq!(shape.bytes(WeightDtype::Bf16), 3 * 5 * 16 * 2 * 64 * 2 * 2);
    assert_eq!(shape.bytes(WeightDtype::F32), 2 * shape.bytes(WeightDtype::Bf16));
    let padded = KvCacheShape { block_size: 8, ..shape };
    assert_eq!(padded.bytes(WeightDtype::Bf16), 3 * 5 * 2 * 64 * 2 * (16 + 8));
}

#[test]
fn a_dimension_that_no_arena_has_is_refused_by_name() {
    let good = shape(16, 2, 64);
    for (bad, field) in [
        (KvCacheShape { num_blocks: 0, ..good }, "num_blocks"),
        (KvCacheShape { head_dim: 63, ..good }, "head_dim"),
        (KvCacheShape { num_blocks: 1 << 30, ..good }, "num_blocks * block_size"),
    ] {
        let error = KvCache::new(bad, WeightDtype::F32, &Device::flex()).unwrap_err();
        assert!(error.to_string().contains(field), "{error}");
    }
}
