//! Vectors of weights on their device: those of norms, biases, and numbers of attention heads.

use burn::tensor::Device;

use crate::KernelError;
use crate::device::Place;

/// A vector of f32, `[len]`, that operations read.
#[derive(Debug)]
pub struct WeightVector {
    storage: Storage,
    len: usize,
}

/// The elements in memory, by device.
#[derive(Debug)]
enum Storage {
    Cpu(Vec<f32>),
    #[cfg(feature = "gpu")]
    Cube(cubecl::server::Handle),
}

impl WeightVector {
    /// Keeps `values` on `device`.
    ///
    /// # Errors
    /// A device without kernels.
    pub fn new(values: Vec<f32>, device: &Device) -> Result<Self, KernelError> {
        let len = values.len();
        let storage = match Place::of(device, "weight vector")? {
            Place::Cpu => Storage::Cpu(values),
            #[cfg(feature = "gpu")]
            Place::Cube(device) => {
                Storage::Cube(crate::cube::upload(&device.client(), bytemuck::cast_slice(&values)))
            }
        };
        Ok(Self { storage, len })
    }

    /// Returns the number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether it has no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns a copy of the elements, also of those on a GPU, for tests.
    #[cfg(test)]
    pub(crate) fn to_host(&self) -> Vec<f32> {
        match &self.storage {
            Storage::Cpu(values) => values.clone(),
            #[cfg(feature = "gpu")]
            Storage::Cube(elements) => {
                let (client, _) = crate::cube::test_device::test_client().unwrap();
                bytemuck::pod_collect_to_vec(&client.read_one(elements.clone()).unwrap()[..])
            }
        }
    }

    /// Returns whether it is in the CPU's memory.
    pub(crate) fn is_on_cpu(&self) -> bool {
        match &self.storage {
            Storage::Cpu(_) => true,
            #[cfg(feature = "gpu")]
            Storage::Cube(_) => false,
        }
    }

    /// Returns the elements on the CPU.
    ///
    /// # Panics
    /// If they are on a GPU.
    pub(crate) fn cpu(&self) -> &[f32] {
        match &self.storage {
            Storage::Cpu(values) => values,
            #[cfg(feature = "gpu")]
            Storage::Cube(_) => unreachable!("the vector of weights is not on the CPU"),
        }
    }

    /// Returns the elements on a GPU.
    ///
    /// # Panics
    /// If they are on the CPU.
    #[cfg(feature = "gpu")]
    pub(crate) fn cube(&self) -> &cubecl::server::Handle {
        match &self.storage {
            Storage::Cube(elements) => elements,
            Storage::Cpu(_) => unreachable!("the vector of weights is not on a GPU"),
        }
    }
}
