//! Griffin's recurrent block: HF `RecurrentGemmaRecurrentBlock`
//! (<https://arxiv.org/abs/2402.19427>).

use burn::tensor::Tensor;
use playhouse_kernels::{
    CausalConv, GatedNorm, LatentProjections, LinearWeight, RgLru, RgLruConfig, WeightView,
    causal_conv, gated_norm, latent_values, profile::timed, rg_lru,
};

use super::mamba2::Convolution;
use super::{LayerPlace, Linear, Part, activation};
use crate::model::config::GriffinConfig;
use crate::model::weight_loader::{WeightLoader, refused};
use crate::model::{ModelError, Step};

pub(in crate::model) const CONV: &str = "temporal_block.conv_1d";
pub(in crate::model) const OUT: &str = "temporal_block.linear_out";
const INPUTS: [&str; 2] = ["temporal_block.linear_x", "temporal_block.linear_y"];
pub(in crate::model) const RATES: &str = "temporal_block.rg_lru.recurrent_param";
/// The matrices of the gates, `[num_heads, head_dim, head_dim]`, inputs before outputs.
pub(in crate::model) const GATES: [&str; 2] =
    ["temporal_block.rg_lru.input_gate_weight", "temporal_block.rg_lru.recurrent_gate_weight"];
/// The biases of the gates, `[num_heads, head_dim]`.
pub(in crate::model) const GATE_BIASES: [&str; 2] =
    ["temporal_block.rg_lru.input_gate_bias", "temporal_block.rg_lru.recurrent_gate_bias"];

/// The factor of the softplus of a channel's parameter.
const RATE: f32 = 8.0;

/// `out(act(y(x)) · lru(conv(x(x))))`.
#[derive(Debug)]
pub(in crate::model) struct Griffin {
    /// The branch that the convolution takes, then its gate.
    input: Linear,
    conv: CausalConv,
    /// The matrix of each head to its input gates and its recurrence gates.
    gates: LatentProjections,
    lru: RgLru,
    gate: GatedNorm,
    out: Linear,
    /// The layer of the KV cache that holds its states.
    kv_layer: usize,
}

impl Griffin {
    /// Maps `[num_tokens, hidden]` to the same shape. Takes the states of the step's sequences over
    /// these tokens.
    pub(in crate::model) fn forward(&self, x: Tensor<2>, step: &mut Step<'_>) -> Tensor<2> {
        let adapters = step.adapters();
        let (meta, kv) = step.layer(self.kv_layer);
        let projected = timed("qkv", || self.input.forward(x, adapters));
        let x = timed("conv", || causal_conv(projected.clone(), 0, &self.conv, kv, meta));
        let gates = timed("gates", || latent_values(x.clone(), &self.gates));
        let y = timed("rg_lru", || rg_lru(x, gates, &self.lru, kv, meta));
        let y = gated_norm(y, projected, self.conv.channels(), &self.gate);
        timed("o", || self.out.forward(y, adapters))
    }

    /// Returns the bytes of weights that are pages of a file.
    pub(in crate::model) fn mapped_bytes(&self) -> u64 {
        let linears = [&self.input, &self.out];
        let linears: u64 = linears.iter().map(|linear| linear.mapped_bytes()).sum();
        linears + self.gates.mapped_bytes() as u64
    }

    /// Loads the mixer of the layer at `place`.
    pub(in crate::model) fn load(
        loader: &mut WeightLoader<'_>,
        place: LayerPlace<'_>,
        config: &GriffinConfig,
    ) -> Result<Self, ModelError> {
        let (hidden, width) = (place.config.hidden_size, config.width);
        let input = inputs(config, |name| place.module(name));
        let conv = Convolution {
            module: place.module(CONV),
            kernel: config.kernel,
            has_bias: true,
            activation: None,
        };
        let rates = loader.values(&place.module(RATES), &[width])?;
        let lru = RgLruConfig {
            num_heads: config.num_heads,
            rates: rates.into_iter().map(|x| RATE * softplus(x)).collect(),
            gate_biases: gate_biases(loader, place, config)?,
            state_at: config.lru_at(),
        };
        Ok(Self {
            input: Linear::load(loader, &input, hidden, true)?,
            conv: conv.load(loader, &vec![1.0; width])?,
            gates: gates(loader, place, config)?,
            lru: RgLru::new(&lru, loader.device()).map_err(refused(&place.module(RATES)))?,
            gate: GatedNorm {
                norm: None,
                norm_before_gate: false,
                activation: activation::load(loader, place, config.activation)?,
                gate_scale: 1.0,
            },
            out: Linear::load(loader, &[Part::new(place.module(OUT), hidden)], width, true)?,
            kv_layer: place.kv_layer(),
        })
    }
}

/// Returns the modules of both branches.
pub(in crate::model) fn inputs(
    config: &GriffinConfig,
    module: impl Fn(&str) -> String,
) -> [Part; 2] {
    INPUTS.map(|name| Part::new(module(name), config.width))
}

/// Loads the matrices of heads. They decide how long a channel remembers, so they are never
/// quantized.
fn gates(
    loader: &mut WeightLoader<'_>,
    place: LayerPlace<'_>,
    config: &GriffinConfig,
) -> Result<LatentProjections, ModelError> {
    let (num_heads, dim) = (config.num_heads, config.head_dim());
    let mut both = Vec::new();
    for name in GATES {
        both.push(loader.values(&place.module(name), &[num_heads, dim, dim])?);
    }
    let head = |head: usize| {
        let of_head = |matrices: &Vec<f32>| {
            let matrix = &matrices[head * dim * dim..][..dim * dim];
            (0..dim).flat_map(|output| matrix.iter().skip(output).step_by(dim)).copied().collect()
        };
        let elements: Vec<f32> = both.iter().flat_map(|it| -> Vec<f32> { of_head(it) }).collect();
        let views = [WeightView::F32(&elements)];
        LinearWeight::pack(&views, dim, loader.dtype(), loader.device())
    };
    let heads = (0..num_heads).map(head).collect::<Result<Vec<_>, _>>();
    heads.and_then(LatentProjections::of_values).map_err(refused(&place.module(GATES[0])))
}

/// Loads the biases of gates, `[num_heads, 2, head_dim]`.
fn gate_biases(
    loader: &mut WeightLoader<'_>,
    place: LayerPlace<'_>,
    config: &GriffinConfig,
) -> Result<Vec<f32>, ModelError> {
    let (num_heads, dim) = (config.num_heads, config.head_dim());
    let mut load = |name: &str| loader.values(&place.module(name), &[num_heads, dim]);
    let [inputs, recurrences] = GATE_BIASES;
    let (inputs, recurrences) = (load(inputs)?, load(recurrences)?);
    let heads = inputs.chunks_exact(dim).zip(recurrences.chunks_exact(dim));
    Ok(heads.flat_map(|(input, recurrence)| [input, recurrence].concat()).collect())
}

fn softplus(x: f32) -> f32 {
    let x = f64::from(x);
    (x.max(0.0) + (-x.abs()).exp().ln_1p()) as f32
}
