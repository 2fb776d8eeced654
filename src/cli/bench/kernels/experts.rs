//! The experts of one layer, in the shape of Qwen3-30B-A3B with a quarter of its experts. So the
//! weights exceed any cache, and still fit a small machine.

use burn::tensor::Tensor;
use playhouse_kernels::{
    Activation, Choice, ExpertActivation, ExpertWeights, Experts, KernelError, LinearWeight,
    Routing, experts,
};

use super::measure::{Bench, MeasureError, Rate, Work};

pub(super) const HIDDEN: usize = 2048;
const INTERMEDIATE: usize = 768;
/// Elements of an expert's largest weight.
pub(super) const WEIGHT_LEN_MAX: usize = 2 * INTERMEDIATE * HIDDEN;
const NUM_EXPERTS: usize = 32;
const TOP_K: usize = 8;

/// Returns the shape as reports show it.
pub(super) fn shape() -> String {
    format!("{TOP_K}/{NUM_EXPERTS} x {INTERMEDIATE} x {HIDDEN}")
}

/// Packs the experts. `pack` returns a weight of outputs by inputs.
///
/// # Errors
/// Too little memory, or weights that do not support this quantization.
pub(super) fn pack(
    pack: impl Fn([usize; 2]) -> Result<LinearWeight, KernelError>,
) -> Result<Experts, KernelError> {
    let all = |shape| (0..NUM_EXPERTS).map(|_| pack(shape)).collect::<Result<_, _>>();
    let weights = ExpertWeights {
        gate_up: all([2 * INTERMEDIATE, HIDDEN])?,
        down: all([HIDDEN, INTERMEDIATE])?,
        gate_up_bias: None,
        down_bias: None,
    };
    Experts::new(weights, ExpertActivation::Gated(Activation::Silu), false)
}

/// Measures the layer for the rows of `x`. Their choices spread evenly, and each call begins where
/// the last one ended.
///
/// # Errors
/// The device's errors.
pub(super) fn measure(bench: &Bench, layer: &Experts, x: &Tensor<2>) -> Result<Rate, MeasureError> {
    let [num_tokens, _] = x.dims();
    let count = num_tokens * TOP_K;
    let routing = |call: usize| {
        let choice = |i: usize| Choice {
            expert: ((call * count + i) % NUM_EXPERTS) as u32,
            weight: 1.0 / TOP_K as f32,
        };
        let choices: Vec<Choice> = (0..count).map(choice).collect();
        Routing::new(&choices, TOP_K, NUM_EXPERTS)?.to_device(&bench.device)
    };
    let routings = (0..NUM_EXPERTS / TOP_K).map(routing).collect::<Result<Vec<_>, _>>()?;
    let share = count.min(NUM_EXPERTS) as f64 / NUM_EXPERTS as f64;
    let work = Work {
        bytes: share * layer.size_bytes() as f64,
        flops: 6.0 * (count * HIDDEN * INTERMEDIATE) as f64,
    };
    let mut calls = routings.iter().cycle();
    Ok(bench.measure(work, || calls.next().map(|routing| experts(x.clone(), routing, layer)))?)
}
