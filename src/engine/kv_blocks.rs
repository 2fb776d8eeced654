//! The number of blocks of the KV cache.

use playhouse_actors::logic::kv_cache::KvSpec;
use playhouse_kernels::{ComputeDevice, DeviceKind, KvDtype, device_memory};

use super::StartError;
use crate::{
    config::{EngineConfig, available_memory_bytes},
    model::Model,
};

/// The memory of the KV cache where the free memory is unknown.
const UNKNOWN_MEMORY_BYTES: u64 = 2 << 30;

/// Returns the spec of the model's KV cache. All layers are one group, in which a token reads all
/// earlier tokens.
pub(super) fn spec(model: &Model, block_size: usize, dtype: KvDtype) -> KvSpec {
    let block = model.kv_cache_shape(1, block_size);
    KvSpec::full(block.num_layers, block_size, block.bytes(dtype) as u64)
}

/// Returns the number of blocks of the KV cache, including the null block: as many as its memory
/// and the device's buffers hold. All other buffers of the model must be on the device already.
///
/// # Errors
/// [`StartError::KvCacheTooSmall`] if they do not hold one request of full length.
pub(super) fn count(
    config: &EngineConfig,
    model: &Model,
    spec: &KvSpec,
    dtype: KvDtype,
    device: &ComputeDevice,
) -> Result<usize, StartError> {
    if let Some(blocks) = config.num_gpu_blocks_override {
        return Ok(blocks);
    }
    let (block_size, max_model_len) = (spec.block_size, model.max_model_len);
    let block = model.kv_cache_shape(1, block_size);
    let block_bytes = spec.block_bytes().max(1);
    let budget_bytes =
        config.kv_cache_budget_bytes(free(config, model, device), block_bytes, max_model_len);
    let in_budget = usize::try_from(budget_bytes / block_bytes).unwrap_or(usize::MAX);
    let in_buffers = device_memory(&device.device)
        .map_or(usize::MAX, |memory| block.max_num_blocks(dtype, memory.max_buffer_bytes));
    let num_blocks = in_budget.min(in_buffers);
    if num_blocks < in_budget {
        let device = &device.id;
        tracing::info!(device, num_blocks, in_budget, "the largest buffer bounds the KV cache");
    }
    let needed_blocks = max_model_len.div_ceil(block_size) + 1;
    if num_blocks < needed_blocks {
        return Err(StartError::KvCacheTooSmall {
            num_blocks,
            block_size,
            budget_bytes: budget_bytes.min(num_blocks as u64 * block_bytes),
            max_model_len,
            needed_blocks,
        });
    }
    Ok(num_blocks)
}

/// Returns the bytes that the KV cache may take. A device that imitates a GPU uses the machine's
/// memory.
fn free(config: &EngineConfig, model: &Model, device: &ComputeDevice) -> u64 {
    match device_memory(&device.device) {
        Some(memory) if device.kind != DeviceKind::Software => match memory.total_bytes {
            Some(total) => config.free_for_kv_cache_on_gpu(total, memory.held_bytes),
            None => UNKNOWN_MEMORY_BYTES,
        },
        _ => match available_memory_bytes() {
            Some(available) => {
                EngineConfig::free_for_kv_cache_on_cpu(available, model.mapped_bytes())
            }
            None => UNKNOWN_MEMORY_BYTES / 2,
        },
    }
}
