//! A GPU's first step: kernels are compiled before a request waits for them, a device that cannot run
//! them is known at once, and memory of activations is taken before the KV cache takes the rest.

use playhouse_kernels::{AttentionMetadata, ComputeDevice, KvCache, KvDtype, device_memory};

use super::StartError;
use crate::{
    config::EngineConfig,
    model::{CausalLm, ForwardBatch},
};

/// Requests that a software device begins with: it is slow, and its memory is the machine's.
const SOFTWARE_REQUESTS: usize = 2;

/// Runs the largest step that the settings allow; on the CPU, where there is nothing to gain, none.
///
/// # Errors
/// What the device says.
pub(super) fn run(
    config: &EngineConfig,
    model: &dyn CausalLm,
    dtype: KvDtype,
    device: &ComputeDevice,
) -> Result<(), StartError> {
    if device_memory(&device.device).is_none() {
        return Ok(());
    }
    let tokens_a_request = config.block_size.min(model.config().max_model_len);
    let requests = match device.is_software {
        true => SOFTWARE_REQUESTS,
        false => config.max_num_batched_tokens.div_ceil(tokens_a_request),
    };
    let mut kv_cache =
        KvCache::new(model.kv_cache_shape(1, config.block_size), dtype, &device.device)?;
    let (token_ids, meta) = batch(requests, tokens_a_request);
    let last_rows: Vec<u32> = meta.query_start_loc[1..].iter().map(|end| end - 1).collect();
    let rows = &last_rows[..requests.min(config.max_num_seqs)];
    let hidden = model.forward(&ForwardBatch { token_ids: &token_ids, meta: &meta }, &mut kv_cache);
    let logits = model.logits(hidden, rows).try_into_data();
    let failed = |why: String| StartError::WarmUp { device: device.id.clone(), why };
    let logits = logits.map_err(|error| failed(error.to_string()))?;
    let logits = logits.as_slice::<f32>().map_err(|error| failed(format!("{error:?}")))?;
    match logits.iter().all(|logit| logit.is_finite()) {
        true => Ok(()),
        false => Err(failed("its logits are not numbers".to_owned())),
    }
}

/// Requests that all write the same to one block.
fn batch(requests: usize, tokens_a_request: usize) -> (Vec<u32>, AttentionMetadata) {
    let tokens = tokens_a_request as u32;
    let repeated = || (0..requests).flat_map(|_| 0..tokens).collect::<Vec<_>>();
    let meta = AttentionMetadata {
        query_start_loc: (0..=requests as u32).map(|request| request * tokens).collect(),
        seq_lens: vec![tokens; requests],
        block_tables: vec![vec![0]; requests],
        slot_mapping: repeated(),
        positions: repeated(),
    };
    (vec![0; requests * tokens_a_request], meta)
}

#[cfg(test)]
mod tests {
    use playhouse_kernels::KvCacheShape;

    use super::*;

    #[test]
    fn the_step_is_one_that_kernels_take() {
        let (token_ids, meta) = batch(5, 16);
        assert_eq!((token_ids.len(), meta.num_tokens(), meta.num_seqs()), (80, 80, 5));
        let (num_layers, num_blocks, block_size, num_kv_heads, head_dim) = (1, 1, 16, 1, 8);
        let shape = KvCacheShape { num_layers, num_blocks, block_size, num_kv_heads, head_dim };
        meta.validate(&shape).unwrap();
    }
}
