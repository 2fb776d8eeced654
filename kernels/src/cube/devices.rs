//! The devices of all runtimes.

use burn::tensor::Device;
use cubecl::MemoryScope;

use crate::device::{ComputeDevice, DeviceKind, DeviceMemory};

/// Those that drivers report, and that this build can be trusted with.
pub(crate) fn devices() -> Vec<ComputeDevice> {
    let mut devices = Vec::new();
    #[cfg(feature = "cuda")]
    devices.extend(cuda_devices());
    #[cfg(feature = "wgpu")]
    devices.extend(wgpu_devices());
    devices
}

#[cfg(feature = "cuda")]
fn cuda_devices() -> impl Iterator<Item = ComputeDevice> {
    like(&cubecl::Device::Cuda(burn_cuda::CudaDevice { index: 0 })).filter_map(|device| {
        let cubecl::Device::Cuda(burn_cuda::CudaDevice { index }) = device else { return None };
        let id = format!("cuda:{index}");
        Some(ComputeDevice { id, kind: DeviceKind::Gpu, device: Device::new(device) })
    })
}

/// On the one interface that the kernels are tested with. Left alone, wgpu looks for a GPU on OpenGL,
/// too, whose libraries complain on the terminal where there is no display.
#[cfg(feature = "wgpu")]
fn wgpu_devices() -> impl Iterator<Item = ComputeDevice> {
    use cubecl::device::{WgpuBackend, WgpuDevice, WgpuDeviceKind};
    let on = |kind, backend| cubecl::Device::Wgpu(WgpuDevice::new(kind).on(backend));
    let has = |backend| like(&on(WgpuDeviceKind::DefaultDevice, backend)).next().is_some();
    let backend = match () {
        () if cfg!(target_vendor = "apple") => WgpuBackend::Metal,
        () if cfg!(windows) && !has(WgpuBackend::Vulkan) => WgpuBackend::Dx12,
        () => WgpuBackend::Vulkan,
    };
    let kinds = [
        (WgpuDeviceKind::DiscreteGpu(0), DeviceKind::Gpu),
        // Apple's have the machine's memory, and are made for this.
        (
            WgpuDeviceKind::IntegratedGpu(0),
            match cfg!(target_vendor = "apple") {
                true => DeviceKind::Gpu,
                false => DeviceKind::IntegratedGpu,
            },
        ),
        (WgpuDeviceKind::VirtualGpu(0), DeviceKind::IntegratedGpu),
        (WgpuDeviceKind::Other(0), DeviceKind::IntegratedGpu),
        (WgpuDeviceKind::Cpu, DeviceKind::Software),
    ];
    let found = kinds
        .into_iter()
        .flat_map(move |(first, kind)| like(&on(first, backend)).map(move |device| (device, kind)));
    found.enumerate().map(|(index, (device, kind))| ComputeDevice {
        id: format!("wgpu:{index}"),
        kind,
        device: Device::new(device),
    })
}

/// The devices of the runtime, the interface and the kind of `device`; none where there is no driver.
#[cfg(any(feature = "cuda", feature = "wgpu"))]
fn like(device: &cubecl::Device) -> impl Iterator<Item = cubecl::Device> + use<> {
    let ids = cubecl::Device::enumerate(device.to_id());
    ids.into_iter().map(cubecl::Device::from_id)
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
