//! The CPU's arena and its write.

use burn_flex::FlexTensor;

use super::{KvCacheShape, KvLayer, KvLayout, KvStorage};
use crate::aligned::AlignedBuf;
use crate::simd::Element;
use crate::tensors::{dense, dims2, values};
use crate::threads::{SharedMut, for_each_piece};
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

    /// Writes k and v, row-major `[slots, num_kv_heads * head_dim]`, to their slots, a head a piece.
    fn write(&mut self, layout: &KvLayout, k: &[f32], v: &[f32], slots: &[u32]) {
        let (keys_len, values_len) = (layout.keys_len(), layout.values_len());
        let (keys, values) = (SharedMut::new(&mut self.keys), SharedMut::new(&mut self.values));
        let (heads, dim) = (layout.num_kv_heads, layout.head_dim);
        for_each_piece(heads, 2 * k.len(), |head| {
            for (t, slot) in slots.iter().enumerate() {
                let (block, offset) =
                    (*slot as usize / layout.block_size, *slot as usize % layout.block_size);
                let (index, row) = (layout.head_index(block, head), (t * heads + head) * dim);
                // SAFETY: each piece takes the keys and values of its own head.
                let (keys, values) = unsafe {
                    (
                        keys.slice(index * keys_len, keys_len),
                        values.slice(index * values_len + layout.value_at(offset, 0), dim),
                    )
                };
                for (d, x) in k[row..row + dim].iter().enumerate() {
                    keys[layout.key_at(E::INPUTS, offset, d)] = E::from_f32(*x);
                }
                for (value, x) in values.iter_mut().zip(&v[row..row + dim]) {
                    *value = E::from_f32(*x);
                }
            }
        });
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
    let num_slots = layout.num_blocks * layout.block_size;
    for slot in slot_mapping {
        assert!((*slot as usize) < num_slots, "reshape_and_cache: slot {slot} of {num_slots}");
    }
    let (k, v) = (dense(k), dense(v));
    let (k, v) = (values(&k), values(&v));
    match &mut kv.data {
        CpuKvData::F32(arenas) => arenas.write(&layout, k, v, slot_mapping),
        CpuKvData::Bf16(arenas) => arenas.write(&layout, k, v, slot_mapping),
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
