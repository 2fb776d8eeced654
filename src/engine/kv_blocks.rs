//! The number of blocks of the KV cache.

use playhouse_actors::logic::kv_cache::{Demand, KvCacheConfig, KvKind, KvSpec};
use playhouse_kernels::{ComputeDevice, DeviceKind, KvCacheShape, KvDtype, device_memory};

use super::StartError;
use crate::{
    config::{EngineConfig, available_memory_bytes},
    model::{KvWindow, Model},
};

/// The memory of the KV cache where the free memory is unknown.
const UNKNOWN_MEMORY_BYTES: u64 = 2 << 30;

/// Bytes of keys and values a token that a layer of a model without attention is given, to choose
/// its block size: those of 8 heads of 128 elements in bfloat16.
const TOKEN_BYTES: usize = 2 * 8 * 128 * 2;

/// Blocks of a model that keeps nothing of its prompts: the least that a KV cache manager has. They
/// take no memory.
const BLOCKS_MIN: usize = 2;

/// Returns the spec of the model's KV cache.
pub(super) fn spec(model: &Model, configured: usize, dtype: KvDtype) -> KvSpec {
    let layer =
        |block_size: usize| KvCacheShape { num_layers: 1, ..model.kv_cache_shape(1, block_size) };
    let keys_only = |block_size: usize| KvCacheShape { state_len: 0, ..layer(block_size) };
    let block_size = block_size(configured, layer(1).state_len * size_of::<f32>(), |block_size| {
        match model.kv_layers.has_no_keys() {
            true => block_size * TOKEN_BYTES,
            false => keys_only(block_size).bytes(dtype),
        }
    });
    let kinds: Vec<_> =
        model.kv_layers.windows.iter().map(|window| kind(*window, model.max_model_len)).collect();
    KvSpec::of_layers(&kinds, block_size, layer(block_size).bytes(dtype) as u64)
}

/// Returns the least multiple of the `configured` block size at which a page of keys and values is
/// no smaller than a state. `page_bytes` returns the size of such a page. This is vLLM's rule: all
/// pages are equal, and no memory is lost in those of attention. In a model without attention, a
/// larger block also means fewer snapshots of its state.
fn block_size(configured: usize, state_bytes: usize, page_bytes: impl Fn(usize) -> usize) -> usize {
    let is_enough = |multiple: &usize| page_bytes(multiple * configured) >= state_bytes;
    if is_enough(&1) {
        return configured;
    }
    // Blocks of few tokens are padded, so more of them than this may be needed, but never fewer.
    let first = state_bytes / page_bytes(configured).max(1);
    let block_size = configured * (first.max(1)..).find(is_enough).unwrap_or(1);
    tracing::info!(
        configured,
        block_size,
        "blocks have more tokens than configured, so that a block of attention is as large as a state"
    );
    block_size
}

/// Returns the tokens that a layer reads. A window that is longer than any context is none.
fn kind(window: KvWindow, max_model_len: usize) -> KvKind {
    match window {
        KvWindow::Sliding(tokens) if (tokens as usize) < max_model_len => {
            KvKind::Sliding { window: tokens as usize }
        }
        KvWindow::Chunked(tokens) if (tokens as usize) < max_model_len => {
            KvKind::ChunkedLocal { chunk: tokens as usize }
        }
        KvWindow::State(_) => KvKind::State,
        KvWindow::Full | KvWindow::Sliding(_) | KvWindow::Chunked(_) => KvKind::Full,
    }
}

/// Returns the number of blocks that a request of full length holds at most.
fn blocks_a_request(config: &EngineConfig, model: &Model, spec: &KvSpec) -> usize {
    // A step may be planned while another is computed.
    let num_step_tokens = config.max_num_batched_tokens.saturating_mul(2);
    let cache = KvCacheConfig { num_blocks: u32::MAX, num_step_tokens, spec: spec.clone() };
    Demand::new(&cache).num_blocks_for(model.max_model_len)
}

/// Returns the number of blocks of the KV cache, including the null block: as many as its memory
/// and the device's buffers hold. A draft model needs further `draft_block_bytes` for each block.
/// All other buffers of the models must be on the device already.
///
/// # Errors
/// [`StartError::KvCacheTooSmall`] if they do not hold one request of full length.
pub(super) fn count(
    config: &EngineConfig,
    model: &Model,
    spec: &KvSpec,
    draft_block_bytes: u64,
    dtype: KvDtype,
    device: &ComputeDevice,
) -> Result<usize, StartError> {
    if spec.groups.is_empty() {
        return Ok(BLOCKS_MIN);
    }
    if let Some(blocks) = config.num_gpu_blocks_override {
        return Ok(blocks);
    }
    let (block_size, max_model_len) = (spec.block_size, model.max_model_len);
    let block = model.kv_cache_shape(1, block_size);
    let block_bytes = spec.block_bytes().max(1) + draft_block_bytes;
    let blocks_a_request = blocks_a_request(config, model, spec);
    // The other engines of the server take as much.
    let num_engines = config.data_parallel_size.max(1) as u64;
    let budget_bytes = match config.kv_cache_memory_bytes {
        Some(bytes) => bytes / num_engines,
        None => {
            let free = free(config, model, device);
            config.kv_cache_budget_bytes(free, block_bytes, blocks_a_request)
        }
    };
    let in_budget = usize::try_from(budget_bytes / block_bytes).unwrap_or(usize::MAX);
    let in_buffers = device_memory(&device.device)
        .map_or(usize::MAX, |memory| block.max_num_blocks(dtype, memory.max_buffer_bytes));
    let num_blocks = in_budget.min(in_buffers);
    if num_blocks < in_budget {
        let device = &device.id;
        tracing::info!(device, num_blocks, in_budget, "the largest buffer bounds the KV cache");
    }
    let needed_blocks = blocks_a_request.saturating_add(1);
    if num_blocks < needed_blocks {
        return Err(StartError::KvCacheTooSmall {
            num_blocks,
            block_size,
            budget_bytes: budget_bytes.min(num_blocks as u64 * block_bytes),
            max_model_len,
            needed_blocks,
            num_engines: config.data_parallel_size,
        });
    }
    Ok(num_blocks)
}

/// Returns the bytes that the KV cache of one engine may take. A device that imitates a GPU uses
/// the machine's memory.
fn free(config: &EngineConfig, model: &Model, device: &ComputeDevice) -> u64 {
    // Each engine holds the weights on a GPU, and maps the same ones on a CPU.
    let num_engines = config.data_parallel_size.max(1);
    let share = config.gpu_memory_utilization / num_engines as f64;
    let config = EngineConfig { gpu_memory_utilization: share, ..config.clone() };
    match device_memory(&device.device) {
        Some(memory) if device.kind != DeviceKind::Software => match memory.total_bytes {
            Some(total) => config.free_for_kv_cache_on_gpu(total, memory.held_bytes),
            None => UNKNOWN_MEMORY_BYTES,
        },
        _ => {
            let free = match available_memory_bytes() {
                Some(available) => {
                    EngineConfig::free_for_kv_cache_on_cpu(available, model.mapped_bytes())
                }
                None => UNKNOWN_MEMORY_BYTES / 2,
            };
            free / num_engines as u64
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_grows_to_the_size_of_a_state() {
        let page = |block_size: usize| block_size * 10;
        assert_eq!([0, 160].map(|state| block_size(16, state, page)), [16, 16]);
        assert_eq!([161, 320, 1_000].map(|state| block_size(16, state, page)), [32, 32, 112]);
        // Blocks are padded to 16 tokens.
        let padded = |block_size: usize| block_size.next_multiple_of(16) * 10;
        assert_eq!([100, 160, 161, 321].map(|s| block_size(3, s, padded)), [3, 3, 18, 33]);
    }
}
