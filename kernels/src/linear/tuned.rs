//! Measurements of products by tensor cores, which one process can hand on to the next.

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
    /// Number of rows, a power of two. The choice holds for it and for fewer, down to half.
    pub rows: usize,
    /// Number of inputs.
    pub inputs: usize,
    /// Number of outputs.
    pub outputs: usize,
    /// The name of cubek's routine. `None`: no routine works for this shape.
    pub routine: Option<String>,
}

/// Returns whether `device` multiplies matrices of 16-bit numbers in tensor cores.
#[must_use]
pub fn has_tensor_cores(device: &Device) -> bool {
    match crate::device::Place::of(device, "tensor cores") {
        #[cfg(feature = "gpu")]
        Ok(crate::device::Place::Cube(device)) => cube::has_tensor_cores(&device.client()),
        _ => false,
    }
}

/// Returns all results that this process knows, in order.
#[must_use]
pub fn tuned_products() -> Vec<TunedProduct> {
    #[cfg(feature = "gpu")]
    return cube::tuned_products();
    #[cfg(not(feature = "gpu"))]
    Vec::new()
}

/// Adopts the results of another process; results of this one stay. A product whose dtype or
/// routine is unknown here is measured again.
pub fn adopt_tuned_products(products: impl IntoIterator<Item = TunedProduct>) {
    #[cfg(feature = "gpu")]
    cube::adopt_tuned_products(products);
    #[cfg(not(feature = "gpu"))]
    drop(products);
}
