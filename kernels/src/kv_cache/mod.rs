//! The paged KV cache: one arena a layer, written in place, with one slot a token.
//!
//! A slot is `block * block_size + offset`. Keys and values come as
//! `[num_tokens, num_kv_heads · head_dim]` f32 and are kept as the cache's [`KvDtype`]. The
//! stored numbers of a token depend on its own key and value alone. Bytes moved by a write:
//! `2 · num_tokens · num_kv_heads · head_dim · (4 + sizeof(dtype))`, and 4 a scale.

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

/// Keys and values of one layer.
#[derive(Debug)]
pub struct KvLayer {
    storage: KvStorage,
}

/// The storage of a layer, by device.
#[derive(Debug)]
pub(crate) enum KvStorage {
    Cpu(cpu::CpuKv),
    #[cfg(feature = "gpu")]
    Cube(Box<cube::CubeKv>),
}

impl KvCache {
    /// Allocates an arena on `device`.
    ///
    /// # Errors
    /// A dimension of zero, an odd `head_dim`, a device without kernels, a `head_dim` that a GPU's
    /// kernels do not take, or too little memory.
    pub fn new(shape: KvCacheShape, dtype: KvDtype, device: &Device) -> Result<Self, KernelError> {
        let place = Place::of(device, "KV cache")?;
        shape.validate()?;
        let layers = (0..shape.num_layers)
            .map(|_| {
                let storage = match &place {
                    Place::Cpu => KvStorage::Cpu(cpu::CpuKv::new(&shape, dtype)?),
                    #[cfg(feature = "gpu")]
                    Place::Cube(device) => {
                        KvStorage::Cube(Box::new(cube::CubeKv::new(&shape, dtype, device)?))
                    }
                };
                Ok(KvLayer { storage })
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
        &mut self.layers[i]
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
    fn cpu_mut(&mut self) -> &mut cpu::CpuKv {
        match &mut self.storage {
            KvStorage::Cpu(kv) => kv,
            #[cfg(feature = "gpu")]
            KvStorage::Cube(_) => unreachable!("the KV cache is not on the CPU"),
        }
    }
}

/// Writes k and v, each `[num_tokens, num_kv_heads * head_dim]` f32. Each token has one slot.
///
/// # Panics
/// If the shapes disagree with the layer or with `slot_mapping`, or a slot is outside the arena.
pub fn reshape_and_cache(k: Tensor<2>, v: Tensor<2>, layer: &mut KvLayer, slot_mapping: &[u32]) {
    Dispatch::reshape_and_cache(k.into_dispatch(), v.into_dispatch(), layer, slot_mapping);
}
