//! A layer of a Conformer (<https://arxiv.org/abs/2005.08100>): HF
//! `Phi4MultimodalAudioConformerEncoderLayer`.
//!
//! It has an MLP, attention, a convolution and another MLP. Their outputs are added to the states,
//! those of the MLPs by half.

use burn::tensor::Tensor;
use playhouse_kernels::{
    Activation, AttentionMask, AttentionMetadata, DistanceBiases, LinearWeight, WeightVector,
    activate, add, add_scaled, gated, linear, profile::timed,
};

use super::conv::{Depthwise, gate_first};
use super::phi4_config::{PIECE, Phi4Sounds};
use crate::model::encoder_decoder::{AttentionBias, AttentionForm, NORM, SelfAttention};
use crate::model::layers::{Linear, Norm, Part};
use crate::model::weight_loader::{WeightLoader, refused};
use crate::model::{Adapters, ModelError};

/// The modules of an MLP and of attention in the authors' code.
const GATE_UP: [&str; 2] = ["gate_up_proj", "net.0.linear"];
const DOWN: [&str; 2] = ["down_proj", "net.2"];
const NAMES: [&str; 4] = ["q_proj", "k_proj", "v_proj", "o_proj"];
const NAMES_OF_AUTHORS: [&str; 4] = ["linear_q", "linear_k", "linear_v", "linear_out"];

/// One layer.
#[derive(Debug)]
pub(super) struct ConformerLayer {
    first: Mlp,
    attention_norm: Norm,
    attention: SelfAttention,
    convolution: Convolution,
    second: Mlp,
    norm: Norm,
}

impl ConformerLayer {
    /// Loads the layer `module`. `biases` is the table of those of distances.
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        module: &str,
        config: &Phi4Sounds,
        biases: &[f32],
    ) -> Result<Self, ModelError> {
        let hidden = config.hidden_size;
        let full = |name: &str| format!("{module}.{name}");
        let attention = full("self_attn");
        let is_of_authors = loader.has(&format!("{attention}.{}.weight", NAMES_OF_AUTHORS[0]));
        let heads = config.num_heads;
        let form = AttentionForm {
            hidden,
            heads,
            head_dim: hidden / heads,
            names: if is_of_authors { NAMES_OF_AUTHORS } else { NAMES },
            bias: AttentionBias::All,
            scale: ((hidden / heads) as f32).powf(-0.5),
        };
        let bias = |head: usize, distance: i64| biases[config.bias_place(distance) * heads + head];
        let distances = DistanceBiases::new(heads, PIECE, bias, loader.device());
        let distances = Some(distances.map_err(refused(&attention))?);
        let mask = AttentionMask::Both;
        Ok(Self {
            first: Mlp::load(loader, &full("feed_forward_in"), config)?,
            attention_norm: Norm::load(loader, &full("layer_norm_att"), hidden, NORM)?,
            attention: {
                let load = Linear::of_media;
                SelfAttention::load(loader, &attention, &form, mask, distances, load)?
            },
            convolution: Convolution::load(loader, &full("conv"), config)?,
            second: Mlp::load(loader, &full("feed_forward_out"), config)?,
            norm: Norm::load(loader, &full("layer_norm"), hidden, NORM)?,
        })
    }

    /// Maps the states of pieces of a sound, `[rows, hidden_size]`, to the same shape. No state
    /// sees another piece.
    pub(super) fn forward(&self, x: Tensor<2>, pieces: &AttentionMetadata) -> Tensor<2> {
        let x = add_scaled(x.clone(), self.first.forward(x), 0.5);
        let attended = self.attention.of_frames(self.attention_norm.forward(x.clone()), pieces);
        let x = add(x, attended);
        let x = add(x.clone(), self.convolution.forward(x, pieces));
        self.norm.forward(add_scaled(x.clone(), self.second.forward(x), 0.5))
    }

    /// Returns the bytes of weights that are pages of a file.
    pub(super) fn mapped_bytes(&self) -> u64 {
        self.first.mapped_bytes()
            + self.attention.mapped_bytes()
            + self.convolution.mapped_bytes()
            + self.second.mapped_bytes()
    }
}

/// `down(up(x) · act(gate(x)))` of normed states.
#[derive(Debug)]
struct Mlp {
    norm: Norm,
    /// The gate first.
    gate_up: Linear,
    activation: Activation,
    down: Linear,
}

impl Mlp {
    fn load(
        loader: &mut WeightLoader<'_>,
        module: &str,
        config: &Phi4Sounds,
    ) -> Result<Self, ModelError> {
        let Phi4Sounds { hidden_size, intermediate_size, activation, .. } = *config;
        let stored = |loader: &WeightLoader<'_>, names: [&str; 2]| {
            let modules = names.map(|name| format!("{module}.{name}"));
            let [usual, other] = modules;
            if loader.has(&format!("{other}.weight")) { other } else { usual }
        };
        // The checkpoint has the gate behind the other half.
        let both = Part::new(stored(loader, GATE_UP), 2 * intermediate_size).halves_swapped();
        let down = Part::new(stored(loader, DOWN), hidden_size);
        Ok(Self {
            norm: Norm::load(loader, &format!("{module}.layer_norm"), hidden_size, NORM)?,
            gate_up: Linear::of_media(loader, &[both], hidden_size, true)?,
            activation,
            down: Linear::of_media(loader, &[down], intermediate_size, true)?,
        })
    }

    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let (x, none) = (self.norm.forward(x), Adapters::none());
        let inner = timed("gate_up", || self.gate_up.forward_gated(x, self.activation, none));
        timed("down", || self.down.forward(inner, none))
    }

    fn mapped_bytes(&self) -> u64 {
        self.gate_up.mapped_bytes() + self.down.mapped_bytes()
    }
}

/// A gate of normed states, and a convolution along time, which sees no later state.
#[derive(Debug)]
struct Convolution {
    norm: Norm,
    /// `[2 · hidden_size, hidden_size]`: the gate first.
    weight: LinearWeight,
    bias: WeightVector,
    glu_activation: Activation,
    each: Depthwise,
    mixing: Linear,
    activation: Activation,
    out: Linear,
}

impl Convolution {
    fn load(
        loader: &mut WeightLoader<'_>,
        module: &str,
        config: &Phi4Sounds,
    ) -> Result<Self, ModelError> {
        let Phi4Sounds { hidden_size: hidden, kernel_size, .. } = *config;
        let full = |name: &str| format!("{module}.{name}");
        let each = full("dw_sep_conv_1d.dw_conv");
        let stored = loader.values(&format!("{each}.weight"), &[hidden, 1, kernel_size])?;
        let biases = loader.values(&format!("{each}.bias"), &[hidden])?;
        let each = Depthwise::new(&stored, biases, kernel_size - 1, loader.device());
        let (weight, bias) = glu(loader, &full("glu"), hidden)?;
        let shape = [hidden, hidden, 1];
        Ok(Self {
            norm: Norm::load(loader, &full("layer_norm"), hidden, NORM)?,
            weight,
            bias,
            glu_activation: config.glu_activation,
            each,
            mixing: Linear::of_patches(loader, &full("dw_sep_conv_1d.pw_conv"), &shape, true)?,
            activation: config.conv_activation,
            out: Linear::of_patches(loader, &full("ext_pw_conv_1d"), &shape, true)?,
        })
    }

    fn forward(&self, x: Tensor<2>, pieces: &AttentionMetadata) -> Tensor<2> {
        let x = linear(self.norm.forward(x), &self.weight, Some(&self.bias));
        let x = gated(x, self.glu_activation);
        let ([_, width], bounds) = (x.dims(), pieces.query_start_loc.windows(2));
        let piece = |bounds: &[u32]| {
            let rows = bounds[0] as usize..bounds[1] as usize;
            self.each.forward(x.clone().slice([rows, 0..width]))
        };
        let x = Tensor::cat(bounds.map(piece).collect(), 0);
        let x = activate(self.mixing.forward(x, Adapters::none()), self.activation);
        self.out.forward(x, Adapters::none())
    }

    fn mapped_bytes(&self) -> u64 {
        self.weight.mapped_bytes() as u64 + self.mixing.mapped_bytes() + self.out.mapped_bytes()
    }
}

/// Loads the gated product `module`. A number for each channel is added to each half.
fn glu(
    loader: &mut WeightLoader<'_>,
    module: &str,
    hidden: usize,
) -> Result<(LinearWeight, WeightVector), ModelError> {
    let conv = format!("{module}.ext_pw_conv_1d");
    let (weight, mut biases) = gate_first(loader, &conv, [2 * hidden, hidden])?;
    for (half, name) in biases.chunks_exact_mut(hidden).zip(["b2", "b1"]) {
        let added = loader.values(&format!("{module}.{name}"), &[1, hidden, 1])?;
        half.iter_mut().zip(added).for_each(|(bias, added)| *bias += added);
    }
    let biases = loader.on_device(&conv, biases)?;
    Ok((weight, biases))
}
