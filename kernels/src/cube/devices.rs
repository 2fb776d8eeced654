//! The devices of all runtimes.

use burn::tensor::Device;
use cubecl::MemoryScope;

use crate::device::{ComputeDevice, DeviceMemory};

/// Those that drivers report, and that this build can be trusted with.
pub(crate) fn devices() -> Vec<ComputeDevice> {
    let mut wgpu_indices = 0..;
    let known = cubecl::Device::enumerate_all().into_iter().filter_map(|device| {
        let (id, is_software) = named(&device, &mut wgpu_indices)?;
        Some(ComputeDevice { id, is_software, device: Device::new(device) })
    });
    known.collect()
}

/// The name of `device`, and whether it imitates a GPU.
#[allow(unused_variables, reason = "only wgpu's devices have no numbers of their own")]
fn named(
    device: &cubecl::Device,
    wgpu_indices: &mut impl Iterator<Item = usize>,
) -> Option<(String, bool)> {
    match device {
        #[cfg(feature = "cuda")]
        cubecl::Device::Cuda(burn_cuda::CudaDevice { index }) => {
            Some((format!("cuda:{index}"), false))
        }
        #[cfg(feature = "wgpu")]
        cubecl::Device::Wgpu(burn_wgpu::WgpuDevice { kind, .. }) => {
            let is_software = *kind == cubecl::device::WgpuDeviceKind::Cpu;
            Some((format!("wgpu:{}", wgpu_indices.next()?), is_software))
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
