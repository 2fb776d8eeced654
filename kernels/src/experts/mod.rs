//! The experts of a mixture: MLPs, mostly gated ones, of which each token uses those that the
//! [router](crate::route()) chose.
//!
//! Let `(e_j, w_j)` be the choices of a token, the best first. Then `y = Σ_j w_j · f_{e_j}(x)`,
//! summed from zero in the order of `j`. An expert is
//! `f_e(x) = act(x G_eᵀ + g_e) D_eᵀ + d_e`. The function `act` ([`ExpertActivation`]) gates the
//! second half of its argument with the first, or has no gate. With `scale_input`, as in Llama 4,
//! `y = Σ_j f_{e_j}(w_j · x)`. Experts of LongCat-Flash may be identities: `f_e(x) = x`.
//!
//! | | |
//! |---|---|
//! | shapes | x, y `[num_tokens, hidden]`; G `[2 · intermediate, hidden]`, gate first, or without a gate `[intermediate, hidden]`; D `[hidden, intermediate]`; g as long as G's outputs, d `[hidden]` |
//! | dtypes | x, g, d, y f32; G and D in every form of [`LinearWeight`] |
//! | bytes moved | the weights of each expert that has tokens, once for 480 of its tokens; an expert without tokens is not read |
//! | order | tokens are sorted by expert, and stay in order within one. The rows of an expert are those of a [`linear`](crate::linear()) layer, so a token's bytes do not depend on the batch |
//! | threads | the threads share all pieces of all experts: one parallel region for G, and one for D. AMX with bf16, and weights of different forms, take the experts in turn |
//! | tolerance | that of the two products; the sum and the activation add `1e-6` relative each |
//!
//! On a GPU all experts have weights of one form, in one buffer for G and one for D. The device
//! sorts the tokens itself. An expert's weights are read once for eight of its tokens where experts
//! have few tokens, and else once for 64.

mod activation;
pub(crate) mod cpu;
#[cfg(feature = "gpu")]
pub(crate) mod cube;
#[cfg(test)]
#[cfg(feature = "gpu")]
mod cube_lora_tests;
#[cfg(test)]
#[cfg(feature = "gpu")]
mod cube_step_tests;
#[cfg(test)]
#[cfg(feature = "gpu")]
mod cube_tests;
mod lora;
#[cfg(test)]
mod lora_tests;
mod plan;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

use burn::backend::Dispatch;
use burn::tensor::Tensor;

use crate::hot_ops::HotOps;
use crate::{Activation, KernelError, LinearWeight, Routing, WeightVector};
pub use lora::{ExpertLora, ExpertSegment, experts_with_lora};

const WHAT: &str = "mixture of experts";

/// The function between an expert's products, mostly of a gate and the value that it gates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ExpertActivation {
    /// `f(gate) · up`.
    Gated(Activation),
    /// `f(up)`, without a gate (Nemotron-H).
    Plain(Activation),
    /// `gate · σ(alpha · gate) · (up + 1)`, where the gate is at most `limit`, and up is between
    /// `-limit` and `limit` (gpt-oss). Its checkpoints interleave gate and up; a loader separates
    /// them.
    ClampedSwiGlu {
        /// Factor on the gate within σ.
        alpha: f32,
        /// Largest gate, and largest magnitude of up.
        limit: f32,
    },
    /// `silu(gate) · up`, where the first is at most `limit`, and up is between `-limit` and
    /// `limit` (Step 3.5).
    LimitedSwiGlu {
        /// Largest activated gate, and largest magnitude of up.
        limit: f32,
    },
}

impl ExpertActivation {
    /// Returns the outputs of the first product for each of its results.
    fn inputs(self) -> usize {
        match self {
            Self::Gated(_) | Self::ClampedSwiGlu { .. } | Self::LimitedSwiGlu { .. } => 2,
            Self::Plain(_) => 1,
        }
    }
}

/// The weights of all experts of a layer, in the order of the router's logits.
#[derive(Debug)]
pub struct ExpertWeights {
    /// `[2 · intermediate, hidden]` each, gate first. `[intermediate, hidden]` without a gate.
    pub gate_up: Vec<LinearWeight>,
    /// `[hidden, intermediate]` each.
    pub down: Vec<LinearWeight>,
    /// As long as the outputs of `gate_up` each, where experts have biases.
    pub gate_up_bias: Option<Vec<WeightVector>>,
    /// `[hidden]` each, where experts have biases.
    pub down_bias: Option<Vec<WeightVector>>,
}

/// The experts of a layer, whose weights fit together.
#[derive(Debug)]
pub struct Experts {
    weights: Storage,
    activation: ExpertActivation,
    scale_input: bool,
    num_experts: usize,
    /// Experts after these that return their input.
    num_identities: usize,
    hidden: usize,
    intermediate: usize,
}

/// The weights in memory, by device.
#[derive(Debug)]
enum Storage {
    Cpu(ExpertWeights),
    #[cfg(feature = "gpu")]
    Cube(Box<cube::CubeExperts>),
}

impl Experts {
    /// Checks the weights of a layer. With `scale_input`, an expert's input is multiplied by the
    /// expert's weight, instead of its result. A GPU moves all weights into common buffers.
    ///
    /// # Errors
    /// No experts; shapes that differ or do not fit; weights on several devices. On a GPU also
    /// weights of different forms, more experts than its router takes, or too little memory.
    pub fn new(
        weights: ExpertWeights,
        activation: ExpertActivation,
        scale_input: bool,
    ) -> Result<Self, KernelError> {
        let parts = activation.inputs();
        let first = weights.gate_up.first().map(|w| (w.in_features(), w.out_features() / parts));
        let Some((hidden, intermediate)) = first else {
            return Err(KernelError::OutOfRange {
                what: WHAT,
                field: "number of experts".to_owned(),
                got: 0,
                accepted: "at least 1".to_owned(),
            });
        };
        let num_experts = weights.gate_up.len();
        KernelError::require_len(WHAT, "down", weights.down.len(), num_experts)?;
        let is_on_cpu = weights.gate_up[0].is_on_cpu();
        for (field, weights, outputs, inputs) in [
            ("gate_up", &weights.gate_up, parts * intermediate, hidden),
            ("down", &weights.down, hidden, intermediate),
        ] {
            require_shapes(field, weights, [outputs, inputs])?;
            require_device(field, weights.iter().map(LinearWeight::is_on_cpu), is_on_cpu)?;
        }
        let biases = [
            ("gate_up_bias", &weights.gate_up_bias, parts * intermediate),
            ("down_bias", &weights.down_bias, hidden),
        ];
        for (field, biases, len) in biases {
            let Some(biases) = biases else { continue };
            KernelError::require_len(WHAT, field, biases.len(), num_experts)?;
            for (expert, bias) in biases.iter().enumerate() {
                KernelError::require_len(WHAT, format!("{field}[{expert}]"), bias.len(), len)?;
            }
            require_device(field, biases.iter().map(WeightVector::is_on_cpu), is_on_cpu)?;
        }
        let weights = match is_on_cpu {
            true => Storage::Cpu(weights),
            #[cfg(feature = "gpu")]
            false => Storage::Cube(Box::new(cube::CubeExperts::new(weights)?)),
            #[cfg(not(feature = "gpu"))]
            false => unreachable!("this build has no GPUs"),
        };
        let num_identities = 0;
        Ok(Self {
            weights,
            activation,
            scale_input,
            num_experts,
            num_identities,
            hidden,
            intermediate,
        })
    }

    /// Returns the experts with `count` further ones behind them, which return their input
    /// (LongCat-Flash's zero-computation experts).
    ///
    /// # Errors
    /// Experts on a GPU, which has no kernel for them; experts whose input is scaled.
    pub fn with_identities(self, count: usize) -> Result<Self, KernelError> {
        let is_served = count == 0 || matches!(self.weights, Storage::Cpu(_)) && !self.scale_input;
        let accepted = "0 on a GPU, and where inputs are scaled";
        KernelError::require(is_served, WHAT, "identities", count as u64, accepted)?;
        Ok(Self { num_identities: count, ..self })
    }

    /// Returns the number of experts.
    #[must_use]
    pub fn num_experts(&self) -> usize {
        self.num_experts
    }

    /// Returns the bytes of all weights; a token reads those of its experts alone.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        match &self.weights {
            Storage::Cpu(weights) => weights.all().map(LinearWeight::size_bytes).sum(),
            #[cfg(feature = "gpu")]
            Storage::Cube(weights) => weights.size_bytes(),
        }
    }

    /// Returns the bytes of weights that lie in a mapped file.
    #[must_use]
    pub fn mapped_bytes(&self) -> usize {
        match &self.weights {
            Storage::Cpu(weights) => weights.all().map(LinearWeight::mapped_bytes).sum(),
            #[cfg(feature = "gpu")]
            Storage::Cube(_) => 0,
        }
    }

    /// Returns the weights on the CPU.
    ///
    /// # Panics
    /// If they are on a GPU.
    fn on_cpu(&self) -> &ExpertWeights {
        match &self.weights {
            Storage::Cpu(weights) => weights,
            #[cfg(feature = "gpu")]
            Storage::Cube(_) => unreachable!("experts: x is on the CPU, the weights are not"),
        }
    }

    /// Returns the weights on a GPU.
    ///
    /// # Panics
    /// If they are on the CPU.
    #[cfg(feature = "gpu")]
    fn on_gpu(&self) -> &cube::CubeExperts {
        match &self.weights {
            Storage::Cube(weights) => weights,
            Storage::Cpu(_) => unreachable!("experts: x is on a GPU, the weights are not"),
        }
    }
}

impl ExpertWeights {
    fn all(&self) -> impl Iterator<Item = &LinearWeight> {
        self.gate_up.iter().chain(&self.down)
    }
}

/// Fails unless all are on the CPU, or none is.
fn require_device(
    field: &str,
    mut are_on_cpu: impl Iterator<Item = bool>,
    expected: bool,
) -> Result<(), KernelError> {
    match are_on_cpu.position(|is_on_cpu| is_on_cpu != expected) {
        None => Ok(()),
        Some(part) => {
            Err(KernelError::PartsDiffer { what: WHAT, field: format!("device of {field}"), part })
        }
    }
}

/// Fails unless all weights have `shape`.
fn require_shapes(
    field: &str,
    weights: &[LinearWeight],
    shape: [usize; 2],
) -> Result<(), KernelError> {
    let [outputs, inputs] = shape;
    for (expert, weight) in weights.iter().enumerate() {
        for (name, got, expected) in [
            ("out_features", weight.out_features(), outputs),
            ("in_features", weight.in_features(), inputs),
        ] {
            let field = || format!("{name} of {field}[{expert}]");
            let accepted = || expected.to_string();
            KernelError::require(got == expected, WHAT, field(), got as u64, accepted())?;
        }
    }
    Ok(())
}

/// Computes the weighted sum of each token's experts, of x `[num_tokens, hidden]`. The result has
/// the same shape.
///
/// # Panics
/// If `routing` is of another number of tokens or experts, the width of `x` is not the experts', or
/// they are on different devices.
#[must_use]
pub fn experts(x: Tensor<2>, routing: &Routing, experts: &Experts) -> Tensor<2> {
    Tensor::from_dispatch(Dispatch::experts(x.into_dispatch(), routing, experts))
}
