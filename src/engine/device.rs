//! The device that the settings name.

use playhouse_kernels::{ComputeDevice, TensorCores, devices};

use super::{StartError, cuda_compiler};
use crate::config::{Device, EngineConfig};

/// Returns the device `wanted` of this machine, if this build supports it.
pub(crate) fn choose(wanted: Device) -> Result<ComputeDevice, StartError> {
    let (runtime, index) = match wanted {
        // Asks no drivers, because they may take long to load.
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
    // Devices with their own memory come first, imitations last.
    found.sort_by_key(|device| device.kind);
    let device = found.into_iter().next().ok_or(StartError::NoDevice { wanted, available })?;
    if runtime == "cuda" {
        cuda_compiler::check()?;
    }
    Ok(device)
}

/// Returns how the settings allow the use of tensor cores.
pub(crate) fn tensor_cores(config: &EngineConfig) -> TensorCores {
    match (config.deterministic, config.autotune) {
        (true, _) => TensorCores::Off,
        (false, false) => TensorCores::On,
        (false, true) => TensorCores::Tuned,
    }
}
