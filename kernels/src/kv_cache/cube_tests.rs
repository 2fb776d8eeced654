//! On a GPU: keys and values are read as they were written.

use half::{bf16, f16};

use super::*;
use crate::cube::test_device::{numbers, tensor, test_device};

#[test]
fn slots_hold_what_was_written_to_them() {
    let Some(device) = test_device() else { return };
    for (dtype, block_size, head_dim, value_head_dim) in [
        (KvDtype::F32, 16, 40, 40),
        (KvDtype::F16, 4, 48, 48),
        (KvDtype::Bf16, 8, 80, 80),
        (KvDtype::Bf16, 1, 256, 256),
        (KvDtype::Bf16, 8, 192, 128),
        (KvDtype::Int8, 24, 64, 64),
        (KvDtype::Int8, 8, 32, 64),
    ] {
        let heads = 3;
        let shape = KvCacheShape {
            num_layers: 1,
            num_blocks: 7,
            block_size,
            num_kv_heads: heads,
            head_dim,
            value_head_dim,
            values_in_keys: false,
            state_len: 0,
        };
        let mut cache = KvCache::new(shape, dtype, &device).unwrap();
        let slots = [5u32, 0, 6];
        let [k, mut v] =
            [(head_dim, 1), (value_head_dim, 2)].map(|(dim, seed)| numbers(3 * heads * dim, seed));
        v[..value_head_dim].fill(0.0);
        let [on_k, on_v] =
            [(&k, head_dim), (&v, value_head_dim)].map(|(x, dim)| tensor(x, heads * dim, &device));
        reshape_and_cache(on_k, on_v, cache.layer_mut(0), &slots);
        let KvStorage::Cube(kv) = cache.layer(0).storage() else { unreachable!() };
        let arena = cube::Stored::read(kv);
        // Half a step of the row's scale, and its roundings; zero where the format holds the value.
        let tolerance = |row: &[f32]| match dtype {
            KvDtype::Int8 => row.iter().fold(0.0, |m: f32, x| m.max(x.abs())) / 253.0,
            KvDtype::F32 | KvDtype::F16 | KvDtype::Bf16 => 0.0,
        };
        let round = |x: f32| match dtype {
            KvDtype::F16 => f16::from_f32(x).to_f32(),
            KvDtype::Bf16 => bf16::from_f32(x).to_f32(),
            KvDtype::F32 | KvDtype::Int8 => x,
        };
        for (t, slot) in slots.into_iter().enumerate() {
            for head in 0..heads {
                let stored = arena.at(slot as usize, head);
                let of_head = t * heads + head;
                let k = &k[of_head * head_dim..][..head_dim];
                let v = &v[of_head * value_head_dim..][..value_head_dim];
                for (row, stored) in [k, v].into_iter().zip(stored) {
                    assert_eq!(row.len(), stored.len());
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

/// This holds however the device treats 16 bits, subnormal numbers and NaN.
#[test]
fn binary16_is_rounded_as_ieee_says() {
    let Some(device) = test_device() else { return };
    let mut written = vec![0.0, -0.0, 1.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -f32::NAN];
    for x in [65_504.0, 65_519.9, 65_520.0, 1e9, 6.1e-5, 6.097e-5, 5.96e-8, 2.9e-8, 2.99e-8, 1e-30]
    {
        written.extend([x, -x]);
    }
    // Halfway between neighbours, and just beside it; also between subnormal numbers.
    for bits in [0x3c00u16, 0x3c01, 0x0001, 0x0002, 0x03ff, 0x0400, 0x7bfe] {
        let [x, next] = [bits, bits + 1].map(|bits| f16::from_bits(bits).to_f32());
        let half = f32::midpoint(x, next);
        written.extend([half, half.next_down(), half.next_up(), -half]);
    }
    written.resize(64, 2.5);
    let shape = KvCacheShape {
        num_layers: 1,
        num_blocks: 1,
        block_size: 8,
        num_kv_heads: 1,
        head_dim: 64,
        value_head_dim: 64,
        values_in_keys: false,
        state_len: 0,
    };
    let mut cache = KvCache::new(shape, KvDtype::F16, &device).unwrap();
    let row = || tensor(&written, 64, &device);
    reshape_and_cache(row(), row(), cache.layer_mut(0), &[3]);
    let KvStorage::Cube(kv) = cache.layer(0).storage() else { unreachable!() };
    let [keys, values] = cube::Stored::read(kv).at(3, 0);
    for (x, stored) in written.iter().zip(keys).chain(written.iter().zip(values)) {
        let expected = f16::from_f32(*x).to_f32();
        let is_equal = stored.to_bits() == expected.to_bits() || x.is_nan() && stored.is_nan();
        assert!(is_equal, "{x:e} became {stored:e}, not {expected:e}");
    }
}

#[test]
fn a_head_that_fills_no_chunks_is_refused() {
    let Some(device) = test_device() else { return };
    for (dtype, head_dim, value_head_dim, field) in [
        (KvDtype::F32, 6, 8, "head_dim 6"),
        (KvDtype::Bf16, 36, 40, "head_dim 36"),
        (KvDtype::Int8, 40, 48, "head_dim 40"),
        (KvDtype::Bf16, 48, 36, "value_head_dim 36"),
        (KvDtype::F32, 8192, 512, "head_dim 8192"),
    ] {
        let shape = KvCacheShape {
            num_layers: 1,
            num_blocks: 2,
            block_size: 8,
            num_kv_heads: 1,
            head_dim,
            value_head_dim,
            values_in_keys: false,
            state_len: 0,
        };
        let refused = KvCache::new(shape, dtype, &device).unwrap_err();
        assert!(matches!(refused, KernelError::UnsupportedForm { .. }), "{refused}");
        assert!(refused.to_string().contains(field), "{refused}");
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
        value_head_dim: 128,
        values_in_keys: false,
        state_len: 0,
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
