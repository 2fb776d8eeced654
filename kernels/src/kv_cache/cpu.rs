//! The CPU's arena, and the writes to it.

use std::ops::Range;

use burn_flex::FlexTensor;

use super::{KvCacheShape, KvDtype, KvElement, KvLayer, KvLayout};
use crate::KernelError;
use crate::aligned::AlignedBuf;
use crate::shared_memory::SharedArena;
use crate::simd::{Isa, Kernel, Simd};
use crate::tensors::{dense, dims2, values};
use crate::threads::{SharedMut, for_each_piece};
use crate::workspace::give_back;

/// One layer's keys and values.
#[derive(Debug)]
pub(crate) struct CpuKv {
    shape: KvCacheShape,
    pub(crate) layout: KvLayout,
    pub(crate) data: CpuKvData,
}

/// The arenas in each format.
#[derive(Debug)]
pub(crate) enum CpuKvData {
    F32(Arenas<f32>),
    /// bfloat16 bits.
    Bf16(Arenas<u16>),
    Int8(Arenas<i8>),
}

/// Pages of keys and values, or of states, laid out as [`KvLayout`] says.
#[derive(Debug)]
pub(crate) struct Arenas<E: KvElement> {
    pages: AlignedBuf<E>,
}

/// The keys or the values of one head in one block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeadBlock<'a, E> {
    pub(crate) elements: &'a [E],
    /// One scale an offset; empty where the format has none.
    pub(crate) scales: &'a [f32],
}

impl CpuKv {
    /// Allocates an empty arena, or takes one from `memory` with its content.
    pub(crate) fn new(
        shape: &KvCacheShape,
        dtype: KvDtype,
        memory: Option<&mut SharedArena>,
    ) -> Result<Self, KernelError> {
        let layout = KvLayout::new(shape);
        let data = match dtype {
            KvDtype::F32 => CpuKvData::F32(Arenas::new(&layout, memory)?),
            KvDtype::F16 => return Err(KernelError::not_on_cpu("KV cache", "float16")),
            KvDtype::Bf16 => CpuKvData::Bf16(Arenas::new(&layout, memory)?),
            KvDtype::Int8 => CpuKvData::Int8(Arenas::new(&layout, memory)?),
        };
        Ok(Self { shape: *shape, layout, data })
    }

    /// Returns the number of tokens of a block.
    pub(crate) fn block_size(&self) -> usize {
        self.layout.block_size
    }

    /// Returns the pages as those of a state.
    pub(crate) fn states(&mut self) -> StatePages<'_> {
        let (layout, state_len) = (&self.layout, self.shape.state_len);
        let (floats, stride) = match &mut self.data {
            CpuKvData::F32(arenas) => arenas.as_floats(layout),
            CpuKvData::Bf16(arenas) => arenas.as_floats(layout),
            CpuKvData::Int8(arenas) => arenas.as_floats(layout),
        };
        StatePages { floats: SharedMut::new(floats), stride, state_len }
    }
}

/// The pages of one layer whose blocks have a state each: `[num_blocks, state_len]` f32, whatever
/// the format of keys and values is.
pub(crate) struct StatePages<'a> {
    floats: SharedMut<'a, f32>,
    /// Number of f32 from one page to the next.
    stride: usize,
    state_len: usize,
}

impl StatePages<'_> {
    /// Returns a part of the state of `block`, to be written.
    ///
    /// # Safety
    /// No other live reference may overlap the part.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn part_mut(&self, block: u32, part: &Range<usize>) -> &mut [f32] {
        // SAFETY: by the contract.
        unsafe { self.floats.slice(self.start(block, part), part.len()) }
    }

    /// Returns a part of the state of `block`.
    ///
    /// # Safety
    /// Nothing may write to the part while the reference lives.
    pub(crate) unsafe fn part(&self, block: u32, part: &Range<usize>) -> &[f32] {
        // SAFETY: by the contract.
        unsafe { self.floats.shared(self.start(block, part), part.len()) }
    }

    fn start(&self, block: u32, part: &Range<usize>) -> usize {
        assert!(part.end <= self.state_len, "a state of {} numbers: {part:?}", self.state_len);
        block as usize * self.stride + part.start
    }
}

impl<E: KvElement> Arenas<E> {
    fn new(layout: &KvLayout, memory: Option<&mut SharedArena>) -> Result<Self, KernelError> {
        let len = layout.num_blocks.saturating_mul(layout.page_len::<E>());
        let pages = match memory {
            Some(memory) => memory.take(len, "KV cache")?,
            None => AlignedBuf::zeroed(len, "KV cache")?,
        };
        Ok(Self { pages })
    }

    /// Returns one head's keys in one block.
    #[inline(always)]
    pub(crate) fn keys(&self, layout: &KvLayout, block: usize, head: usize) -> HeadBlock<'_, E> {
        let (len, scales) = (layout.keys_len(), layout.key_scales_len::<E>());
        let start = layout.keys_at::<E>(block, head);
        HeadBlock::new(&self.pages[start..start + len + scales], len)
    }

    /// Returns one head's values in one block: none if they are parts of keys.
    #[inline(always)]
    pub(crate) fn values(&self, layout: &KvLayout, block: usize, head: usize) -> HeadBlock<'_, E> {
        let (len, scales) = (layout.values_len(), layout.value_scales_len::<E>());
        let start = layout.values_at::<E>(block, head);
        HeadBlock::new(&self.pages[start..start + len + scales], len)
    }

    /// Returns a writer for pieces that each write heads of their own.
    pub(crate) fn writer<'a>(&'a mut self, layout: &'a KvLayout) -> Writer<'a, E> {
        Writer { layout, pages: SharedMut::new(&mut self.pages) }
    }

    /// Returns all pages as f32, and the number of f32 in a page.
    fn as_floats(&mut self, layout: &KvLayout) -> (&mut [f32], usize) {
        let stride = layout.page_len::<E>() * size_of::<E>() / size_of::<f32>();
        (bytemuck::cast_slice_mut(&mut self.pages), stride)
    }
}

impl<'a, E: KvElement> HeadBlock<'a, E> {
    /// Splits `data` into `len` elements and the scales behind them.
    #[inline(always)]
    fn new(data: &'a [E], len: usize) -> Self {
        let (elements, scales) = data.split_at(len);
        Self { elements, scales: bytemuck::cast_slice(scales) }
    }
}

/// Writes keys and values to slots.
pub(crate) struct Writer<'a, E> {
    layout: &'a KvLayout,
    pages: SharedMut<'a, E>,
}

impl<E: KvElement> Writer<'_, E> {
    /// Writes the key `row` `[head_dim]` of one token and head.
    ///
    /// # Safety
    /// No other thread may be writing keys of the same head.
    #[inline(always)]
    pub(crate) unsafe fn write_key(&self, slot: u32, head: usize, row: &[f32]) {
        let (layout, coding) = (self.layout, E::coding(row));
        let (block, offset) = self.place(slot);
        let (len, scales) = (layout.keys_len(), layout.key_scales_len::<E>());
        let start = layout.keys_at::<E>(block, head);
        // SAFETY: by the contract, no other thread writes this head's keys.
        let keys = unsafe { self.pages.slice(start, len + scales) };
        for (i, dims) in row.chunks(E::INPUTS).enumerate() {
            let at = (i * layout.lanes + offset) * E::INPUTS;
            for (key, x) in keys[at..at + dims.len()].iter_mut().zip(dims) {
                *key = E::encode(*x, coding);
            }
        }
        if E::SCALE > 0 {
            bytemuck::cast_slice_mut(&mut keys[len..])[offset] = coding.scale;
        }
    }

    /// Writes the value `row` `[value_head_dim]` of one token and head.
    ///
    /// # Safety
    /// No other thread may be writing values of the same head.
    #[inline(always)]
    pub(crate) unsafe fn write_value(&self, slot: u32, head: usize, row: &[f32]) {
        let (layout, coding) = (self.layout, E::coding(row));
        let (block, offset) = self.place(slot);
        let (len, scales) = (layout.values_len(), layout.value_scales_len::<E>());
        let start = layout.values_at::<E>(block, head);
        // SAFETY: by the contract, no other thread writes this head's values.
        let values = unsafe { self.pages.slice(start, len + scales) };
        for (value, x) in values[layout.value_at(offset, 0)..].iter_mut().zip(row) {
            *value = E::encode(*x, coding);
        }
        if E::SCALE > 0 {
            bytemuck::cast_slice_mut(&mut values[len..])[offset] = coding.scale;
        }
    }

    /// Returns the block and the offset of a slot.
    #[inline(always)]
    fn place(&self, slot: u32) -> (usize, usize) {
        let block_size = self.layout.block_size;
        (slot as usize / block_size, slot as usize % block_size)
    }
}

/// Writes k and v to their slots. Returns the number of tokens.
pub(crate) fn reshape_and_cache(
    k: FlexTensor,
    v: FlexTensor,
    layer: &mut KvLayer,
    slot_mapping: &[u32],
) -> usize {
    let kv = layer.cpu_mut();
    let (tokens, heads) = (slot_mapping.len(), kv.layout.num_kv_heads);
    let of_keys = [tokens, heads * kv.layout.head_dim];
    let of_values = [tokens, heads * kv.layout.value_head_dim];
    assert!(!kv.layout.values_in_keys, "reshape_and_cache: values are parts of keys");
    assert_eq!(dims2(&k), of_keys, "reshape_and_cache: shape of k");
    assert_eq!(dims2(&v), of_values, "reshape_and_cache: shape of v");
    kv.shape.check_slots(slot_mapping);
    let (k, v) = (dense(k), dense(v));
    let rows = [values(&k), values(&v)];
    kv.write(rows, slot_mapping);
    give_back(k);
    give_back(v);
    tokens
}

/// Writes k to its slots, where values are parts of keys. Returns the number of tokens.
pub(crate) fn cache_keys(k: FlexTensor, layer: &mut KvLayer, slot_mapping: &[u32]) -> usize {
    let kv = layer.cpu_mut();
    let tokens = slot_mapping.len();
    let of_keys = [tokens, kv.layout.num_kv_heads * kv.layout.head_dim];
    assert!(kv.layout.values_in_keys, "cache_keys: values are stored beside keys");
    assert_eq!(dims2(&k), of_keys, "cache_keys: shape of k");
    kv.shape.check_slots(slot_mapping);
    let k = dense(k);
    kv.write([values(&k), &[]], slot_mapping);
    give_back(k);
    tokens
}

impl CpuKv {
    /// Writes keys and values as [`write`] does.
    pub(crate) fn write(&mut self, rows: [&[f32]; 2], slots: &[u32]) {
        let layout = &self.layout;
        match &mut self.data {
            CpuKvData::F32(arenas) => write(&arenas.writer(layout), rows, slots),
            CpuKvData::Bf16(arenas) => write(&arenas.writer(layout), rows, slots),
            CpuKvData::Int8(arenas) => write(&arenas.writer(layout), rows, slots),
        }
    }
}

/// Writes keys and values, row-major: `[slots, num_kv_heads * head_dim]` and
/// `[slots, num_kv_heads * value_head_dim]`. The keys of a head are one piece, and its values
/// another, unless they are parts of keys.
fn write<E: KvElement>(writer: &Writer<'_, E>, rows: [&[f32]; 2], slots: &[u32]) {
    let heads = writer.layout.num_kv_heads;
    let pieces = if writer.layout.values_in_keys { heads } else { 2 * heads };
    for_each_piece(pieces, rows[0].len() + rows[1].len(), |piece| {
        let (rows, head) = (rows[piece / heads], piece % heads);
        Isa::active().run(WriteHead { writer, is_key: piece < heads, head, rows, slots });
    });
}

/// The keys or the values of one head.
struct WriteHead<'a, E> {
    writer: &'a Writer<'a, E>,
    is_key: bool,
    head: usize,
    rows: &'a [f32],
    slots: &'a [u32],
}

impl<E: KvElement> Kernel for WriteHead<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let KvLayout { num_kv_heads: heads, head_dim, value_head_dim, .. } = *self.writer.layout;
        let dim = if self.is_key { head_dim } else { value_head_dim };
        for (t, slot) in self.slots.iter().enumerate() {
            let row = &self.rows[(t * heads + self.head) * dim..][..dim];
            // SAFETY: no other thread has this piece.
            unsafe {
                match self.is_key {
                    true => self.writer.write_key(*slot, self.head, row),
                    false => self.writer.write_value(*slot, self.head, row),
                }
            }
        }
    }
}

/// Returns one stored key and value in f32, for tests.
#[cfg(test)]
pub(crate) fn stored(layer: &KvLayer, block: usize, offset: usize, head: usize) -> [Vec<f32>; 2] {
    fn read<E: KvElement>(
        arenas: &Arenas<E>,
        layout: &KvLayout,
        (block, offset, head): (usize, usize, usize),
        widen: impl Fn(E) -> f32,
    ) -> [Vec<f32>; 2] {
        let (keys, values) = (arenas.keys(layout, block, head), arenas.values(layout, block, head));
        let scaled = |of: HeadBlock<'_, E>, at: usize| {
            widen(of.elements[at]) * of.scales.get(offset).copied().unwrap_or(1.0)
        };
        let key: Vec<f32> =
            (0..layout.head_dim).map(|d| scaled(keys, layout.key_at::<E>(offset, d))).collect();
        let value = match layout.values_in_keys {
            true => key[..layout.value_head_dim].to_vec(),
            false => (0..layout.value_head_dim)
                .map(|d| scaled(values, layout.value_at(offset, d)))
                .collect(),
        };
        [key, value]
    }
    let kv = layer.cpu();
    let at = (block, offset, head);
    match &kv.data {
        CpuKvData::F32(arenas) => read(arenas, &kv.layout, at, |x| x),
        CpuKvData::Bf16(arenas) => {
            read(arenas, &kv.layout, at, |bits| half::bf16::from_bits(bits).to_f32())
        }
        CpuKvData::Int8(arenas) => read(arenas, &kv.layout, at, f32::from),
    }
}
