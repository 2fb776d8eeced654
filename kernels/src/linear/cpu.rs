//! Conversions between tensors and the native product.

use burn_flex::FlexTensor;

use super::output::{Epilogue, Output};
use super::pack::{PANEL, PackedWeight};
use super::product::Product;
use super::{LinearStorage, LinearWeight, quantized};
use crate::WeightVector;
use crate::activation::Activation;
use crate::activation::cpu::{activate, gated};
use crate::simd::Isa;
use crate::tensors::{dense, dims2, values, values_mut};
use crate::threads::SharedMut;
use crate::workspace::{give_back, tensor};

/// Least bytes of weights that one piece of work streams.
const PIECE_BYTES: usize = 1 << 17;

/// Computes `x Wᵀ + b` on CPU tensors.
pub(crate) fn linear(
    x: FlexTensor,
    weight: &LinearWeight,
    bias: Option<&WeightVector>,
) -> FlexTensor {
    finished(x, weight, bias, Epilogue::Bias)
}

/// Computes `f(x Wᵀ + b)` on CPU tensors.
pub(crate) fn linear_activated(
    x: FlexTensor,
    weight: &LinearWeight,
    bias: Option<&WeightVector>,
    activation: Activation,
) -> FlexTensor {
    if has_tiles(Isa::active(), weight) {
        return activate(linear(x, weight, bias), activation);
    }
    finished(x, weight, bias, |bias| Epilogue::Activated(bias, activation))
}

/// Returns whether products are made by tiles, which have no epilogue but a bias.
pub(super) fn has_tiles(isa: Isa, weight: &LinearWeight) -> bool {
    #[cfg(target_arch = "x86_64")]
    if matches!(weight.storage, LinearStorage::Cpu(PackedWeight::Bf16(_))) {
        return isa.amx().is_some();
    }
    let _ = (isa, weight);
    false
}

/// Computes a product and its epilogue on CPU tensors.
fn finished<'a>(
    x: FlexTensor,
    weight: &LinearWeight,
    bias: Option<&'a WeightVector>,
    epilogue: impl FnOnce(Option<&'a [f32]>) -> Epilogue<'a>,
) -> FlexTensor {
    let [rows, inputs] = dims2(&x);
    let outputs = weight.out_features;
    assert_eq!(inputs, weight.in_features, "linear: width of x [{rows}, {inputs}]");
    let bias = bias.map(WeightVector::cpu);
    assert!(bias.is_none_or(|b| b.len() == outputs), "linear: bias must have {outputs} elements");
    let x = dense(x);
    let mut y = tensor(rows, outputs);
    multiply_to(Isa::active(), values(&x), weight, epilogue(bias), values_mut(&mut y));
    give_back(x);
    y
}

/// Computes `x Wᵀ + b` on one instruction set.
pub(crate) fn multiply(
    isa: Isa,
    x: &[f32],
    weight: &LinearWeight,
    bias: Option<&[f32]>,
    y: &mut [f32],
) {
    multiply_to(isa, x, weight, Epilogue::Bias(bias), y);
}

/// Computes a product and an epilogue of one part on one instruction set.
pub(super) fn multiply_to(
    isa: Isa,
    x: &[f32],
    weight: &LinearWeight,
    epilogue: Epilogue<'_>,
    y: &mut [f32],
) {
    match &weight.storage {
        LinearStorage::Cpu(packed) => {
            let sizes = [weight.in_features, weight.out_features];
            product(isa, x, packed, sizes, epilogue, y);
        }
        LinearStorage::CpuQuantized(packed) => quantized::product(isa, x, packed, epilogue, y),
        #[cfg(feature = "gpu")]
        LinearStorage::Cube(_) => unreachable!("linear: x is on the CPU, the weight is not"),
    }
}

/// Computes `silu(gate) · up` of `x Wᵀ`, whose first half of outputs is the gate.
pub(crate) fn linear_swiglu(x: FlexTensor, weight: &LinearWeight) -> FlexTensor {
    let (isa, halves) = (Isa::active(), weight.out_features / 2);
    let packed = match &weight.storage {
        LinearStorage::Cpu(packed) if fuses_swiglu(isa, packed, weight.out_features) => packed,
        _ => return gated(linear(x, weight, None), Activation::Silu),
    };
    let [rows, inputs] = dims2(&x);
    assert_eq!(inputs, weight.in_features, "linear_swiglu: width of x [{rows}, {inputs}]");
    let x = dense(x);
    let mut y = tensor(rows, halves);
    let (data, out) = (values(&x), values_mut(&mut y));
    product(isa, data, packed, [inputs, halves], Epilogue::SwiGlu, out);
    give_back(x);
    y
}

/// Returns whether gate and up of an output lie in the same column of two panels.
pub(super) fn fuses_swiglu(isa: Isa, weights: &PackedWeight, outputs: usize) -> bool {
    #[cfg(target_arch = "x86_64")]
    if matches!(weights, PackedWeight::Bf16(_)) && isa.amx().is_some() {
        return false;
    }
    let _ = (isa, weights);
    outputs.is_multiple_of(2 * PANEL)
}

/// Computes a product and its epilogue on one instruction set, from row-major x `[rows, inputs]` to
/// y `[rows, outputs]`.
pub(super) fn product(
    isa: Isa,
    x: &[f32],
    weights: &PackedWeight,
    [inputs, outputs]: [usize; 2],
    epilogue: Epilogue<'_>,
    y: &mut [f32],
) {
    let output = Output { y: SharedMut::new(y), outputs, epilogue };
    match weights {
        #[cfg(target_arch = "x86_64")]
        PackedWeight::Bf16(weights) if let Some(amx) = isa.amx() => {
            super::amx::product(amx, x, inputs, weights, &output);
        }
        _ => isa.run(Product { x, inputs, weights, output: &output }),
    }
}

/// Returns how many panels of `panel_bytes` bytes one piece of work takes.
pub(super) fn panels_per_piece(panel_bytes: usize) -> usize {
    PIECE_BYTES.div_ceil(panel_bytes)
}
