//! Results do not depend on how many threads computed them: the test compares bytes.
#![allow(clippy::unwrap_used)] // a test may unwrap

use burn::tensor::{Device, Tensor, TensorData};
use playhouse_kernels::{
    AttentionMetadata, AttentionParams, KvCache, KvCacheShape, KvDtype, LinearWeight, RotaryTable,
    ThreadPool, WeightDtype, WeightVector, WeightView, add_rms_norm, linear, linear_swiglu,
    paged_attention, reshape_and_cache, rms_norm, rope,
};

const TOKENS: usize = 100;
const HEADS: usize = 8;
const HEAD_DIM: usize = 96;
const WIDTH: usize = HEADS * HEAD_DIM;

fn values(count: usize, phase: f32) -> Vec<f32> {
    (0..count).map(|i| (i as f32 * 0.37 + phase).sin()).collect()
}

fn tensor(phase: f32) -> Tensor<2> {
    let data = TensorData::new(values(TOKENS * WIDTH, phase), [TOKENS, WIDTH]);
    Tensor::from_data(data, &Device::flex())
}

/// Runs the operations of a layer, each large enough to be divided among threads.
fn layer(dtype: WeightDtype, kv_dtype: KvDtype) -> Vec<u32> {
    let device = Device::flex();
    let weight = |outputs: usize, inputs: usize| {
        let w = values(outputs * inputs, 0.5);
        LinearWeight::pack(&[WeightView::F32(&w)], inputs, dtype, &device).unwrap()
    };
    let norm = WeightVector::new(values(WIDTH, 2.0), &device).unwrap();
    let angles = || values(TOKENS * HEAD_DIM / 2, 0.1);
    let table = RotaryTable::new(angles(), angles(), HEAD_DIM, &device).unwrap();
    let shape = KvCacheShape {
        num_layers: 1,
        num_blocks: TOKENS.div_ceil(16),
        block_size: 16,
        num_kv_heads: HEADS,
        head_dim: HEAD_DIM,
        value_head_dim: HEAD_DIM,
        values_in_keys: false,
        state_len: 0,
    };
    let mut cache = KvCache::new(shape, kv_dtype, &device).unwrap();
    let tokens: Vec<u32> = (0..TOKENS as u32).collect();
    let meta = AttentionMetadata {
        query_start_loc: vec![0, TOKENS as u32],
        seq_lens: vec![TOKENS as u32],
        block_tables: vec![(0..shape.num_blocks as u32).collect()],
        slot_mapping: tokens.clone(),
        positions: tokens.clone(),
        visible_ends: Vec::new(),
        num_guesses: Vec::new(),
    };
    meta.validate(&shape).unwrap();
    let params = AttentionParams::new(HEADS, 0.1);

    let (normed, residual) = add_rms_norm(tensor(0.0), Some(tensor(1.0)), &norm, 1e-5);
    let q = rope(linear(normed, &weight(WIDTH, WIDTH), None), &tokens, HEAD_DIM, &table);
    reshape_and_cache(tensor(3.0), tensor(4.0), cache.layer_mut(0), &tokens);
    let o = paged_attention(q, cache.layer(0), &meta, &params);
    let y = linear_swiglu(rms_norm(o, &norm, 1e-5), &weight(2 * WIDTH, WIDTH)) + residual;
    y.into_data().try_to_vec::<f32>().unwrap().into_iter().map(f32::to_bits).collect()
}

#[test]
fn one_thread_and_many_give_the_same_bytes() {
    for (dtype, kv_dtype) in [
        (WeightDtype::F32, KvDtype::F32),
        (WeightDtype::Bf16, KvDtype::Bf16),
        (WeightDtype::Bf16, KvDtype::Int8),
    ] {
        let on = |threads: usize| {
            let pool = ThreadPool::new(threads, false).unwrap();
            pool.install(|| layer(dtype, kv_dtype))
        };
        let alone = on(1);
        assert_eq!(alone.len(), TOKENS * WIDTH);
        assert!(alone.iter().all(|bits| f32::from_bits(*bits).is_finite()));
        for threads in [2, 5] {
            assert_eq!(on(threads), alone, "{threads} threads, {dtype:?}, {kv_dtype:?}");
        }
        assert_eq!(layer(dtype, kv_dtype), alone);
    }
}
