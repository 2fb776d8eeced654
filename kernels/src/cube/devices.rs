//! The devices of all runtimes.

use burn::tensor::Device;
use cubecl::MemoryScope;

use crate::device::{ComputeDevice, DeviceKind, DeviceMemory};

/// Those that drivers report, and that this build can be trusted with.
pub(crate) fn devices() -> Vec<ComputeDevice> {
    let mut wgpu_indices = 0..;
    let known = cubecl::Device::enumerate_all().into_iter().filter_map(|device| {
        let (id, kind) = named(&device, &mut wgpu_indices)?;
        Some(ComputeDevice { id, kind, device: Device::new(device) })
    });
    known.collect()
}

/// The name of `device`, and what it is.
#[allow(unused_variables, reason = "only wgpu's devices have no numbers of their own")]
fn named(
    device: &cubecl::Device,
    wgpu_indices: &mut impl Iterator<Item = usize>,
) -> Option<(String, DeviceKind)> {
    match device {
        #[cfg(feature = "cuda")]
        cubecl::Device::Cuda(burn_cuda::CudaDevice { index }) => {
            Some((format!("cuda:{index}"), DeviceKind::Gpu))
        }
        #[cfg(feature = "wgpu")]
        cubecl::Device::Wgpu(burn_wgpu::WgpuDevice { kind, .. }) => {
            use cubecl::device::WgpuDeviceKind;
            let kind = match kind {
                // Mesa's compiler dies of CubeCL 0.11's SPIR-V, and the process with it: shared memory
                // without VK_KHR_workgroup_memory_explicit_layout.
                WgpuDeviceKind::Cpu if cfg!(feature = "vulkan") => return None,
                WgpuDeviceKind::Cpu => DeviceKind::Software,
                WgpuDeviceKind::DiscreteGpu(_) => DeviceKind::Gpu,
                // Apple's have the machine's memory, and are made for this.
                _ if cfg!(target_vendor = "apple") => DeviceKind::Gpu,
                _ => DeviceKind::IntegratedGpu,
            };
            Some((format!("wgpu:{}", wgpu_indices.next()?), kind))
        }
        _ => None,
    }
}

/// What the driver of `device` and its runtime say.
pub(crate) fn memory(device: &cubecl::Device) -> DeviceMemory {
    let client = device.client();
    let properties = &client.properties().memory;
    DeviceMemory {
        total_bytes: properties.max_memory(),
        held_bytes: client.memory_report(MemoryScope::Device).usage().bytes_reserved,
        max_buffer_bytes: properties.max_page_size,
    }
}
