//! The devices of all runtimes.

use burn::tensor::Device;
use cubecl::device::WgpuDeviceKind;

use crate::device::ComputeDevice;

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
