//! The gated MLP (HF `LlamaMLP`; <https://arxiv.org/abs/2002.05202>).

use burn::tensor::Tensor;
use playhouse_kernels::profile::timed;

use super::{LayerPlace, Linear};
use crate::model::ModelError;
use crate::model::config::GatedMlpConfig;
use crate::model::weight_loader::WeightLoader;

/// `down(silu(gate(x)) · up(x))`.
#[derive(Debug)]
pub(in crate::model) struct Mlp {
    gate_up_proj: Linear,
    down_proj: Linear,
}

impl Mlp {
    /// Loads the projections of the layer at `place`.
    pub(in crate::model) fn load(
        loader: &mut WeightLoader<'_>,
        place: LayerPlace<'_>,
        mlp: &GatedMlpConfig,
    ) -> Result<Self, ModelError> {
        let names = &place.names().mlp;
        let (hidden, intermediate) = (place.config.hidden_size, mlp.intermediate_size);
        let gate_up =
            [names.gate_proj, names.up_proj].map(|name| (place.module(name), intermediate));
        let down = [(place.module(names.down_proj), hidden)];
        Ok(Self {
            gate_up_proj: Linear::load(loader, &gate_up, hidden, mlp.bias)?,
            down_proj: Linear::load(loader, &down, intermediate, mlp.bias)?,
        })
    }

    /// Maps `[num_tokens, hidden]` to the same shape.
    pub(in crate::model) fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let activated = timed("gate_up", || self.gate_up_proj.forward_swiglu(x));
        timed("down", || self.down_proj.forward(activated))
    }

    /// Returns the bytes of weights that are pages of a file.
    pub(in crate::model) fn mapped_bytes(&self) -> u64 {
        self.gate_up_proj.mapped_bytes() + self.down_proj.mapped_bytes()
    }
}
