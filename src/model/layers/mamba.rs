//! Mamba's selective scan (<https://arxiv.org/abs/2312.00752>): HF `MambaMixer`,
//! `FalconMambaMixer` and `JambaMambaMixer`.

use burn::tensor::Tensor;
use playhouse_kernels::{
    Activation, CausalConv, GatedNorm, SelectiveScan, SelectiveScanConfig, WeightVector,
    causal_conv, gated_norm, profile::timed, rms_norm, selective_scan,
};

use super::activation::plain;
use super::mamba2::Convolution;
use super::{LayerPlace, Linear, Part};
use crate::model::config::{MambaConfig, MambaNorms};
use crate::model::weight_loader::{WeightLoader, refused};
use crate::model::{ModelError, Step};

/// The names of the norms of dt, B and C: HF `JambaMambaMixer`.
pub(in crate::model) const NORM_NAMES: [&str; 3] = ["dt_layernorm", "b_layernorm", "c_layernorm"];

/// The scan of one layer.
#[derive(Debug)]
pub(in crate::model) struct Mamba {
    in_proj: Linear,
    conv: CausalConv,
    x_proj: Linear,
    norms: Option<Norms>,
    dt_proj: Linear,
    scan: SelectiveScan,
    gate: GatedNorm,
    out_proj: Linear,
    /// Elements of dt before its projection, of B and of C.
    widths: [usize; 3],
    /// The layer of the KV cache that holds its state.
    kv_layer: usize,
}

/// The norms of dt, B and C.
#[derive(Debug)]
struct Norms {
    weights: [WeightVector; 3],
    eps: f32,
}

impl Mamba {
    /// Maps `[num_tokens, hidden]` to the same shape. Takes the states of the step's cache over
    /// these tokens.
    pub(in crate::model) fn forward(&self, x: Tensor<2>, step: &mut Step<'_>) -> Tensor<2> {
        let adapters = step.adapters();
        let (meta, kv) = step.layer(self.kv_layer);
        let projected = timed("in_proj", || self.in_proj.forward(x, adapters));
        let x = timed("causal_conv", || causal_conv(projected.clone(), 0, &self.conv, kv, meta));
        let [dt, b, c] = timed("x_proj", || self.parts(self.x_proj.forward(x.clone(), adapters)));
        let dt = timed("dt_proj", || self.dt_proj.forward(dt, adapters));
        let channels = self.conv.channels();
        let y = timed("selective_scan", || selective_scan(x, dt, [b, c], &self.scan, kv, meta));
        let y = timed("gate", || gated_norm(y, projected, channels, &self.gate));
        timed("out_proj", || self.out_proj.forward(y, adapters))
    }

    /// Returns dt, B and C, which are side by side in `x`.
    fn parts(&self, x: Tensor<2>) -> [Tensor<2>; 3] {
        let [rows, _] = x.dims();
        let mut start = 0;
        let mut parts = self.widths.map(|width| {
            let part = x.clone().slice([0..rows, start..start + width]);
            start += width;
            part
        });
        if let Some(Norms { weights, eps }) = &self.norms {
            for (part, weight) in parts.iter_mut().zip(weights) {
                *part = rms_norm(part.clone(), weight, *eps);
            }
        }
        parts
    }

    /// Returns the bytes of weights that are pages of a file.
    pub(in crate::model) fn mapped_bytes(&self) -> u64 {
        let layers = [&self.in_proj, &self.x_proj, &self.dt_proj, &self.out_proj];
        layers.into_iter().map(Linear::mapped_bytes).sum()
    }

    /// Loads the scan of the layer at `place`. Its state is in layer `kv_layer` of the KV cache.
    pub(in crate::model) fn load(
        loader: &mut WeightLoader<'_>,
        place: LayerPlace<'_>,
        mamba: &MambaConfig,
        kv_layer: usize,
    ) -> Result<Self, ModelError> {
        let hidden = place.config.hidden_size;
        let module = |name: &str| place.module(&format!("{}.{name}", place.names().mamba));
        let &MambaConfig { channels, state_size, time_step_rank, .. } = mamba;
        let widths = [time_step_rank, state_size, state_size];
        let part = |name, outputs| [Part::new(module(name), outputs)];
        let conv = Convolution {
            module: module("conv1d"),
            kernel: mamba.conv_kernel,
            has_bias: mamba.conv_bias,
            activation: plain(mamba.activation),
        };
        let a = loader.log_rates(&module("A_log"), &[channels, state_size])?;
        let scan = SelectiveScanConfig {
            channels,
            state_size,
            a: a.into_iter().map(|a| -a.exp()).collect(),
            d: loader.values(&module("D"), &[channels])?,
            dt_bias: loader.values(&format!("{}.bias", module("dt_proj")), &[channels])?,
            state_at: CausalConv::state_len(channels, mamba.conv_kernel),
        };
        let norms = match mamba.norms {
            MambaNorms::None => None,
            MambaNorms::Weighted { eps } | MambaNorms::Plain { eps } => {
                let has_weights = matches!(mamba.norms, MambaNorms::Weighted { .. });
                let mut weight = |index: usize| {
                    let name = format!("{}.weight", module(NORM_NAMES[index]));
                    match has_weights {
                        true => loader.vector(&name, widths[index]),
                        false => loader.on_device(&name, vec![1.0; widths[index]]),
                    }
                };
                Some(Norms { weights: [weight(0)?, weight(1)?, weight(2)?], eps })
            }
        };
        let x_proj = part("x_proj", widths.iter().sum());
        Ok(Self {
            in_proj: Linear::load(loader, &part("in_proj", 2 * channels), hidden, mamba.proj_bias)?,
            conv: conv.load(loader, &vec![1.0; channels])?,
            x_proj: Linear::load(loader, &x_proj, channels, false)?,
            norms,
            dt_proj: Linear::load(loader, &part("dt_proj", channels), time_step_rank, false)?,
            scan: SelectiveScan::new(&scan, loader.device()).map_err(refused(&module("A_log")))?,
            gate: GatedNorm {
                norm: None,
                norm_before_gate: false,
                activation: Activation::Silu,
                gate_scale: 1.0,
            },
            out_proj: Linear::load(loader, &part("out_proj", hidden), channels, mamba.proj_bias)?,
            widths,
            kv_layer,
        })
    }
}
