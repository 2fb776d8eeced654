//! The device that the settings name.

use playhouse_kernels::{ComputeDevice, TensorCores, devices};

use super::StartError;
use crate::config::{Device, EngineConfig};

/// The device of `wanted`, of those of this build and machine.
pub(crate) fn choose(wanted: Device) -> Result<ComputeDevice, StartError> {
    let (runtime, index) = match wanted {
        // Drivers, which may take long to load, are not asked.
        Device::Auto | Device::Cpu => return Ok(ComputeDevice::cpu()),
        Device::Cuda(index) => ("cuda", index),
        Device::Wgpu(index) => ("wgpu", index),
    };
    let mut found = devices();
    let available = found.iter().map(|device| device.id.clone()).collect();
    match index {
        Some(index) => found.retain(|device| device.id == format!("{runtime}:{index}")),
        None => found.retain(|device| device.id.split(':').next() == Some(runtime)),
    }
    // Those with memory of their own come first, imitations last.
    found.sort_by_key(|device| device.kind);
    found.into_iter().next().ok_or(StartError::NoDevice { wanted, available })
}

/// How it may multiply.
pub(crate) fn tensor_cores(config: &EngineConfig) -> TensorCores {
    match (config.deterministic, config.autotune) {
        (true, _) => TensorCores::Off,
        (false, false) => TensorCores::On,
        (false, true) => TensorCores::Tuned,
    }
}
