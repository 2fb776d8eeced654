//! A layer of the Conformer of Granite Speech: HF `GraniteSpeechConformerBlock`.
//!
//! It has an MLP, attention, a convolution and another MLP, as that of [`super::conformer`]. No MLP
//! has a gate, and a convolution sees earlier and later states.

use burn::tensor::Tensor;
use playhouse_kernels::{
    Activation, LinearWeight, WeightVector, activate, add, add_scaled, gated, linear,
};

use super::conv::{Depthwise, gate_first};
use super::granite_config::GraniteSounds;
use super::shaw::{Blocks, ShawAttention};
use crate::model::encoder_decoder::{FeedForward, FeedForwardForm, NORM};
use crate::model::layers::{Linear, Norm};
use crate::model::weight_loader::WeightLoader;
use crate::model::{Adapters, ModelError};

/// One layer.
#[derive(Debug)]
pub(super) struct GraniteLayer {
    first: Mlp,
    attention_norm: Norm,
    attention: ShawAttention,
    convolution: Convolution,
    second: Mlp,
    norm: Norm,
}

impl GraniteLayer {
    /// Loads the layer `module`.
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        module: &str,
        config: &GraniteSounds,
    ) -> Result<Self, ModelError> {
        let hidden = config.hidden_size;
        let full = |name: &str| format!("{module}.{name}");
        Ok(Self {
            first: Mlp::load(loader, &full("ff1"), config)?,
            attention_norm: Norm::load(loader, &full("attn.pre_norm"), hidden, NORM)?,
            attention: ShawAttention::load(loader, &full("attn"), config)?,
            convolution: Convolution::load(loader, &full("conv"), config)?,
            second: Mlp::load(loader, &full("ff2"), config)?,
            norm: Norm::load(loader, &full("post_norm"), hidden, NORM)?,
        })
    }

    /// Maps the states of a sound, `[count, hidden_size]`, to the same shape.
    pub(super) fn forward(&self, x: Tensor<2>, blocks: &Blocks) -> Tensor<2> {
        let x = add_scaled(x.clone(), self.first.forward(x), 0.5);
        let attended = self.attention.forward(self.attention_norm.forward(x.clone()), blocks);
        let x = add(x, attended);
        let x = add(x.clone(), self.convolution.forward(x));
        self.norm.forward(add_scaled(x.clone(), self.second.forward(x), 0.5))
    }

    /// Returns the bytes of weights that are pages of a file.
    pub(super) fn mapped_bytes(&self) -> u64 {
        self.first.part.mapped_bytes()
            + self.attention.mapped_bytes()
            + self.convolution.mapped_bytes()
            + self.second.part.mapped_bytes()
    }
}

/// `down(silu(up(x)))` of normed states.
#[derive(Debug)]
struct Mlp {
    norm: Norm,
    part: FeedForward,
}

impl Mlp {
    fn load(
        loader: &mut WeightLoader<'_>,
        module: &str,
        config: &GraniteSounds,
    ) -> Result<Self, ModelError> {
        let form = FeedForwardForm {
            hidden: config.hidden_size,
            intermediate: config.intermediate_size,
            inner: &["up_proj"],
            outer: "down_proj",
            has_bias: true,
            activation: Activation::Silu,
        };
        Ok(Self {
            norm: Norm::load(loader, &format!("{module}.pre_norm"), form.hidden, NORM)?,
            part: FeedForward::load(loader, module, &form, Linear::of_media)?,
        })
    }

    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        self.part.forward(self.norm.forward(x), Adapters::none())
    }
}

/// A gate of normed states, and a convolution along time.
#[derive(Debug)]
struct Convolution {
    norm: Norm,
    /// `[2 · conv_size, hidden_size]`: the gate first.
    weight: LinearWeight,
    bias: WeightVector,
    each: Depthwise,
    down: Linear,
}

impl Convolution {
    fn load(
        loader: &mut WeightLoader<'_>,
        module: &str,
        config: &GraniteSounds,
    ) -> Result<Self, ModelError> {
        let GraniteSounds { hidden_size: hidden, conv_size, .. } = *config;
        let full = |name: &str| format!("{module}.{name}");
        let up = full("up_conv");
        let (weight, biases) = gate_first(loader, &up, [2 * conv_size, hidden])?;
        let down = [hidden, conv_size, 1];
        Ok(Self {
            norm: Norm::load(loader, &full("norm"), hidden, NORM)?,
            weight,
            bias: loader.on_device(&up, biases)?,
            each: normed(loader, module, config)?,
            down: Linear::of_patches(loader, &full("down_conv"), &down, true)?,
        })
    }

    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let x = linear(self.norm.forward(x), &self.weight, Some(&self.bias));
        let x = self.each.forward(gated(x, Activation::Sigmoid));
        self.down.forward(activate(x, Activation::Silu), Adapters::none())
    }

    fn mapped_bytes(&self) -> u64 {
        self.weight.mapped_bytes() as u64 + self.down.mapped_bytes()
    }
}

/// Loads the convolution of each channel. The norm behind it has fixed means and variances (HF
/// `nn.BatchNorm1d`), so its factors and its biases become those of the convolution.
fn normed(
    loader: &mut WeightLoader<'_>,
    module: &str,
    config: &GraniteSounds,
) -> Result<Depthwise, ModelError> {
    const EPS: f32 = 1e-5;
    let GraniteSounds { conv_size: channels, kernel_size, .. } = *config;
    let name = format!("{module}.depth_conv.conv.weight");
    let mut kernels = loader.values(&name, &[channels, 1, kernel_size])?;
    let mut of_norm =
        |name: &str| loader.values(&format!("{module}.batch_norm.{name}"), &[channels]);
    let (weight, mut biases) = (of_norm("weight")?, of_norm("bias")?);
    let (means, variances) = (of_norm("running_mean")?, of_norm("running_var")?);
    for (channel, kernel) in kernels.chunks_exact_mut(kernel_size).enumerate() {
        let factor = weight[channel] / (variances[channel] + EPS).sqrt();
        kernel.iter_mut().for_each(|value| *value *= factor);
        biases[channel] -= means[channel] * factor;
    }
    // Of an even kernel, one element more is of earlier states.
    Ok(Depthwise::new(&kernels, biases, kernel_size / 2, loader.device()))
}
