//! Maps of single elements between the larger operations.
//!
//! - [`scale`]: `y = x · factor`, for embeddings, residuals (HF `GraniteModel`) and logits.
//! - [`soft_cap`]: `y = cap · tanh(x / cap)`, for logits (HF `Gemma2ForCausalLM`).
//! - [`clamp`]: y is x within `±limit`.
//! - [`add`]: `x + y`, where attention and MLP are parallel (HF `CohereDecoderLayer`).
//! - [`add_scaled`]: `x + factor · y`, for residuals (HF `GraniteDecoderLayer`).
//! - [`scale_rows`]: row i of x times `factors[i]`, for queries (HF `Llama4TextAttention`).
//! - [`gate_rows`]: row i of x times `σ(gate[i])`, for the shared expert (HF
//!   `Qwen2MoeSparseMoeBlock`).
//!
//! All f32, `[rows, cols]`. NaN stays NaN. On the CPU a result takes the memory of x if x has no
//! other owner. Bytes moved: `8 · x.len()`, with two operands `12 · x.len()`. Tolerance: one
//! rounding for each operation of the formula. A soft cap has `2e-6 · |y|`, because its hyperbolic
//! tangent is a polynomial near 0 and an exponential elsewhere. GPUs have `1e-5 · |y|` there,
//! because their exponentials are less exact.

pub(crate) mod cpu;
#[cfg(feature = "gpu")]
pub(crate) mod cube;
#[cfg(test)]
#[cfg(feature = "gpu")]
mod cube_tests;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

use burn::backend::Dispatch;
use burn::tensor::Tensor;

use crate::hot_ops::HotOps;

/// A function of one element.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum ElementMap {
    /// `x · factor`.
    Scale(f32),
    /// `cap · tanh(x / cap)`.
    SoftCap(f32),
    /// x within `±limit`.
    Clamp(f32),
}

/// Returns `x · factor`, `[rows, cols]`.
#[must_use]
pub fn scale(x: Tensor<2>, factor: f32) -> Tensor<2> {
    mapped(x, ElementMap::Scale(factor))
}

/// Returns `cap · tanh(x / cap)`, `[rows, cols]`, for a `cap` above 0.
#[must_use]
pub fn soft_cap(x: Tensor<2>, cap: f32) -> Tensor<2> {
    mapped(x, ElementMap::SoftCap(cap))
}

/// Returns x within `±limit`, `[rows, cols]`, for a `limit` of at least 0.
#[must_use]
pub fn clamp(x: Tensor<2>, limit: f32) -> Tensor<2> {
    mapped(x, ElementMap::Clamp(limit))
}

fn mapped(x: Tensor<2>, map: ElementMap) -> Tensor<2> {
    Tensor::from_dispatch(Dispatch::map_elements(x.into_dispatch(), map))
}

/// Returns `x + y`, `[rows, cols]`.
///
/// # Panics
/// If the shapes disagree.
#[must_use]
pub fn add(x: Tensor<2>, y: Tensor<2>) -> Tensor<2> {
    add_scaled(x, y, 1.0)
}

/// Returns `x + factor · y`, `[rows, cols]`.
///
/// # Panics
/// If the shapes disagree.
#[must_use]
pub fn add_scaled(x: Tensor<2>, y: Tensor<2>, factor: f32) -> Tensor<2> {
    Tensor::from_dispatch(Dispatch::add_scaled(x.into_dispatch(), y.into_dispatch(), factor))
}

/// Returns each row of x `[rows, cols]` times its own factor. A step on a GPU that does this is not
/// recorded, because a replay could not renew the factors.
///
/// # Panics
/// If the number of factors is not that of rows.
#[must_use]
pub fn scale_rows(x: Tensor<2>, factors: &[f32]) -> Tensor<2> {
    Tensor::from_dispatch(Dispatch::scale_rows(x.into_dispatch(), factors))
}

/// Returns each row of x `[rows, cols]` times the logistic function of its element of gate
/// `[rows, 1]`.
///
/// # Panics
/// If the shape of `gate` is not `[rows, 1]`.
#[must_use]
pub fn gate_rows(x: Tensor<2>, gate: Tensor<2>) -> Tensor<2> {
    Tensor::from_dispatch(Dispatch::gate_rows(x.into_dispatch(), gate.into_dispatch()))
}
