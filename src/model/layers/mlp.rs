//! The feed-forward part of dense models: the gated MLP (HF `LlamaMLP`;
//! <https://arxiv.org/abs/2002.05202>), and the one without a gate (HF `GPT2MLP`).

use burn::tensor::Tensor;
use playhouse_kernels::{Activation, activate, clamp, gated, profile::timed, scale};

use super::arrangement::Part;
use super::mamba2::scaled;
use super::ngpt;
use super::rows::{RowMean, normal_quantile};
use super::{LayerPlace, Linear, Norm, activation};
use crate::model::config::{MlpConfig, NormConfig};
use crate::model::family::{MlpNames, WeightNames};
use crate::model::weight_loader::WeightLoader;
use crate::model::{Adapters, ModelError};

/// `down(act(gate(x)) · up(x))`, or `down(act(up(x)))`.
#[derive(Debug)]
pub(in crate::model) struct Mlp {
    inner: Linear,
    is_gated: bool,
    /// The factors of the inner projections, `[1, 2 * intermediate_size]`.
    factors: Option<Tensor<2>>,
    /// The means of the gate's rows, and the deviations by which an output must exceed them.
    cutoff: Option<(RowMean, f32)>,
    activation: Activation,
    /// The divisors of the activation's outputs, `[1, intermediate_size]`.
    divisors: Option<Tensor<2>>,
    inner_norm: Option<Norm>,
    /// The largest activated gate, and the largest magnitude of the value that it gates.
    limit: Option<f32>,
    down_proj: Linear,
    gate_multiplier: f32,
    output_multiplier: f32,
}

impl Mlp {
    /// Loads the projections `names` of the layer at `place`.
    pub(in crate::model) fn load(
        loader: &mut WeightLoader<'_>,
        place: LayerPlace<'_>,
        names: &MlpNames,
        mlp: &MlpConfig,
    ) -> Result<Self, ModelError> {
        let ([inner, down], hidden) = (parts(place, names, mlp), place.config.hidden_size);
        let cutoff = mlp.sparsity.map(|share| {
            let mean = RowMean::new(loader, mlp.intermediate_size)?;
            Ok::<_, ModelError>((mean, normal_quantile(share) as f32))
        });
        let inner_norm = mlp.inner_norm.map(|name| {
            let kind = place.config.norm.kind.of_parts();
            let config = NormConfig { kind, ..place.config.norm };
            Norm::load(loader, &place.module(name), mlp.intermediate_size, config)
        });
        Ok(Self {
            inner: Linear::load(loader, &inner, hidden, mlp.bias)?,
            is_gated: mlp.is_gated,
            factors: ngpt::of_inner(loader, place, mlp.intermediate_size)?,
            cutoff: cutoff.transpose()?,
            activation: activation::load(loader, place, mlp.activation)?,
            divisors: activation::divisors(loader, place, names, mlp)?,
            inner_norm: inner_norm.transpose()?,
            limit: mlp.limit,
            down_proj: Linear::load(loader, &down, mlp.intermediate_size, mlp.down_bias)?,
            gate_multiplier: mlp.gate_multiplier,
            output_multiplier: mlp.output_multiplier,
        })
    }

    /// Maps `[num_tokens, hidden]` to the same shape.
    pub(in crate::model) fn forward(&self, x: Tensor<2>, adapters: Adapters<'_>) -> Tensor<2> {
        let activated = timed("gate_up", || match (self.is_gated, &self.cutoff) {
            (true, Some((mean, factor))) => {
                let inner = self.inner.forward(x, adapters);
                let size = inner.dims()[1] / 2;
                let (gate, up) = (inner.clone().narrow(1, 0, size), inner.narrow(1, size, size));
                let gate = mean.above(gate, *factor);
                gated(Tensor::cat(vec![gate, up], 1), self.activation)
            }
            (true, None) if self.factors.is_some() => {
                self.with_factors(self.inner.forward(x, adapters))
            }
            (true, None) if self.limit.is_some() => self.limited(self.inner.forward(x, adapters)),
            (true, None) if self.gate_multiplier != 1.0 => {
                self.scaled_gate(self.inner.forward(x, adapters))
            }
            (true, None) => self.inner.forward_gated(x, self.activation, adapters),
            (false, _) => {
                let activated = self.inner.forward_activated(x, self.activation, adapters);
                match &self.divisors {
                    Some(divisors) => activated.div(divisors.clone()),
                    None => activated,
                }
            }
        });
        let activated = match &self.inner_norm {
            Some(norm) => norm.forward(activated),
            None => activated,
        };
        scaled(
            timed("down", || self.down_proj.forward(activated, adapters)),
            self.output_multiplier,
        )
    }

    /// Returns `act(gate) · up`, of which both are within the limit. The gate is the first half of
    /// x. Activations are above -1, and limits are at least 1.
    fn limited(&self, x: Tensor<2>) -> Tensor<2> {
        let half = x.dims()[1] / 2;
        let gate = activate(x.clone().narrow(1, 0, half), self.activation);
        let up = x.narrow(1, half, half);
        let Some(limit) = self.limit else { return gate.mul(up) };
        clamp(gate, limit).mul(clamp(up, limit))
    }

    /// Returns `act(gate) · up` of `x`, whose columns are multiplied by their factors before.
    fn with_factors(&self, x: Tensor<2>) -> Tensor<2> {
        let x = match &self.factors {
            None => x,
            Some(factors) => x.mul(factors.clone()),
        };
        gated(x, self.activation)
    }

    /// Returns `act(multiplier · gate) · up`. The gate is the first half of x.
    fn scaled_gate(&self, x: Tensor<2>) -> Tensor<2> {
        let [rows, width] = x.dims();
        let half = |start: usize| x.clone().slice([0..rows, start..start + width / 2]);
        let gate = activate(scale(half(0), self.gate_multiplier), self.activation);
        gate.mul(half(width / 2))
    }

    /// Returns the bytes of weights that are pages of a file.
    pub(in crate::model) fn mapped_bytes(&self) -> u64 {
        self.inner.mapped_bytes() + self.down_proj.mapped_bytes()
    }
}

/// Returns the modules of the inner projections, and that of the projection back.
pub(super) fn parts(place: LayerPlace<'_>, names: &MlpNames, mlp: &MlpConfig) -> [Vec<Part>; 2] {
    let WeightNames { is_transposed, is_gate_last, .. } = *place.names();
    let part = |name, outputs| Part::new(place.module(name), outputs).transposed(is_transposed);
    let inner = inner_parts(names.inner, mlp).map(|(name, outputs)| match is_gate_last {
        true => part(name, outputs).halves_swapped(),
        false => part(name, outputs),
    });
    [inner.collect(), vec![part(names.down_proj, place.config.hidden_size)]]
}

/// Returns the modules of the inner projections with their outputs. One module may hold both the
/// gate and what it gates.
pub(in crate::model) fn inner_parts<'n>(
    names: &'n [&'static str],
    mlp: &MlpConfig,
) -> impl Iterator<Item = (&'static str, usize)> + 'n {
    let total = mlp.intermediate_size * if mlp.is_gated { 2 } else { 1 };
    names.iter().map(move |name| (*name, total / names.len()))
}
