//! What was measured of products by tensor cores, to be kept from one process to the next.

use burn::tensor::Device;
use serde::{Deserialize, Serialize};

#[cfg(feature = "gpu")]
use super::cube;

/// The fastest way to multiply matrices of a shape on a device, as measured there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TunedProduct {
    /// The runtime and its device.
    pub device: String,
    /// `f16` or `bf16`.
    pub dtype: String,
    /// Rows, a power of two: it holds for these and for fewer, down to half as many.
    pub rows: usize,
    /// Inputs.
    pub inputs: usize,
    /// Outputs.
    pub outputs: usize,
    /// The name of cubek's routine; `None`: it has none for this.
    pub routine: Option<String>,
}

/// Whether `device` multiplies matrices of 16-bit numbers itself.
#[must_use]
pub fn has_tensor_cores(device: &Device) -> bool {
    match crate::device::Place::of(device, "tensor cores") {
        #[cfg(feature = "gpu")]
        Ok(crate::device::Place::Cube(device)) => cube::has_tensor_cores(&device.client()),
        _ => false,
    }
}

/// All that this process knows, in order.
#[must_use]
pub fn tuned_products() -> Vec<TunedProduct> {
    #[cfg(feature = "gpu")]
    return cube::tuned_products();
    #[cfg(not(feature = "gpu"))]
    Vec::new()
}

/// Takes what another process measured for granted; what this one measured stays. A product whose
/// dtype or routine is not known here will be measured anew.
pub fn adopt_tuned_products(products: impl IntoIterator<Item = TunedProduct>) {
    #[cfg(feature = "gpu")]
    cube::adopt_tuned_products(products);
    #[cfg(not(feature = "gpu"))]
    drop(products);
}
