//! The devices of all runtimes.

use burn::tensor::Device;
use cubecl::MemoryScope;

use crate::device::{ComputeDevice, DeviceKind, DeviceMemory};

/// Returns the devices that drivers report, except those on which this build may crash.
pub(crate) fn devices() -> Vec<ComputeDevice> {
    let mut wgpu_indices = 0..;
    let known = cubecl::Device::enumerate_all().into_iter().filter_map(|device| {
        let (id, kind) = named(&device, &mut wgpu_indices)?;
        Some(ComputeDevice { id, kind, device: Device::new(device) })
    });
    known.collect()
}

/// Returns the name and the kind of `device`.
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
                // Mesa's compiler crashes on CubeCL 0.11's SPIR-V, and the process with it. The
                // cause is shared memory without VK_KHR_workgroup_memory_explicit_layout.
                WgpuDeviceKind::Cpu if cfg!(feature = "vulkan") => return None,
                WgpuDeviceKind::Cpu => DeviceKind::Software,
                WgpuDeviceKind::DiscreteGpu(_) => DeviceKind::Gpu,
                // Apple's GPUs share the machine's memory, and are made for this work.
                _ if cfg!(target_vendor = "apple") => DeviceKind::Gpu,
                _ => DeviceKind::IntegratedGpu,
            };
            Some((format!("wgpu:{}", wgpu_indices.next()?), kind))
        }
        _ => None,
    }
}

/// Returns the name by which settings know `device`.
pub(crate) fn name(device: &cubecl::Device) -> String {
    let wanted = Device::new(device.clone());
    let known = devices().into_iter().find(|known| known.device == wanted);
    known.map_or_else(|| "gpu".to_owned(), |known| known.id)
}

/// Returns the memory that the driver of `device` and its runtime report.
pub(crate) fn memory(device: &cubecl::Device) -> DeviceMemory {
    let client = device.client();
    let properties = &client.properties().memory;
    DeviceMemory {
        total_bytes: properties.max_memory(),
        held_bytes: client.memory_report(MemoryScope::Device).usage().bytes_reserved,
        max_buffer_bytes: properties.max_page_size,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cube::test_device::test_client;

    #[test]
    fn a_device_has_the_name_that_settings_know() {
        let Some((_, device)) = test_client() else { return };
        assert_eq!(name(&device), devices()[0].id);
        assert!(name(&device).contains(':'), "{}", name(&device));
    }
}
