//! The CPU's arena and its write.

use burn_flex::FlexTensor;

use super::{KvCacheShape, KvLayer, KvLayout, KvStorage};
use crate::aligned::AlignedBuf;
use crate::simd::Element;
use crate::tensors::{dense, dims2, values};
use crate::{KernelError, WeightDtype};

/// One layer's keys and values.
#[derive(Debug)]
pub(crate) struct CpuKv {
    pub(crate) layout: KvLayout,
    pub(crate) data: CpuKvData,
}

/// The arenas in either format.
#[derive(Debug)]
pub(crate) enum CpuKvData {
    F32(Arenas<f32>),
    /// bfloat16 bits.
    Bf16(Arenas<u16>),
}

/// Keys and values, laid out as [`KvLayout`] says.
#[derive(Debug)]
pub(crate) struct Arenas<E: Element> {
    keys: AlignedBuf<E>,
    values: AlignedBuf<E>,
}

impl CpuKv {
    pub(crate) fn new(shape: &KvCacheShape, dtype: WeightDtype) -> Result<Self, KernelError> {
        let layout = KvLayout::new(shape);
        let data = match dtype {
            WeightDtype::F32 => CpuKvData::F32(Arenas::new(&layout)?),
            WeightDtype::Bf16 => CpuKvData::Bf16(Arenas::new(&layout)?),
        };
        Ok(Self { layout, data })
    }
}

impl<E: Element> Arenas<E> {
    fn new(layout: &KvLayout) -> Result<Self, KernelError> {
        const WHAT: &str = "KV cache";
        let heads = layout.num_blocks * layout.num_kv_heads;
        Ok(Self {
            keys: AlignedBuf::zeroed(heads * layout.keys_len(), WHAT)?,
            values: AlignedBuf::zeroed(heads * layout.values_len(), WHAT)?,
        })
    }

    /// One head's keys in one block.
    #[inline]
    pub(crate) fn keys(&self, layout: &KvLayout, block: usize, kv_head: usize) -> &[E] {
        let len = layout.keys_len();
        &self.keys[layout.head_index(block, kv_head) * len..][..len]
    }

    /// One head's values in one block.
    #[inline]
    pub(crate) fn values(&self, layout: &KvLayout, block: usize, kv_head: usize) -> &[E] {
        let len = layout.values_len();
        &self.values[layout.head_index(block, kv_head) * len..][..len]
    }

    /// Scatters one token's heads to `offset` of `block`.
    fn write(&mut self, layout: &KvLayout, block: usize, offset: usize, k: &[f32], v: &[f32]) {
        let (keys_len, values_len) = (layout.keys_len(), layout.values_len());
        let heads = k.chunks_exact(layout.head_dim).zip(v.chunks_exact(layout.head_dim));
        for (head, (k, v)) in heads.enumerate() {
            let index = layout.head_index(block, head);
            let keys = &mut self.keys[index * keys_len..][..keys_len];
            for (d, x) in k.iter().enumerate() {
                keys[layout.key_at(E::INPUTS, offset, d)] = E::from_f32(*x);
            }
            let start = index * values_len + layout.value_at(offset, 0);
            for (value, x) in self.values[start..][..layout.head_dim].iter_mut().zip(v) {
                *value = E::from_f32(*x);
            }
        }
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
    assert_eq!(dims2(&k), shape, "reshape_and_cache: shape of k");
    assert_eq!(dims2(&v), shape, "reshape_and_cache: shape of v");
    let (k, v) = (dense(k), dense(v));
    let rows = values(&k).chunks_exact(shape[1]).zip(values(&v).chunks_exact(shape[1]));
    for ((k, v), slot) in rows.zip(slot_mapping) {
        let slot = *slot as usize;
        let (block, offset) = (slot / layout.block_size, slot % layout.block_size);
        assert!(block < layout.num_blocks, "reshape_and_cache: slot {slot} is outside the arena");
        match &mut kv.data {
            CpuKvData::F32(arenas) => arenas.write(&layout, block, offset, k, v),
            CpuKvData::Bf16(arenas) => arenas.write(&layout, block, offset, k, v),
        }
    }
    slot_mapping.len()
}

/// One stored key and value in f32, for tests.
#[cfg(test)]
pub(crate) fn stored(layer: &KvLayer, block: usize, offset: usize, head: usize) -> [Vec<f32>; 2] {
    fn read<E: Element>(
        arenas: &Arenas<E>,
        layout: &KvLayout,
        (block, offset, head): (usize, usize, usize),
        widen: impl Fn(E) -> f32,
    ) -> [Vec<f32>; 2] {
        let keys = arenas.keys(layout, block, head);
        let values = arenas.values(layout, block, head);
        let dims = || 0..layout.head_dim;
        [
            dims().map(|d| widen(keys[layout.key_at(E::INPUTS, offset, d)])).collect(),
            dims().map(|d| widen(values[layout.value_at(offset, d)])).collect(),
        ]
    }
    let KvStorage::Cpu(kv) = layer.storage();
    let at = (block, offset, head);
    match &kv.data {
        CpuKvData::F32(arenas) => read(arenas, &kv.layout, at, |x| x),
        CpuKvData::Bf16(arenas) => {
            read(arenas, &kv.layout, at, |bits| half::bf16::from_bits(bits).to_f32())
        }
    }
}
