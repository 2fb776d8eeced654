//! A GPU's first steps. They compile kernels before a request waits for them, and show at once
//! whether the device can run them. They also take the memory of activations before the KV cache
//! takes the rest.

use burn::tensor::Tensor;
use playhouse_kernels::{
    AttentionMetadata, ComputeDevice, DeviceKind, KernelError, KvCache, KvDtype, device_memory,
    has_tensor_cores,
    sampling::{SampleError, SamplingRow, sample_tensor},
    select_rows,
};

use super::{runner::logit_rows, tuned_products::TunedProductsFile};
use crate::{
    config::EngineConfig,
    model::{Adapters, Model, Positions, Step},
};

/// Tokens of the smallest step that tensor cores may compute.
const TUNED_TOKENS_MIN: usize = 64;

/// Requests in a software device's first steps. It is slow, and its memory is the machine's.
const SOFTWARE_REQUESTS: usize = 3;

/// Runs the largest step that the settings allow, and one of a single token. If products are
/// measured, it also runs one of each size. On the CPU it runs none, because nothing is gained
/// there.
///
/// Must run on the threads and the queue of later steps, so that they find its memory. `progress`
/// receives the numbers of finished and of all steps.
///
/// # Errors
/// The device's errors, or that its results are not finite.
pub(crate) fn warm_up(
    config: &EngineConfig,
    model: &Model,
    dtype: KvDtype,
    device: &ComputeDevice,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<(), KernelError> {
    if device_memory(&device.device).is_none() {
        return Ok(());
    }
    let tokens_max = config.max_num_batched_tokens;
    let tokens = config.block_size.min(model.max_model_len).min(tokens_max);
    let requests = match device.kind {
        DeviceKind::Software => SOFTWARE_REQUESTS,
        _ => tokens_max.div_ceil(tokens),
    };
    let shape = model.kv_cache_shape(1, config.block_size);
    let mut kv_cache = KvCache::new(shape, dtype, &device.device)?;
    let rows = logit_rows(model.vocab_size).min(config.max_num_seqs);
    let mut steps = vec![(requests, tokens), (1, 1)];
    let is_tuned = config.autotune && !config.deterministic && has_tensor_cores(&device.device);
    let kept = is_tuned.then(TunedProductsFile::of_user).flatten();
    if is_tuned {
        kept.iter().for_each(TunedProductsFile::adopt);
        steps.extend(tuned_sizes(tokens_max).map(|requests| (requests, 1)));
    }
    for (done, (requests, tokens)) in steps.iter().enumerate() {
        progress(done, steps.len());
        step(model, &mut kv_cache, *requests, *tokens, rows)?;
    }
    kept.iter().for_each(TunedProductsFile::keep);
    Ok(())
}

/// Returns powers of two, the last at least `tokens_max`, because a routine is chosen for each.
/// Each is limited to `tokens_max`.
fn tuned_sizes(tokens_max: usize) -> impl Iterator<Item = usize> {
    let last = tokens_max.next_power_of_two().max(TUNED_TOKENS_MIN);
    std::iter::successors(Some(TUNED_TOKENS_MIN), |size| size.checked_mul(2))
        .take_while(move |size| *size <= last)
        .map(move |size| size.min(tokens_max))
}

/// Runs requests with so many tokens each, and draws a token, or reads the hidden state, for up
/// to `rows` of them.
fn step(
    model: &Model,
    kv_cache: &mut KvCache,
    requests: usize,
    tokens: usize,
    rows: usize,
) -> Result<(), KernelError> {
    let (token_ids, meta) = batch(requests, tokens);
    let last_rows: Vec<u32> = meta.query_start_loc[1..].iter().map(|end| end - 1).collect();
    let last_rows = &last_rows[..requests.min(rows)];
    let plain = SamplingRow { top_p: 0.9, ..SamplingRow::default() };
    let edited = SamplingRow { logit_bias: &[(0, 1.0)], num_logprobs: Some(1), ..plain.clone() };
    for row in [plain, edited] {
        let Model { backbone, lm_head, .. } = model;
        let (positions, mut shared) = (Positions::of_text(&meta), Step::new(&meta, kv_cache));
        let hidden =
            backbone.forward(backbone.embed(&token_ids, Adapters::none()), positions, &mut shared);
        let Some(lm_head) = lm_head else {
            read(hidden, last_rows)?;
            continue;
        };
        let rows = vec![row; last_rows.len()];
        let mut drawn = Vec::new();
        sample_tensor(lm_head.logits(hidden, last_rows, Adapters::none()), &rows, &mut drawn)?;
        for drawn in drawn {
            if let Err(error @ SampleError::NotFinite { .. }) = drawn {
                return Err(KernelError::Device {
                    why: error.to_string(),
                    is_out_of_memory: false,
                });
            }
        }
    }
    Ok(())
}

/// Reads rows of hidden states, as a pooler does.
fn read(hidden: Tensor<2>, rows: &[u32]) -> Result<(), KernelError> {
    let values: Vec<f32> = select_rows(hidden, rows).into_data().try_to_vec().unwrap_or_default();
    match !values.is_empty() && values.iter().all(|value| value.is_finite()) {
        true => Ok(()),
        false => {
            let why = "the hidden states of a first step are not finite".to_owned();
            Err(KernelError::Device { why, is_out_of_memory: false })
        }
    }
}

/// Returns requests that all write the same content to one block.
fn batch(requests: usize, tokens: usize) -> (Vec<u32>, AttentionMetadata) {
    let repeated = || (0..requests).flat_map(|_| 0..tokens as u32).collect::<Vec<_>>();
    let meta = AttentionMetadata {
        query_start_loc: (0..=requests).map(|request| (request * tokens) as u32).collect(),
        seq_lens: vec![tokens as u32; requests],
        block_tables: vec![vec![0]; requests],
        slot_mapping: repeated(),
        positions: repeated(),
        visible_ends: Vec::new(),
        num_guesses: Vec::new(),
    };
    (vec![0; requests * tokens], meta)
}

#[cfg(test)]
mod tests {
    use playhouse_kernels::KvCacheShape;

    use super::*;

    #[test]
    fn every_size_that_a_step_may_have_is_measured() {
        assert_eq!(Vec::from_iter(tuned_sizes(2048)), [64, 128, 256, 512, 1024, 2048]);
        assert_eq!(Vec::from_iter(tuned_sizes(300)), [64, 128, 256, 300]);
        assert_eq!(Vec::from_iter(tuned_sizes(16)), [16]);
    }

    #[test]
    fn a_step_is_one_that_kernels_take() {
        let shape = KvCacheShape {
            num_layers: 1,
            num_blocks: 1,
            block_size: 16,
            num_kv_heads: 1,
            head_dim: 8,
            value_head_dim: 8,
            values_in_keys: false,
            state_len: 0,
        };
        for (requests, tokens) in [(5, 16), (1, 1)] {
            let (token_ids, meta) = batch(requests, tokens);
            assert_eq!(token_ids.len(), requests * tokens);
            assert_eq!((meta.num_tokens(), meta.num_seqs()), (requests * tokens, requests));
            meta.validate(&shape).unwrap();
        }
    }
}
