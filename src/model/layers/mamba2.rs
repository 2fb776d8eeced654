//! Mamba 2's state-space model (<https://arxiv.org/abs/2405.21060>): HF `Mamba2Mixer`,
//! `BambaMixer`, `GraniteMoeHybridMambaLayer`, `FalconH1Mixer`, `NemotronHMamba2Mixer`.

use burn::tensor::Tensor;
use playhouse_kernels::{
    Activation, CausalConv, GatedNorm, GroupNorm, Ssd, SsdConfig, causal_conv, gated_norm,
    profile::timed, scale, ssd,
};

use super::activation::plain;
use super::{LayerPlace, Linear, Part};
use crate::model::config::{Mamba2Config, Mamba2Norm};
use crate::model::weight_loader::{WeightLoader, refused};
use crate::model::{ModelError, Step};

/// The model of one layer.
#[derive(Debug)]
pub(in crate::model) struct Mamba2 {
    in_proj: Linear,
    conv: CausalConv,
    ssd: Ssd,
    norm: GatedNorm,
    out_proj: Linear,
    input_multiplier: f32,
    output_multiplier: f32,
    /// The first columns of x, and of dt, in the projected input. The gate comes before both.
    columns: [usize; 2],
    /// The layer of the KV cache that holds its state.
    kv_layer: usize,
}

impl Mamba2 {
    /// Maps `[num_tokens, hidden]` to the same shape. Takes the states of the step's cache over
    /// these tokens.
    pub(in crate::model) fn forward(&self, x: Tensor<2>, step: &mut Step<'_>) -> Tensor<2> {
        let adapters = step.adapters();
        let (meta, kv) = step.layer(self.kv_layer);
        let [x_column, dt_column] = self.columns;
        let x = scaled(x, self.input_multiplier);
        let projected = timed("in_proj", || self.in_proj.forward(x, adapters));
        let xbc =
            timed("causal_conv", || causal_conv(projected.clone(), x_column, &self.conv, kv, meta));
        let y = timed("ssd", || ssd(xbc, projected.clone(), dt_column, &self.ssd, kv, meta));
        let y = timed("gated_norm", || gated_norm(y, projected, 0, &self.norm));
        scaled(timed("out_proj", || self.out_proj.forward(y, adapters)), self.output_multiplier)
    }

    /// Returns the bytes of weights that are pages of a file.
    pub(in crate::model) fn mapped_bytes(&self) -> u64 {
        self.in_proj.mapped_bytes() + self.out_proj.mapped_bytes()
    }

    /// Loads the model of the layer at `place`. Its state is in layer `kv_layer` of the KV cache.
    pub(in crate::model) fn load(
        loader: &mut WeightLoader<'_>,
        place: LayerPlace<'_>,
        mamba: &Mamba2Config,
        kv_layer: usize,
    ) -> Result<Self, ModelError> {
        let hidden = place.config.hidden_size;
        let module = |name: &str| place.module(&format!("{}.{name}", place.names().mamba));
        let (inner, heads) = (mamba.inner_size(), mamba.num_heads);
        let [gate, x, b, c, dt] = mamba.multipliers.projected;
        let in_proj = [Part::new(module("in_proj"), mamba.projected_size())];
        let out_proj = [Part::new(module("out_proj"), hidden)];
        let of_state = mamba.num_groups * mamba.state_size;
        let channels = [(inner, x), (of_state, b), (of_state, c)];
        let multipliers = channels.into_iter().flat_map(|(len, multiplier)| vec![multiplier; len]);
        let conv = Convolution {
            module: module("conv1d"),
            kernel: mamba.conv_kernel,
            has_bias: mamba.conv_bias,
            activation: plain(mamba.activation),
        };
        let conv = conv.load(loader, &multipliers.collect::<Vec<f32>>())?;
        let a = loader.log_rates(&module("A_log"), &[heads])?;
        let config = SsdConfig {
            num_heads: heads,
            head_dim: mamba.head_dim,
            state_size: mamba.state_size,
            num_groups: mamba.num_groups,
            a: a.into_iter().map(|a| -a.exp()).collect(),
            d: loader.values(&module("D"), &[heads])?,
            dt_bias: loader.values(&module("dt_bias"), &[heads])?,
            dt_scale: dt,
            dt_limit: mamba.dt_limit,
            state_at: CausalConv::state_len(mamba.conv_size(), mamba.conv_kernel),
        };
        let norm = mamba.norm.map(|Mamba2Norm { num_groups, eps, .. }| {
            let weight = loader.vector(&format!("{}.weight", module("norm")), inner)?;
            Ok::<_, ModelError>(GroupNorm { weight, num_groups, eps })
        });
        Ok(Self {
            in_proj: Linear::load(loader, &in_proj, hidden, mamba.in_bias)?,
            conv,
            ssd: Ssd::new(config, loader.device()).map_err(refused(&module("A_log")))?,
            norm: GatedNorm {
                norm: norm.transpose()?,
                norm_before_gate: mamba.norm.is_some_and(|norm| norm.before_gate),
                activation: Activation::Silu,
                gate_scale: gate,
            },
            out_proj: Linear::load(loader, &out_proj, inner, mamba.out_bias)?,
            input_multiplier: mamba.multipliers.input,
            output_multiplier: mamba.multipliers.output,
            columns: [inner, inner + mamba.conv_size()],
            kv_layer,
        })
    }
}

/// A convolution in the checkpoint, whose window is the first part of the layer's state.
pub(super) struct Convolution {
    pub(super) module: String,
    pub(super) kernel: usize,
    pub(super) has_bias: bool,
    pub(super) activation: Option<Activation>,
}

impl Convolution {
    /// Loads `{module}.weight`, `[channels, 1, kernel]`, and `{module}.bias`. The input of each
    /// channel is multiplied by its number of `multipliers`, `[channels]`.
    pub(super) fn load(
        self,
        loader: &mut WeightLoader<'_>,
        multipliers: &[f32],
    ) -> Result<CausalConv, ModelError> {
        let Self { module, kernel, has_bias, activation } = self;
        let channels = multipliers.len();
        let mut weight = loader.values(&format!("{module}.weight"), &[channels, 1, kernel])?;
        for (taps, multiplier) in weight.chunks_exact_mut(kernel).zip(multipliers) {
            taps.iter_mut().for_each(|tap| *tap *= multiplier);
        }
        let bias = has_bias.then(|| loader.values(&format!("{module}.bias"), &[channels]));
        let bias = bias.transpose()?;
        CausalConv::new(&weight, bias.as_deref(), kernel, activation, 0, loader.device())
            .map_err(refused(&module))
    }
}

impl Convolution {
    /// Loads the same without a bias from modules with so many channels each, which follow each
    /// other.
    pub(super) fn of_modules(
        self,
        loader: &mut WeightLoader<'_>,
        modules: &[(String, usize)],
    ) -> Result<CausalConv, ModelError> {
        let Self { module, kernel, activation, .. } = self;
        let mut weight = Vec::new();
        for (name, channels) in modules {
            weight.extend(loader.values(&format!("{name}.weight"), &[*channels, 1, kernel])?);
        }
        CausalConv::new(&weight, None, kernel, activation, 0, loader.device())
            .map_err(refused(&module))
    }

    /// Loads the same without a bias, `[channels, 1, kernel]`. Channel `i` is row `rows[i]`.
    pub(super) fn of_rows(
        self,
        loader: &mut WeightLoader<'_>,
        rows: &[u32],
    ) -> Result<CausalConv, ModelError> {
        let Self { module, kernel, activation, .. } = self;
        let stored = loader.values(&format!("{module}.weight"), &[rows.len(), 1, kernel])?;
        let taps = |row: &u32| &stored[*row as usize * kernel..(*row as usize + 1) * kernel];
        let weight: Vec<f32> = rows.iter().flat_map(taps).copied().collect();
        CausalConv::new(&weight, None, kernel, activation, 0, loader.device())
            .map_err(refused(&module))
    }
}

/// Returns x times a factor, or x itself.
pub(super) fn scaled(x: Tensor<2>, factor: f32) -> Tensor<2> {
    if factor == 1.0 { x } else { scale(x, factor) }
}
