//! An arena copied back to the host, for tests.

use cubecl::server::Handle;

use super::CubeKv;
use crate::KvCacheShape;
use crate::cube::{CHUNK_WORDS, WordFormat};

/// An arena on the host.
pub(crate) struct Stored<'a> {
    kv: &'a CubeKv,
    words: Vec<u32>,
    scales: Option<[Vec<u32>; 2]>,
}

impl<'a> Stored<'a> {
    pub(crate) fn read(kv: &'a CubeKv) -> Self {
        let client = kv.device.client();
        let read = |handle: &Handle| -> Vec<u32> {
            bytemuck::pod_collect_to_vec(&client.read_one(handle.clone()).unwrap()[..])
        };
        let scales = kv.scales.as_ref().map(|scales| [read(&scales[0]), read(&scales[1])]);
        Self { kv, words: read(&kv.arena), scales }
    }

    /// Returns one key and value in f32.
    pub(crate) fn at(&self, slot: usize, head: usize) -> [Vec<f32>; 2] {
        let KvCacheShape { num_kv_heads, head_dim, value_head_dim, block_size, .. } = self.kv.shape;
        let (form, per_chunk) = (self.kv.form(), self.kv.format.per_chunk());
        let (block, offset) = (slot / block_size, slot % block_size);
        let page = block * self.kv.page_chunks();
        let keys = page + head * block_size * form.key_chunks() + offset;
        let values = page
            + num_kv_heads * block_size * form.key_chunks()
            + (head * block_size + offset) * form.value_chunks();
        let number = |chunk: usize, d: usize| {
            let (word, shift) = self.kv.format.place(d % per_chunk);
            let bits = self.words[chunk * CHUNK_WORDS + word] >> shift;
            match self.kv.format {
                WordFormat::F32 => f32::from_bits(bits),
                WordFormat::F16 => half::f16::from_bits(bits as u16).to_f32(),
                WordFormat::Bf16 => f32::from_bits(bits << 16),
                _ => f32::from(bits as u8 as i8),
            }
        };
        let scale = |which: usize| {
            let at = (block * num_kv_heads + head) * block_size + offset;
            self.scales.as_ref().map_or(1.0, |scales| f32::from_bits(scales[which][at]))
        };
        let key = |d: usize| number(keys + d / per_chunk * block_size, d) * scale(0);
        let value = |d: usize| match form.values_in_keys {
            true => key(d),
            false => number(values + d / per_chunk, d) * scale(1),
        };
        [(0..head_dim).map(key).collect(), (0..value_head_dim).map(value).collect()]
    }
}
