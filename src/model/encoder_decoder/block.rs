//! The parts that layers of encoder and decoder share.

use burn::tensor::Tensor;
use playhouse_kernels::{Activation, activate, profile::timed, recycle};

use super::stack_config::{LoadLinear, NORM};
use crate::model::config::NormConfig;
use crate::model::layers::{Linear, Norm, Part};
use crate::model::weight_loader::WeightLoader;
use crate::model::{Adapters, ModelError};

/// The place of a part's norm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::model) enum NormPlace {
    /// `x + part(norm(x))`: the residual stream itself is never normed.
    Before,
    /// `norm(x + part(x))`.
    After,
}

/// The output of a part, and the residual stream, which the next norm adds to it.
pub(in crate::model) type Stream = (Tensor<2>, Option<Tensor<2>>);

/// A part with its norm.
#[derive(Debug)]
pub(in crate::model) struct Normed<T> {
    norm: Norm,
    place: NormPlace,
    pub(in crate::model) part: T,
}

impl<T> Normed<T> {
    /// Loads the norm `module`, which stands before `part`.
    pub(in crate::model) fn new(
        loader: &mut WeightLoader<'_>,
        module: &str,
        hidden: usize,
        part: T,
    ) -> Result<Self, ModelError> {
        Self::at(NormPlace::Before, loader, module, (hidden, NORM), part)
    }

    /// Loads the norm `module`, which stands at `place`.
    pub(in crate::model) fn at(
        place: NormPlace,
        loader: &mut WeightLoader<'_>,
        module: &str,
        (hidden, norm): (usize, NormConfig),
        part: T,
    ) -> Result<Self, ModelError> {
        Ok(Self { norm: Norm::load(loader, module, hidden, norm)?, place, part })
    }

    /// Returns the stream after this part. Behind a norm at its end, the stream has one tensor.
    pub(in crate::model) fn forward(
        &self,
        (x, stream): Stream,
        run: impl FnOnce(&T, Tensor<2>) -> Tensor<2>,
    ) -> Stream {
        match self.place {
            NormPlace::Before => {
                let (normed, stream) = self.norm.add_forward(x, stream);
                (run(&self.part, normed), Some(stream))
            }
            NormPlace::After => {
                let (normed, sum) = self.norm.add_forward(run(&self.part, x.clone()), Some(x));
                recycle(sum);
                (normed, stream)
            }
        }
    }
}

/// The form of a feed-forward part in one family.
#[derive(Debug, Clone, Copy)]
pub(in crate::model) struct FeedForwardForm {
    pub(in crate::model) hidden: usize,
    pub(in crate::model) intermediate: usize,
    /// The modules before the activation. With two, the activated first one is a gate of the other.
    pub(in crate::model) inner: &'static [&'static str],
    /// The module behind it.
    pub(in crate::model) outer: &'static str,
    pub(in crate::model) has_bias: bool,
    pub(in crate::model) activation: Activation,
}

impl FeedForwardForm {
    /// Returns the form of BART.
    pub(in crate::model) fn of_bart(
        hidden: usize,
        intermediate: usize,
        activation: Activation,
    ) -> Self {
        let (inner, outer) = (&["fc1"], "fc2");
        Self { hidden, intermediate, inner, outer, has_bias: true, activation }
    }
}

/// `fc2(act(fc1(x)))`, or with a gate `fc2(act(gate(x)) · fc1(x))`.
#[derive(Debug)]
pub(in crate::model) struct FeedForward {
    inner: Linear,
    is_gated: bool,
    activation: Activation,
    outer: Linear,
}

impl FeedForward {
    /// Loads the part of `module`.
    pub(in crate::model) fn load(
        loader: &mut WeightLoader<'_>,
        module: &str,
        form: &FeedForwardForm,
        load: LoadLinear,
    ) -> Result<Self, ModelError> {
        let FeedForwardForm { hidden, intermediate, has_bias, activation, .. } = *form;
        let part = |name: &&str| Part::new(format!("{module}.{name}"), intermediate);
        let inner: Vec<Part> = form.inner.iter().map(part).collect();
        let outer = [Part::new(format!("{module}.{}", form.outer), hidden)];
        Ok(Self {
            inner: load(loader, &inner, hidden, has_bias)?,
            is_gated: inner.len() == 2,
            activation,
            outer: load(loader, &outer, intermediate, has_bias)?,
        })
    }

    pub(in crate::model) fn forward(&self, x: Tensor<2>, adapters: Adapters<'_>) -> Tensor<2> {
        let inner = timed("gate_up", || match self.is_gated {
            true => self.inner.forward_gated(x, self.activation, adapters),
            false => activate(self.inner.forward(x, adapters), self.activation),
        });
        timed("down", || self.outer.forward(inner, adapters))
    }

    pub(in crate::model) fn mapped_bytes(&self) -> u64 {
        self.inner.mapped_bytes() + self.outer.mapped_bytes()
    }
}
