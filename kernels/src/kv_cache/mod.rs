//! The paged KV cache: one arena a layer, written in place, with one slot a token. A layer with a
//! state has one state a block instead.
//!
//! A slot is `block * block_size + offset`. Keys come as `[num_tokens, num_kv_heads · head_dim]`
//! f32, values as `[num_tokens, num_kv_heads · value_head_dim]` f32. Both are kept as the cache's
//! [`KvDtype`]. The stored numbers of a token depend on its own key and value alone. Bytes moved by
//! a write: `num_tokens · num_kv_heads · (head_dim + value_head_dim) · (4 + sizeof(dtype))`, and 4
//! a scale.
//!
//! In multi-head latent attention a value is the first elements of its key
//! ([`KvCacheShape::values_in_keys`]). It is then not stored, and [`cache_keys`] writes keys alone.

pub(crate) mod cpu;
#[cfg(feature = "gpu")]
pub(crate) mod cube;
#[cfg(test)]
#[cfg(feature = "gpu")]
mod cube_tests;
mod dtype;
mod element;
mod layout;
mod shape;
#[cfg(test)]
mod tests;

use burn::backend::Dispatch;
use burn::tensor::{Device, Tensor};

use crate::KernelError;
use crate::device::Place;
use crate::hot_ops::HotOps;
use crate::shared_memory::SharedArena;
pub use dtype::KvDtype;
pub(crate) use element::KvElement;
pub(crate) use layout::KvLayout;
pub use shape::KvCacheShape;

/// Keys and values of every layer.
#[derive(Debug)]
pub struct KvCache {
    shape: KvCacheShape,
    dtype: KvDtype,
    layers: Vec<KvLayer>,
}

/// Keys and values of one layer, or of several layers of a model whose blocks differ.
#[derive(Debug)]
pub struct KvLayer {
    storage: KvStorage,
    /// The group of layers that the next operations belong to. Recorded steps tell the inputs of
    /// groups apart by it.
    group: usize,
}

/// The storage of a layer, by device.
#[derive(Debug)]
pub(crate) enum KvStorage {
    Cpu(cpu::CpuKv),
    #[cfg(feature = "gpu")]
    Cube(Box<cube::CubeKv>),
}

impl KvCache {
    /// Allocates an arena on `device`. Without layers it holds nothing, and the other dimensions do
    /// not matter.
    ///
    /// # Errors
    /// Another dimension of zero, an odd `head_dim`, a device without kernels, a width that a GPU's
    /// kernels do not take, or too little memory.
    pub fn new(shape: KvCacheShape, dtype: KvDtype, device: &Device) -> Result<Self, KernelError> {
        Self::with(shape, dtype, device, None)
    }

    /// Returns an arena of the CPU in shared memory, with the content that it has there. `memory`
    /// has at least [`KvCacheShape::bytes`].
    ///
    /// # Errors
    /// As [`KvCache::new`]; another device than the CPU.
    pub fn shared(
        shape: KvCacheShape,
        dtype: KvDtype,
        device: &Device,
        mut memory: SharedArena,
    ) -> Result<Self, KernelError> {
        Self::with(shape, dtype, device, Some(&mut memory))
    }

    fn with(
        shape: KvCacheShape,
        dtype: KvDtype,
        device: &Device,
        mut memory: Option<&mut SharedArena>,
    ) -> Result<Self, KernelError> {
        let place = Place::of(device, "KV cache")?;
        if shape.num_layers == 0 {
            return Ok(Self { shape, dtype, layers: Vec::new() });
        }
        shape.validate()?;
        let layers = (0..shape.num_layers)
            .map(|_| {
                let storage = match &place {
                    Place::Cpu => {
                        KvStorage::Cpu(cpu::CpuKv::new(&shape, dtype, memory.as_deref_mut())?)
                    }
                    #[cfg(feature = "gpu")]
                    Place::Cube(device) if memory.is_some() => {
                        let device = format!("{device:?}");
                        let (what, built) = ("KV cache in shared memory", "cpu (flex)");
                        return Err(KernelError::UnsupportedDevice { what, device, built });
                    }
                    #[cfg(feature = "gpu")]
                    Place::Cube(device) => {
                        KvStorage::Cube(Box::new(cube::CubeKv::new(&shape, dtype, device)?))
                    }
                };
                Ok(KvLayer::new(storage))
            })
            .collect::<Result<_, KernelError>>()?;
        Ok(Self { shape, dtype, layers })
    }

    /// Returns layer `i`.
    ///
    /// # Panics
    /// If there is no such layer.
    #[must_use]
    pub fn layer(&self, i: usize) -> &KvLayer {
        &self.layers[i]
    }

    /// Returns layer `i`, to be written.
    ///
    /// # Panics
    /// If there is no such layer.
    #[must_use]
    pub fn layer_mut(&mut self, i: usize) -> &mut KvLayer {
        self.layer_of_group(i, 0)
    }

    /// Returns layer `i`, to be written by a group of layers that share slots and block tables.
    /// Several groups may use the same layer for blocks of their own.
    ///
    /// # Panics
    /// If there is no such layer.
    #[must_use]
    pub fn layer_of_group(&mut self, i: usize, group: usize) -> &mut KvLayer {
        let layer = &mut self.layers[i];
        layer.group = group;
        layer
    }

    /// Returns its dimensions.
    #[must_use]
    pub fn shape(&self) -> &KvCacheShape {
        &self.shape
    }

    /// Returns the format of keys and values.
    #[must_use]
    pub fn dtype(&self) -> KvDtype {
        self.dtype
    }
}

impl KvLayer {
    /// Returns a layer of one group.
    pub(crate) fn new(storage: KvStorage) -> Self {
        Self { storage, group: 0 }
    }

    /// Returns the group of layers that the next operations belong to.
    #[cfg(feature = "gpu")]
    pub(crate) fn group(&self) -> usize {
        self.group
    }

    /// Returns the storage, for the operations that read it.
    #[cfg(feature = "gpu")]
    pub(crate) fn storage(&self) -> &KvStorage {
        &self.storage
    }

    /// Returns the storage on the CPU.
    ///
    /// # Panics
    /// If it is on a GPU.
    pub(crate) fn cpu(&self) -> &cpu::CpuKv {
        match &self.storage {
            KvStorage::Cpu(kv) => kv,
            #[cfg(feature = "gpu")]
            KvStorage::Cube(_) => unreachable!("the KV cache is not on the CPU"),
        }
    }

    /// Returns the storage on the CPU, to be written.
    ///
    /// # Panics
    /// If it is on a GPU.
    pub(crate) fn cpu_mut(&mut self) -> &mut cpu::CpuKv {
        match &mut self.storage {
            KvStorage::Cpu(kv) => kv,
            #[cfg(feature = "gpu")]
            KvStorage::Cube(_) => unreachable!("the KV cache is not on the CPU"),
        }
    }
}

/// Writes k `[num_tokens, num_kv_heads * head_dim]` and v
/// `[num_tokens, num_kv_heads * value_head_dim]`, both f32. Each token has one slot.
///
/// # Panics
/// If the shapes disagree with the layer or with `slot_mapping`, or a slot is outside the arena.
pub fn reshape_and_cache(k: Tensor<2>, v: Tensor<2>, layer: &mut KvLayer, slot_mapping: &[u32]) {
    Dispatch::reshape_and_cache(k.into_dispatch(), v.into_dispatch(), layer, slot_mapping);
}

/// Writes k `[num_tokens, num_kv_heads * head_dim]`, f32, whose first elements are the values. Each
/// token has one slot.
///
/// # Panics
/// If the layer stores values beside keys, the shape disagrees with it or with `slot_mapping`, or a
/// slot is outside the arena.
pub fn cache_keys(k: Tensor<2>, layer: &mut KvLayer, slot_mapping: &[u32]) {
    Dispatch::cache_keys(k.into_dispatch(), layer, slot_mapping);
}
