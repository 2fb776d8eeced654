//! Which devices there are, and which of the crate's kernels one gets.

use burn::tensor::Device;

use crate::KernelError;

/// A device that this build has kernels for and this machine has.
#[derive(Debug, Clone)]
pub struct ComputeDevice {
    /// Its runtime and, where that may have several, its index there: `cpu`, `wgpu:0`, `cuda:0`.
    pub id: String,
    /// What it is.
    pub kind: DeviceKind,
    /// The device itself.
    pub device: Device,
}

/// What computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeviceKind {
    /// A GPU with memory of its own; on Apple's machines, any.
    Gpu,
    /// A GPU in the processor, or one of a virtual machine.
    IntegratedGpu,
    /// The CPU, by its own kernels.
    Cpu,
    /// The CPU, imitating a GPU.
    Software,
}

impl ComputeDevice {
    /// The CPU, which is always there.
    #[must_use]
    pub fn cpu() -> Self {
        Self { id: "cpu".to_owned(), kind: DeviceKind::Cpu, device: Device::flex() }
    }
}

/// All of them, the CPU last. Asks drivers, but opens no device, and a machine without drivers
/// merely has fewer.
#[must_use]
pub fn devices() -> Vec<ComputeDevice> {
    #[cfg(feature = "gpu")]
    let gpus = crate::cube::devices();
    #[cfg(not(feature = "gpu"))]
    let gpus = Vec::new();
    gpus.into_iter().chain([ComputeDevice::cpu()]).collect()
}

/// What is known of a GPU's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceMemory {
    /// Bytes that it may be asked to hold; `None` where its driver does not say.
    pub total_bytes: Option<u64>,
    /// Bytes that this process holds there now, those that wait to be used again among them.
    pub held_bytes: u64,
    /// Bytes of its largest buffer.
    pub max_buffer_bytes: u64,
}

/// The memory of `device`; `None` for the CPU's, which is the machine's.
#[must_use]
pub fn device_memory(device: &Device) -> Option<DeviceMemory> {
    match Place::of(device, "device memory") {
        #[cfg(feature = "gpu")]
        Ok(Place::Cube(device)) => Some(crate::cube::memory(&device)),
        _ => None,
    }
}

/// Gives memory that this process holds on `device` for later use back to its driver; waits for what is
/// on its way. On the CPU it does nothing.
///
/// # Errors
/// What the device says.
pub fn trim_memory(device: &Device) -> Result<(), KernelError> {
    match Place::of(device, "device memory") {
        #[cfg(feature = "gpu")]
        Ok(Place::Cube(device)) => {
            device.client().memory_cleanup().map_err(crate::cube::device_error)
        }
        _ => Ok(()),
    }
}

/// Whose kernels a thing is built for.
pub(crate) enum Place {
    /// The CPU's, native.
    Cpu,
    /// Those of a CubeCL runtime.
    #[cfg(feature = "gpu")]
    Cube(cubecl::Device),
}

impl Place {
    /// The place of `device`.
    ///
    /// # Errors
    /// A device that no kernel of this build runs on.
    pub(crate) fn of(device: &Device, what: &'static str) -> Result<Self, KernelError> {
        #[cfg(feature = "gpu")]
        if let burn::backend::DispatchDevice::Cube(device) = device.as_dispatch() {
            return Ok(Self::Cube(device.clone()));
        }
        if *device == Device::flex() {
            return Ok(Self::Cpu);
        }
        let built = match (cfg!(feature = "cuda"), cfg!(feature = "wgpu")) {
            (false, false) => "cpu (flex)",
            (false, true) => "cpu (flex), wgpu",
            (true, false) => "cpu (flex), cuda",
            (true, true) => "cpu (flex), cuda, wgpu",
        };
        Err(KernelError::UnsupportedDevice { what, device: format!("{device:?}"), built })
    }
}
