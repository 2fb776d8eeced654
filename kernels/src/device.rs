//! The devices of this machine, and the kernels that each gets.

use burn::tensor::Device;

use crate::KernelError;

/// A device of this machine that this build has kernels for.
#[derive(Debug, Clone)]
pub struct ComputeDevice {
    /// Its runtime and, where that may have several devices, its index: `cpu`, `wgpu:0`, `cuda:0`.
    pub id: String,
    /// Its kind.
    pub kind: DeviceKind,
    /// The device itself.
    pub device: Device,
}

/// The kind of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeviceKind {
    /// A GPU with memory of its own; on Apple's machines, any GPU.
    Gpu,
    /// A GPU in the processor, or a GPU of a virtual machine.
    IntegratedGpu,
    /// The CPU, with its native kernels.
    Cpu,
    /// The CPU, which imitates a GPU.
    Software,
}

impl ComputeDevice {
    /// Returns the CPU, which every machine has.
    #[must_use]
    pub fn cpu() -> Self {
        Self { id: "cpu".to_owned(), kind: DeviceKind::Cpu, device: Device::flex() }
    }
}

/// Returns all devices, the CPU last. Asks drivers, but opens no device. A machine without drivers
/// has fewer devices.
#[must_use]
pub fn devices() -> Vec<ComputeDevice> {
    #[cfg(feature = "gpu")]
    let gpus = crate::cube::devices();
    #[cfg(not(feature = "gpu"))]
    let gpus = Vec::new();
    gpus.into_iter().chain([ComputeDevice::cpu()]).collect()
}

/// The known facts about a GPU's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceMemory {
    /// Bytes that it may be asked to hold; `None` where its driver does not report them.
    pub total_bytes: Option<u64>,
    /// Bytes that this process holds there now, including free ones that it keeps for reuse.
    pub held_bytes: u64,
    /// Bytes of its largest buffer.
    pub max_buffer_bytes: u64,
}

/// Returns the memory of `device`; `None` for the CPU, whose memory is the machine's.
#[must_use]
pub fn device_memory(device: &Device) -> Option<DeviceMemory> {
    match Place::of(device, "device memory") {
        #[cfg(feature = "gpu")]
        Ok(Place::Cube(device)) => Some(crate::cube::memory(&device)),
        _ => None,
    }
}

/// Returns free memory that this process keeps on `device` to its driver. Waits until the device
/// has done all submitted work. Does nothing on the CPU.
///
/// # Errors
/// An error of the device.
pub fn trim_memory(device: &Device) -> Result<(), KernelError> {
    match Place::of(device, "device memory") {
        #[cfg(feature = "gpu")]
        Ok(Place::Cube(device)) => {
            device.client().memory_cleanup().map_err(crate::cube::device_error)
        }
        _ => Ok(()),
    }
}

/// The kernels that a thing is built for.
pub(crate) enum Place {
    /// The native kernels of the CPU.
    Cpu,
    /// The kernels of a CubeCL runtime.
    #[cfg(feature = "gpu")]
    Cube(cubecl::Device),
}

impl Place {
    /// Returns the place of `device`.
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
