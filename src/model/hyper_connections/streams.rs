//! The residual streams around a part of a layer: HF `Qwen4ExpTextGatedResidual`.
//!
//! `n` are the streams after a norm of each. All products are over all of them. The input of the
//! part is the mean of `σ(up · silu(down · n / count)) · n` over the streams. Its output is added
//! to stream `s` with the factor `2 · σ((inject · n)[s] / count)`.

use burn::tensor::{Tensor, TensorData};
use playhouse_kernels::{Activation, WeightVector, activate, add, rms_norm, scale};

use crate::model::config::{HyperConfig, ModelConfig};
use crate::model::layers::{Linear, Part};
use crate::model::weight_loader::WeightLoader;
use crate::model::{Adapters, ModelError};

/// The modules.
pub(super) const NORM: &str = "hc_norm";
pub(super) const DOWN: &str = "input_mix_weight_down";
pub(super) const UP: &str = "input_mix_weight_up";
pub(super) const INJECT: &str = "block_inject_weight";

/// A norm of root mean squares over each stream, with factors of its own for each.
#[derive(Debug)]
pub(super) struct StreamNorm {
    count: usize,
    /// Ones, `[hidden_size]`.
    ones: WeightVector,
    /// One plus the weight, `[1, count * hidden_size]`.
    factors: Tensor<2>,
    eps: f32,
}

impl StreamNorm {
    /// Loads `{module}.weight`, `[count * hidden_size]`.
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        config: &ModelConfig,
        count: usize,
        module: &str,
    ) -> Result<Self, ModelError> {
        let (name, hidden) = (format!("{module}.weight"), config.hidden_size);
        let size = count * hidden;
        let mut factors = loader.values(&name, &[size])?;
        factors.iter_mut().for_each(|factor| *factor += 1.0);
        Ok(Self {
            count,
            ones: loader.on_device(&name, vec![1.0; hidden])?,
            factors: Tensor::from_data(TensorData::new(factors, [1, size]), loader.device()),
            eps: config.norm.eps,
        })
    }

    /// Maps `[num_tokens, count * hidden_size]` to the same shape.
    pub(super) fn forward(&self, streams: Tensor<2>) -> Tensor<2> {
        let [tokens, size] = streams.dims();
        let each = streams.reshape([tokens * self.count, size / self.count]);
        let normed = rms_norm(each, &self.ones, self.eps);
        normed.reshape([tokens, size]).mul(self.factors.clone())
    }
}

/// The weighted mean of the streams.
#[derive(Debug)]
pub(super) struct Mixed {
    count: usize,
    norm: StreamNorm,
    down: Linear,
    up: Linear,
}

/// The result of a [`Mixed`].
pub(super) struct MixedStreams {
    /// The mean, `[num_tokens, hidden_size]`.
    pub(super) output: Tensor<2>,
    /// The streams after their norms, `[num_tokens, count * hidden_size]`.
    normed: Tensor<2>,
}

impl Mixed {
    /// Loads the modules within `module`.
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        config: &ModelConfig,
        HyperConfig { count, rank }: HyperConfig,
        module: &str,
    ) -> Result<Self, ModelError> {
        let size = count * config.hidden_size;
        let mut matrix = |name: &str, outputs, inputs| {
            Linear::unquantized(loader, &[Part::new(format!("{module}.{name}"), outputs)], inputs)
        };
        let (down, up) = (matrix(DOWN, rank, size)?, matrix(UP, size, rank)?);
        let norm = StreamNorm::load(loader, config, count, &format!("{module}.{NORM}"))?;
        Ok(Self { count, norm, down, up })
    }

    /// Returns the mean of `streams`, `[num_tokens, count * hidden_size]`.
    pub(super) fn forward(&self, streams: &Tensor<2>, adapters: Adapters<'_>) -> MixedStreams {
        let share = 1.0 / self.count as f32;
        let normed = self.norm.forward(streams.clone());
        let low = scale(self.down.forward(normed.clone(), adapters), share);
        let weights = self.up.forward(activate(low, Activation::Silu), adapters);
        let weighted = activate(weights, Activation::Sigmoid).mul(normed.clone());
        let first = stream(&weighted, 0, self.count);
        let sum = (1..self.count)
            .fold(first, |sum, index| add(sum, stream(&weighted, index, self.count)));
        MixedStreams { output: scale(sum, share), normed }
    }

    /// Returns the bytes of weights that are pages of a file.
    pub(super) fn mapped_bytes(&self) -> u64 {
        self.down.mapped_bytes() + self.up.mapped_bytes()
    }
}

/// The streams around a part of a layer.
#[derive(Debug)]
pub(super) struct GatedResidual {
    mixed: Mixed,
    inject: Linear,
}

impl GatedResidual {
    /// Loads the modules within `module`.
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        config: &ModelConfig,
        streams: HyperConfig,
        module: &str,
    ) -> Result<Self, ModelError> {
        let part = [Part::new(format!("{module}.{INJECT}"), streams.count)];
        Ok(Self {
            mixed: Mixed::load(loader, config, streams, module)?,
            inject: Linear::unquantized(loader, &part, streams.count * config.hidden_size)?,
        })
    }

    /// Returns `streams` after a part of the layer, which `part` computes of its input,
    /// `[num_tokens, hidden_size]`.
    pub(super) fn around(
        &self,
        streams: &Tensor<2>,
        adapters: Adapters<'_>,
        part: impl FnOnce(Tensor<2>) -> Tensor<2>,
    ) -> Tensor<2> {
        let count = self.mixed.count;
        let MixedStreams { output, normed } = self.mixed.forward(streams, adapters);
        let scores = scale(self.inject.forward(normed, adapters), 1.0 / count as f32);
        let factors = scale(activate(scores, Activation::Sigmoid), 2.0);
        let output = part(output);
        let added = |index| {
            let term = output.clone().mul(factors.clone().narrow(1, index, 1));
            add(stream(streams, index, count), term)
        };
        Tensor::cat((0..count).map(added).collect(), 1)
    }

    /// Returns the bytes of weights that are pages of a file.
    pub(super) fn mapped_bytes(&self) -> u64 {
        self.mixed.mapped_bytes() + self.inject.mapped_bytes()
    }
}

/// Returns one of `count` streams, `[num_tokens, hidden_size]`.
fn stream(streams: &Tensor<2>, index: usize, count: usize) -> Tensor<2> {
    let width = streams.dims()[1] / count;
    streams.clone().narrow(1, index * width, width)
}
