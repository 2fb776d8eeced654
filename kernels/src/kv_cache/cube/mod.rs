//! A GPU's arena, and the writes to it.
//!
//! A layer's arena is one buffer of chunks of four words, a *page* a block. The keys of a page are
//! `[kv_head][chunk][offset]`. Neighbouring units take one key each, so they load neighbouring
//! chunks. Its values follow, `[kv_head][offset][chunk]`. Neighbouring units take neighbouring
//! dimensions, so they load neighbouring chunks, too. Where values are parts of keys, no values
//! follow. The scales of int8 are f32, `[block][kv_head][offset]`, in buffers of their own.
//!
//! In a layer with a state, a page is the state instead, `[state_len]` f32. Pages have room for the
//! larger of both, so that groups of layers of both kinds share them.

mod pages;
#[cfg(test)]
mod stored;
mod write;

use cubecl::server::Handle;

use super::{KvCacheShape, KvDtype, KvLayer, KvStorage};
use crate::KernelError;
use crate::cube::{CHUNK_WORDS, WordFormat, device_name, reserved};
use crate::paged_attention::cube::takes_heads;
pub(crate) use pages::{KvForm, Pages, PagesLaunch};
#[cfg(test)]
pub(crate) use stored::Stored;
pub(crate) use write::{cache_keys, coded, reshape_and_cache, write_rows};

const WHAT: &str = "KV cache";

/// One layer's keys and values, or its states.
#[derive(Debug)]
pub(crate) struct CubeKv {
    #[cfg(test)]
    device: cubecl::Device,
    pub(crate) shape: KvCacheShape,
    pub(crate) format: WordFormat,
    /// Bytes of a page.
    page_bytes: usize,
    pub(crate) arena: Handle,
    /// The scales of keys and of values, if the format has scales. Values that are parts of keys
    /// have the scales of their keys.
    pub(crate) scales: Option<[Handle; 2]>,
}

impl From<KvDtype> for WordFormat {
    fn from(dtype: KvDtype) -> Self {
        match dtype {
            KvDtype::F32 => Self::F32,
            KvDtype::F16 => Self::F16,
            KvDtype::Bf16 => Self::Bf16,
            KvDtype::Int8 => Self::Int8,
        }
    }
}

impl CubeKv {
    /// Returns the arena of one layer. Its content is undefined until it is written.
    pub(crate) fn new(
        shape: &KvCacheShape,
        dtype: KvDtype,
        device: &cubecl::Device,
    ) -> Result<Self, KernelError> {
        let (client, format) = (device.client(), WordFormat::from(dtype));
        let form = KvForm::new(shape, format);
        let shared_bytes = client.properties().hardware.max_shared_memory_size;
        let dims = [("head_dim", shape.head_dim), ("value_head_dim", shape.value_head_dim)];
        for (field, dim) in dims {
            if !dim.is_multiple_of(format.per_chunk()) || !takes_heads(form, shared_bytes) {
                return Err(KernelError::UnsupportedForm {
                    what: WHAT,
                    form: format!("{field} {dim} in {dtype}"),
                    device: device_name(device),
                });
            }
        }
        let page_bytes = shape.gpu_page_bytes(dtype);
        let arena_bytes = shape.num_blocks * page_bytes;
        // Kernels count the numbers of a state in 32 bits.
        if shape.state_len > 0 && arena_bytes as u64 > KvCacheShape::STATE_ARENA_BYTES_MAX {
            let (bytes, largest) = (arena_bytes as u64, KvCacheShape::STATE_ARENA_BYTES_MAX);
            return Err(KernelError::BufferTooLarge { what: WHAT, bytes, largest });
        }
        let arena = reserved(&client, arena_bytes, WHAT)?;
        let tokens = shape.num_slots() * shape.num_kv_heads.max(1);
        let scales = || reserved(&client, tokens * size_of::<f32>(), WHAT);
        let scales = match dtype {
            KvDtype::Int8 if shape.values_in_keys => {
                let of_keys = scales()?;
                Some([of_keys.clone(), of_keys])
            }
            KvDtype::Int8 => Some([scales()?, scales()?]),
            KvDtype::F32 | KvDtype::F16 | KvDtype::Bf16 => None,
        };
        Ok(Self {
            #[cfg(test)]
            device: device.clone(),
            shape: *shape,
            format,
            page_bytes,
            arena,
            scales,
        })
    }

    /// Returns the properties that kernels are compiled for.
    pub(crate) fn form(&self) -> KvForm {
        KvForm::new(&self.shape, self.format)
    }

    /// Returns the argument of kernels that find keys and values.
    pub(crate) fn pages(&self) -> PagesLaunch {
        let KvCacheShape { block_size, num_kv_heads, .. } = self.shape;
        let form = self.form();
        let page = self.page_chunks();
        let values_at = num_kv_heads * block_size * form.key_chunks();
        PagesLaunch::new(block_size, num_kv_heads, page, values_at, form)
    }

    /// Returns the chunks of a page.
    fn page_chunks(&self) -> usize {
        self.page_bytes / (CHUNK_WORDS * size_of::<u32>())
    }

    /// Returns the numbers, f32, from one state to the next.
    pub(crate) fn state_stride(&self) -> usize {
        self.page_chunks() * CHUNK_WORDS
    }
}

/// Returns the storage on a GPU.
///
/// # Panics
/// If it is on the CPU.
pub(crate) fn on_gpu<'a>(layer: &'a KvLayer, operation: &str) -> &'a CubeKv {
    match layer.storage() {
        KvStorage::Cube(kv) => kv,
        KvStorage::Cpu(_) => unreachable!("{operation}: x is on a GPU, the cache is not"),
    }
}
