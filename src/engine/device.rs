//! The device that the settings name.

use playhouse_kernels::{ComputeDevice, devices};

use super::StartError;
use crate::config::Device;

/// The device of `wanted`, of those of this build and machine.
pub(super) fn choose(wanted: Device) -> Result<ComputeDevice, StartError> {
    let mut found = devices();
    let available = found.iter().map(|device| device.id.clone()).collect();
    let index = match wanted {
        Device::Auto | Device::Cpu => {
            found.retain(|device| device.id == "cpu");
            None
        }
        Device::Wgpu(index) => {
            found.retain(|device| device.id.starts_with("wgpu:"));
            index
        }
    };
    // Imitations come last, unless one is named.
    if index.is_none() {
        found.sort_by_key(|device| device.is_software);
    }
    let found = found.into_iter().nth(index.unwrap_or(0));
    found.ok_or(StartError::NoDevice { wanted, available })
}
