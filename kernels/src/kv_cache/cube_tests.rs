//! On a GPU: what is written is what is read.

use half::bf16;

use super::*;
use crate::cube::test_device::{numbers, tensor, test_device};

#[test]
fn slots_hold_what_was_written_to_them() {
    let Some(device) = test_device() else { return };
    for (dtype, block_size, head_dim) in [
        (KvDtype::F32, 16, 40),
        (KvDtype::Bf16, 8, 80),
        (KvDtype::Bf16, 1, 256),
        (KvDtype::Int8, 24, 64),
    ] {
        let heads = 3;
        let shape = KvCacheShape {
            num_layers: 1,
            num_blocks: 7,
            block_size,
            num_kv_heads: heads,
            head_dim,
        };
        let mut cache = KvCache::new(shape, dtype, &device).unwrap();
        let (slots, width) = ([5u32, 0, 6], heads * head_dim);
        let (k, mut v) = (numbers(3 * width, 1), numbers(3 * width, 2));
        v[..head_dim].fill(0.0);
        let on_device = |x: &[f32]| tensor(x, width, &device);
        reshape_and_cache(on_device(&k), on_device(&v), cache.layer_mut(0), &slots);
        let KvStorage::Cube(kv) = cache.layer(0).storage() else { unreachable!() };
        let arena = cube::Stored::read(kv);
        // Half a step of the row's scale, and its roundings; nothing where the format holds the value.
        let tolerance = |row: &[f32]| match dtype {
            KvDtype::Int8 => row.iter().fold(0.0, |m: f32, x| m.max(x.abs())) / 253.0,
            KvDtype::F32 | KvDtype::Bf16 => 0.0,
        };
        let round = |x: f32| match dtype {
            KvDtype::Bf16 => bf16::from_f32(x).to_f32(),
            KvDtype::F32 | KvDtype::Int8 => x,
        };
        for (t, slot) in slots.into_iter().enumerate() {
            for head in 0..heads {
                let range = t * width + head * head_dim..t * width + (head + 1) * head_dim;
                let stored = arena.at(slot as usize, head);
                for (row, stored) in [&k[range.clone()], &v[range]].into_iter().zip(stored) {
                    for (x, stored) in row.iter().zip(stored) {
                        assert!(
                            (stored - round(*x)).abs() <= tolerance(row),
                            "{dtype} {x} {stored}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn a_head_that_fills_no_chunks_is_refused() {
    let Some(device) = test_device() else { return };
    for (dtype, head_dim) in [(KvDtype::F32, 6), (KvDtype::Bf16, 36), (KvDtype::Int8, 40)] {
        let shape =
            KvCacheShape { num_layers: 1, num_blocks: 2, block_size: 8, num_kv_heads: 1, head_dim };
        let refused = KvCache::new(shape, dtype, &device).unwrap_err();
        assert!(matches!(refused, KernelError::UnsupportedForm { .. }), "{refused}");
    }
}

#[test]
fn as_many_blocks_as_the_largest_buffer_holds_and_not_one_more() {
    let Some(device) = test_device() else { return };
    let largest = crate::device_memory(&device).unwrap().max_buffer_bytes;
    let one = KvCacheShape {
        num_layers: 1,
        num_blocks: 1,
        block_size: 16,
        num_kv_heads: 8,
        head_dim: 128,
    };
    for dtype in [KvDtype::F32, KvDtype::Bf16, KvDtype::Int8] {
        let fitting = one.max_num_blocks(dtype, largest);
        let shape = KvCacheShape { num_blocks: fitting + 1, ..one };
        let refused = KvCache::new(shape, dtype, &device).unwrap_err();
        assert!(matches!(refused, KernelError::BufferTooLarge { .. }), "{refused}");
    }
    let fitting = one.max_num_blocks(KvDtype::Bf16, largest);
    let shape = KvCacheShape { num_blocks: fitting, ..one };
    assert!(KvCache::new(shape, KvDtype::Bf16, &device).is_ok());
}
