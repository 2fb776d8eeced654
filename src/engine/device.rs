//! The device that the settings name.

use playhouse_kernels::{ComputeDevice, DeviceKind, TensorCores, devices};

use super::StartError;
use crate::config::{Device, EngineConfig};

/// The device of `wanted`, of those of this build and machine.
pub(crate) fn choose(wanted: Device) -> Result<ComputeDevice, StartError> {
    let (runtime, index) = match wanted {
        // Drivers, which may take long to load, are not asked.
        Device::Cpu => return Ok(ComputeDevice::cpu()),
        Device::Auto => return Ok(best(devices())),
        Device::Cuda(index) => ("cuda", index),
        Device::Wgpu(index) => ("wgpu", index),
    };
    let mut found = devices();
    let available = found.iter().map(|device| device.id.clone()).collect();
    match index {
        Some(index) => found.retain(|device| device.id == format!("{runtime}:{index}")),
        None => found.retain(|device| device.id.split(':').next() == Some(runtime)),
    }
    // Imitations come last.
    found.sort_by_key(|device| device.kind);
    found.into_iter().next().ok_or(StartError::NoDevice { wanted, available })
}

/// What nobody has to be asked about: a GPU with memory of its own, CUDA's before others; else the
/// processor.
fn best(found: Vec<ComputeDevice>) -> ComputeDevice {
    let mut gpus: Vec<_> =
        found.into_iter().filter(|device| device.kind == DeviceKind::Gpu).collect();
    gpus.sort_by_key(|device| !device.id.starts_with("cuda"));
    gpus.into_iter().next().unwrap_or_else(ComputeDevice::cpu)
}

/// How it may multiply.
pub(crate) fn tensor_cores(config: &EngineConfig) -> TensorCores {
    match (config.deterministic, config.autotune) {
        (true, _) => TensorCores::Off,
        (false, false) => TensorCores::On,
        (false, true) => TensorCores::Tuned,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_of_its_own_is_chosen_and_no_other() {
        let device =
            |id: &str, kind| ComputeDevice { id: id.to_owned(), kind, ..ComputeDevice::cpu() };
        let cpu = device("cpu", DeviceKind::Cpu);
        let imitation = device("wgpu:1", DeviceKind::Software);
        let integrated = device("wgpu:0", DeviceKind::IntegratedGpu);
        let (wgpu, cuda) = (device("wgpu:2", DeviceKind::Gpu), device("cuda:0", DeviceKind::Gpu));
        let mut found = vec![integrated, imitation, cpu];
        assert_eq!(best(found.clone()).id, "cpu");
        found.insert(0, wgpu);
        assert_eq!(best(found.clone()).id, "wgpu:2");
        found.insert(2, cuda);
        assert_eq!(best(found).id, "cuda:0");
    }
}
