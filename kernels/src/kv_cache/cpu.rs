//! The CPU's arena and its write.

use burn_flex::FlexTensor;
use half::bf16;

use super::{KvCacheShape, KvLayer, KvLayout, KvStorage};
use crate::aligned::AlignedBuf;
use crate::tensors::{dense, dims2, values};
use crate::{KernelError, WeightDtype};

/// One layer's keys and values.
#[derive(Debug)]
pub(crate) struct CpuKv {
    pub(crate) layout: KvLayout,
    pub(crate) data: CpuKvData,
}

/// The two arenas, bfloat16 as bits.
#[derive(Debug)]
pub(crate) enum CpuKvData {
    F32 { keys: AlignedBuf<f32>, values: AlignedBuf<f32> },
    Bf16 { keys: AlignedBuf<u16>, values: AlignedBuf<u16> },
}

impl CpuKv {
    pub(crate) fn new(shape: &KvCacheShape, dtype: WeightDtype) -> Result<Self, KernelError> {
        const WHAT: &str = "KV cache";
        let layout = KvLayout::new(shape);
        let len = layout.num_blocks * layout.block_len();
        let data = match dtype {
            WeightDtype::F32 => CpuKvData::F32 {
                keys: AlignedBuf::zeroed(len, WHAT)?,
                values: AlignedBuf::zeroed(len, WHAT)?,
            },
            WeightDtype::Bf16 => CpuKvData::Bf16 {
                keys: AlignedBuf::zeroed(len, WHAT)?,
                values: AlignedBuf::zeroed(len, WHAT)?,
            },
        };
        Ok(Self { layout, data })
    }
}

/// Writes k and v to their slots; returns the number of tokens.
pub(crate) fn reshape_and_cache(
    k: FlexTensor,
    v: FlexTensor,
    layer: &mut KvLayer,
    slot_mapping: &[u32],
) -> usize {
    let KvStorage::Cpu(kv) = &mut layer.storage;
    let layout = kv.layout;
    let shape = [slot_mapping.len(), layout.num_kv_heads * layout.head_dim];
    assert_eq!(dims2(&k), shape, "reshape_and_cache: k");
    assert_eq!(dims2(&v), shape, "reshape_and_cache: v");
    let (k, v) = (dense(k), dense(v));
    let rows = values(&k).chunks_exact(shape[1]).zip(values(&v).chunks_exact(shape[1]));
    for ((k, v), slot) in rows.zip(slot_mapping) {
        let slot = *slot as usize;
        let (block, offset) = (slot / layout.block_size, slot % layout.block_size);
        assert!(block < layout.num_blocks, "reshape_and_cache: slot {slot} is outside the arena");
        match &mut kv.data {
            CpuKvData::F32 { keys, values } => {
                write_token(layout, block, offset, k, v, keys, values, |x| x);
            }
            CpuKvData::Bf16 { keys, values } => {
                write_token(layout, block, offset, k, v, keys, values, |x| {
                    bf16::from_f32(x).to_bits()
                });
            }
        }
    }
    slot_mapping.len()
}

/// Scatters one token's heads.
#[allow(clippy::too_many_arguments)]
fn write_token<T: Copy>(
    layout: KvLayout,
    block: usize,
    offset: usize,
    k: &[f32],
    v: &[f32],
    keys: &mut [T],
    values: &mut [T],
    round: impl Fn(f32) -> T,
) {
    let heads = k.chunks_exact(layout.head_dim).zip(v.chunks_exact(layout.head_dim));
    for (head, (k, v)) in heads.enumerate() {
        let start = layout.head_start(block, head);
        let keys = &mut keys[start..start + layout.head_len()];
        let values = &mut values[start..start + layout.head_len()];
        for d in 0..layout.head_dim {
            keys[layout.key_at(offset, d)] = round(k[d]);
            values[layout.value_at(offset, d)] = round(v[d]);
        }
    }
}
