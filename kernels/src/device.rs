//! Which of the crate's kernels a burn device gets.

use burn::tensor::Device;

use crate::KernelError;

/// Fails unless `device` is the CPU's, the only one with kernels in this build.
pub(crate) fn require_cpu(device: &Device, what: &'static str) -> Result<(), KernelError> {
    if *device == Device::flex() {
        return Ok(());
    }
    Err(KernelError::UnsupportedDevice { what, device: format!("{device:?}") })
}
