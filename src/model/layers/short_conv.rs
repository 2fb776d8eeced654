//! Gated convolutions over a few tokens: HF `Lfm2ShortConv`.

use burn::tensor::Tensor;
use playhouse_kernels::{
    Activation, CausalConv, GatedNorm, causal_conv, gated_norm, profile::timed,
};

use super::mamba2::Convolution;
use super::{LayerPlace, Linear, Part};
use crate::model::config::ShortConvConfig;
use crate::model::weight_loader::WeightLoader;
use crate::model::{ModelError, Step};

pub(in crate::model) const CONV: &str = "conv.conv";
pub(in crate::model) const IN: &str = "conv.in_proj";
pub(in crate::model) const OUT: &str = "conv.out_proj";

/// The product of each element with that of another tensor.
const PRODUCT: GatedNorm = GatedNorm {
    norm: None,
    norm_before_gate: false,
    activation: Activation::Identity,
    gate_scale: 1.0,
};

/// `out(C · conv(B · x))`, where one projection gives B, C and x.
#[derive(Debug)]
pub(in crate::model) struct ShortConv {
    input: Linear,
    /// B, then C.
    gates: Linear,
    conv: CausalConv,
    out: Linear,
    /// The layer of the KV cache that holds its windows.
    kv_layer: usize,
}

impl ShortConv {
    /// Maps `[num_tokens, hidden]` to the same shape. Takes the windows of the step's sequences
    /// over these tokens.
    pub(in crate::model) fn forward(&self, x: Tensor<2>, step: &mut Step<'_>) -> Tensor<2> {
        let adapters = step.adapters();
        let (meta, kv) = step.layer(self.kv_layer);
        let (gates, x) = timed("qkv", || {
            (self.gates.forward(x.clone(), adapters), self.input.forward(x, adapters))
        });
        let x = gated_norm(x, gates.clone(), 0, &PRODUCT);
        let y = timed("conv", || causal_conv(x, 0, &self.conv, kv, meta));
        let y = gated_norm(y, gates, self.conv.channels(), &PRODUCT);
        timed("o", || self.out.forward(y, adapters))
    }

    /// Returns the bytes of weights that are pages of a file.
    pub(in crate::model) fn mapped_bytes(&self) -> u64 {
        [&self.input, &self.gates, &self.out].iter().map(|linear| linear.mapped_bytes()).sum()
    }

    /// Loads the mixer of the layer at `place`.
    pub(in crate::model) fn load(
        loader: &mut WeightLoader<'_>,
        place: LayerPlace<'_>,
        config: &ShortConvConfig,
    ) -> Result<Self, ModelError> {
        let ShortConvConfig { channels, kernel, bias } = *config;
        let hidden = place.config.hidden_size;
        let [gates, input] = parts(place, channels).map(|part| [part]);
        let out = [Part::new(place.module(OUT), hidden)];
        let conv =
            Convolution { module: place.module(CONV), kernel, has_bias: bias, activation: None };
        Ok(Self {
            input: Linear::load(loader, &input, hidden, bias)?,
            gates: Linear::load(loader, &gates, hidden, bias)?,
            conv: conv.load(loader, &vec![1.0; channels])?,
            out: Linear::load(loader, &out, channels, bias)?,
            kv_layer: place.kv_layer(),
        })
    }
}

/// Returns the rows of the gates, and those of the input, which are in one module.
pub(super) fn parts(place: LayerPlace<'_>, channels: usize) -> [Part; 2] {
    let split = 2 * channels as u32;
    let part = |rows| Part::some_rows(place.module(IN), rows, 3 * channels);
    [0..split, split..split + channels as u32].map(part)
}
