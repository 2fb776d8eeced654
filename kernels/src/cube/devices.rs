//! The devices of all runtimes.

use burn::tensor::Device;
use cubecl::MemoryScope;
use cubecl::device::WgpuDeviceKind;

use crate::device::{ComputeDevice, DeviceMemory};

/// Those that drivers report.
pub(crate) fn devices() -> Vec<ComputeDevice> {
    let (mut cudas, mut wgpus) = (0.., 0..);
    let known = cubecl::Device::enumerate_all().into_iter().filter_map(|device| {
        let (id, is_software) = match &device {
            cubecl::Device::Cuda(_) => (format!("cuda:{}", cudas.next()?), false),
            cubecl::Device::Wgpu(wgpu) => {
                let is_software = wgpu.kind == WgpuDeviceKind::Cpu;
                (format!("wgpu:{}", wgpus.next()?), is_software)
            }
            _ => return None,
        };
        Some(ComputeDevice { id, is_software, device: Device::new(device) })
    });
    known.collect()
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
