//! Keys and values are read as they were written, in every slot.

use burn::tensor::{Device, Tensor, TensorData};
use half::bf16;
use proptest::prelude::*;

use super::*;

fn shape(block_size: usize, num_kv_heads: usize, head_dim: usize) -> KvCacheShape {
    KvCacheShape {
        num_layers: 2,
        num_blocks: 7,
        block_size,
        num_kv_heads,
        head_dim,
        value_head_dim: head_dim,
        values_in_keys: false,
        state_len: 0,
    }
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
        value_head_dim in prop::sample::select(vec![1usize, 32, 80]),
        dtype in prop::sample::select(vec![KvDtype::F32, KvDtype::Bf16, KvDtype::Int8]),
        slots in prop::collection::btree_set(0u32..7, 1..5),
    ) {
        let shape = KvCacheShape { value_head_dim, ..shape(block_size, heads, head_dim) };
        let mut cache = KvCache::new(shape, dtype, &Device::flex()).unwrap();
        let slots: Vec<u32> = slots.into_iter().collect();
        let widths = [heads * head_dim, heads * value_head_dim];
        let (k, v) = (rows(slots.len(), widths[0], 0.0), rows(slots.len(), widths[1], 1.0));
        reshape_and_cache(tensor(&k, widths[0]), tensor(&v, widths[1]), cache.layer_mut(1), &slots);
        // Half a step of the row's scale, and its roundings; zero where the format holds the value.
        let tolerance = |row: &[f32]| match dtype {
            KvDtype::Int8 => row.iter().fold(0.0, |m: f32, x| m.max(x.abs())) / 253.0,
            _ => 0.0,
        };
        let round = |x: f32| match dtype {
            KvDtype::Bf16 => bf16::from_f32(x).to_f32(),
            _ => x,
        };
        for (t, slot) in slots.iter().enumerate() {
            let (block, offset) = (*slot as usize / block_size, *slot as usize % block_size);
            for head in 0..heads {
                let stored = cpu::stored(cache.layer(1), block, offset, head);
                let of_head = t * heads + head;
                let k = &k[of_head * head_dim..][..head_dim];
                let v = &v[of_head * value_head_dim..][..value_head_dim];
                for (row, stored) in [k, v].into_iter().zip(stored) {
                    prop_assert_eq!(row.len(), stored.len());
                    for (x, stored) in row.iter().zip(stored) {
                        prop_assert!((stored - round(*x)).abs() <= tolerance(row));
                    }
                }
                let untouched = cpu::stored(cache.layer(0), block, offset, head);
                prop_assert!(untouched.iter().flatten().all(|x| *x == 0.0));
            }
        }
    }
}

/// Rows that no scale fits. Each has a plain neighbour, which must stay right.
#[test]
fn int8_keeps_zeros_and_shows_non_finite_numbers() {
    let shape = KvCacheShape { num_layers: 1, ..shape(16, 2, 4) };
    let mut cache = KvCache::new(shape, KvDtype::Int8, &Device::flex()).unwrap();
    let plain = [1.0, -0.5, 0.25, 127.0];
    for (row, slot) in [
        ([0.0; 4], 3),
        ([1e-40, -1e-40, 0.0, 1e-44], 4),
        ([1.0, f32::NAN, 0.0, 0.0], 5),
        ([f32::INFINITY, 1.0, 2.0, 3.0], 6),
        ([3e38, -3e38, 1.0, 0.0], 7),
    ] {
        let rows = || tensor(&[row, plain].concat(), 8);
        reshape_and_cache(rows(), rows(), cache.layer_mut(0), &[slot]);
        for (head, exact) in [row, plain].into_iter().enumerate() {
            for stored in cpu::stored(cache.layer(0), 0, slot as usize, head) {
                let is_number = exact.iter().all(|x| x.is_finite());
                assert_eq!(stored.iter().all(|x| x.is_finite()), is_number, "{exact:?}");
                let largest = exact.iter().fold(0.0, |m: f32, x| m.max(x.abs()));
                for (x, stored) in exact.iter().zip(&stored).filter(|_| is_number) {
                    let bound = (largest / 253.0).max(1.6e-36);
                    assert!((x - stored).abs() <= bound, "{exact:?}: {stored}");
                }
            }
        }
    }
}

#[test]
fn bytes_count_padding_scales_and_both_halves() {
    let shape = KvCacheShape {
        num_layers: 3,
        num_blocks: 5,
        block_size: 16,
        num_kv_heads: 2,
        head_dim: 64,
        value_head_dim: 64,
        values_in_keys: false,
        state_len: 0,
    };
    assert_eq!(shape.bytes(KvDtype::Bf16), 3 * 5 * 16 * 2 * 64 * 2 * 2);
    assert_eq!(shape.bytes(KvDtype::F32), 2 * shape.bytes(KvDtype::Bf16));
    // 64 codes and a scale.
    assert_eq!(shape.bytes(KvDtype::Int8), 3 * 5 * 16 * 2 * 2 * (64 + 4));
    let padded = KvCacheShape { block_size: 8, ..shape };
    assert_eq!(padded.bytes(KvDtype::Bf16), 3 * 5 * 2 * 64 * 2 * (16 + 8));
    let latent = KvCacheShape { head_dim: 192, value_head_dim: 128, ..shape };
    assert_eq!(latent.bytes(KvDtype::Bf16), 3 * 5 * 16 * 2 * (192 + 128) * 2);
    // Values that are parts of keys take no bytes: DeepSeek V3 has 576 elements a token.
    let (head_dim, value_head_dim) = (512 + 64, 512);
    let absorbed = KvCacheShape { num_kv_heads: 1, head_dim, value_head_dim, ..shape };
    let absorbed = KvCacheShape { values_in_keys: true, ..absorbed };
    assert_eq!(absorbed.bytes(KvDtype::Bf16), 3 * 5 * 16 * 576 * 2);
    assert_eq!(absorbed.bytes(KvDtype::Int8), 3 * 5 * 16 * (576 + 4));
    // A GPU has one buffer for keys and values.
    let blocks = (1 << 20) / (16 * 2 * (192 + 128) * 2);
    assert_eq!(latent.max_num_blocks(KvDtype::Bf16, 1 << 20), blocks);
    // Pages are as large as a state that is larger than keys and values.
    let hybrid = KvCacheShape { state_len: 5_001, ..shape };
    assert_eq!(hybrid.max_num_blocks(KvDtype::Bf16, 1 << 20), (1 << 20) / (4 * 5_004));
    let scales = 16 * 2 * 2 * 4;
    assert_eq!(hybrid.bytes(KvDtype::Int8), 3 * 5 * (4 * 5_004 + scales));
}

#[test]
fn a_dimension_that_no_arena_has_is_refused_by_name() {
    let good = shape(16, 2, 64);
    for (bad, field) in [
        (KvCacheShape { num_blocks: 0, ..good }, "num_blocks"),
        (KvCacheShape { head_dim: 63, ..good }, "head_dim"),
        (KvCacheShape { value_head_dim: 0, ..good }, "value_head_dim"),
        (KvCacheShape { value_head_dim: 66, values_in_keys: true, ..good }, "value_head_dim"),
        (KvCacheShape { value_head_dim: 31, values_in_keys: true, ..good }, "value_head_dim"),
        (KvCacheShape { num_blocks: 1 << 30, ..good }, "num_blocks * block_size"),
    ] {
        let error = KvCache::new(bad, KvDtype::F32, &Device::flex()).unwrap_err();
        assert!(error.to_string().contains(field), "{error}");
    }
    let error = KvCache::new(good, KvDtype::F16, &Device::flex()).unwrap_err();
    assert_eq!(error.to_string(), "KV cache: float16 has no kernels on device cpu");
}
