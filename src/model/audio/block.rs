//! The parts that layers of encoder and decoder share.

use burn::tensor::Tensor;
use playhouse_kernels::{Activation, activate, profile::timed};

use super::config::{LoadLinear, NORM, StackConfig};
use crate::model::layers::{Linear, Norm, Part};
use crate::model::weight_loader::WeightLoader;
use crate::model::{Adapters, ModelError};

/// A part with the norm before it. Its result joins the residual stream at the next norm.
#[derive(Debug)]
pub(super) struct Normed<T> {
    norm: Norm,
    pub(super) part: T,
}

impl<T> Normed<T> {
    /// Loads the norm `module`.
    pub(super) fn new(
        loader: &mut WeightLoader<'_>,
        module: &str,
        hidden: usize,
        part: T,
    ) -> Result<Self, ModelError> {
        Ok(Self { norm: Norm::load(loader, module, hidden, NORM)?, part })
    }

    /// Returns the part's result for the norm of `x + stream`, and that sum, which is the stream
    /// from there on.
    pub(super) fn forward(
        &self,
        (x, stream): (Tensor<2>, Option<Tensor<2>>),
        run: impl FnOnce(&T, Tensor<2>) -> Tensor<2>,
    ) -> (Tensor<2>, Option<Tensor<2>>) {
        let (normed, stream) = self.norm.add_forward(x, stream);
        (run(&self.part, normed), Some(stream))
    }
}

/// `fc2(act(fc1(x)))`.
#[derive(Debug)]
pub(super) struct FeedForward {
    inner: Linear,
    activation: Activation,
    outer: Linear,
}

impl FeedForward {
    /// Loads `{layer}.fc1` and `{layer}.fc2`.
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        layer: &str,
        hidden: usize,
        stack: &StackConfig,
        activation: Activation,
        load: LoadLinear,
    ) -> Result<Self, ModelError> {
        let inner = stack.intermediate_size;
        let mut linear = |name: &str, outputs, inputs| {
            let part = [Part::new(format!("{layer}.{name}"), outputs)];
            load(loader, &part, inputs, true)
        };
        Ok(Self {
            inner: linear("fc1", inner, hidden)?,
            activation,
            outer: linear("fc2", hidden, inner)?,
        })
    }

    pub(super) fn forward(&self, x: Tensor<2>, adapters: Adapters<'_>) -> Tensor<2> {
        let inner = timed("gate_up", || activate(self.inner.forward(x, adapters), self.activation));
        timed("down", || self.outer.forward(inner, adapters))
    }

    pub(super) fn mapped_bytes(&self) -> u64 {
        self.inner.mapped_bytes() + self.outer.mapped_bytes()
    }
}
