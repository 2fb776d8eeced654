//! Kimi's delta rule: HF `KimiLinearDeltaAttention` (<https://arxiv.org/abs/2510.26692>).
//!
//! | tensor | shape |
//! |---|---|
//! | q, k, v | `[num_tokens, num_heads * head_dim]` each, after a convolution |
//! | gates of states, gates of outputs | `[num_tokens, num_heads * head_dim]` |
//! | b | `[num_tokens, num_heads]` |

use burn::tensor::Tensor;
use playhouse_kernels::{
    Activation, CausalConv, GatedNorm, GroupNorm, KimiDeltaRule, causal_conv, gated_norm,
    kimi_delta_rule, profile::timed,
};

use super::mamba2::Convolution;
use super::{LayerPlace, Linear, Part, activation};
use crate::model::config::KimiDeltaConfig;
use crate::model::weight_loader::{WeightLoader, refused};
use crate::model::{Adapters, ModelError, Step};

pub(in crate::model) const NORM: &str = "o_norm";
pub(in crate::model) const A_LOG: &str = "A_log";
pub(in crate::model) const DT_BIAS: &str = "dt_bias";
pub(in crate::model) const CONVS: [&str; 3] = ["q_conv1d", "k_conv1d", "v_conv1d"];

/// Kimi's delta rule of one layer.
#[derive(Debug)]
pub(in crate::model) struct KimiDelta {
    qkv: Linear,
    /// The gates of the rows of states.
    forget: Gate,
    b: Linear,
    conv: CausalConv,
    rule: KimiDeltaRule,
    /// The gates of outputs.
    gate: Gate,
    norm: GatedNorm,
    out: Linear,
    /// The layer of the KV cache that holds its states.
    kv_layer: usize,
}

/// One matrix, or two with a small width between them.
#[derive(Debug)]
struct Gate {
    matrices: Vec<Linear>,
}

impl Gate {
    fn forward(&self, x: Tensor<2>, adapters: Adapters<'_>) -> Tensor<2> {
        self.matrices.iter().fold(x, |x, matrix| matrix.forward(x, adapters))
    }
}

impl KimiDelta {
    /// Maps `[num_tokens, hidden]` to the same shape. Takes the states of the step's sequences over
    /// these tokens.
    pub(in crate::model) fn forward(&self, x: Tensor<2>, step: &mut Step<'_>) -> Tensor<2> {
        let adapters = step.adapters();
        let (meta, kv) = step.layer(self.kv_layer);
        let qkv = timed("qkv", || self.qkv.forward(x.clone(), adapters));
        let (forget, b) = timed("gates", || {
            (self.forget.forward(x.clone(), adapters), self.b.forward(x.clone(), adapters))
        });
        let qkv = timed("conv", || causal_conv(qkv, 0, &self.conv, kv, meta));
        let y = timed("delta_rule", || kimi_delta_rule(qkv, forget, b, &self.rule, kv, meta));
        let y = gated_norm(y, self.gate.forward(x, adapters), 0, &self.norm);
        timed("o", || self.out.forward(y, adapters))
    }

    /// Returns the bytes of weights that are pages of a file.
    pub(in crate::model) fn mapped_bytes(&self) -> u64 {
        let gates = self.forget.matrices.iter().chain(&self.gate.matrices);
        let all = [&self.qkv, &self.b, &self.out].into_iter().chain(gates);
        all.map(Linear::mapped_bytes).sum()
    }

    /// Loads the mixer of the layer at `place`.
    pub(in crate::model) fn load(
        loader: &mut WeightLoader<'_>,
        place: LayerPlace<'_>,
        config: &KimiDeltaConfig,
    ) -> Result<Self, ModelError> {
        let hidden = place.config.hidden_size;
        let module = |name: &str| place.module(&config.module(name));
        let KimiParts { qkv, forget, b, gate, out } =
            KimiParts::of(config, hidden, |name| place.module(name));
        let conv = Convolution {
            module: module(CONVS[0]),
            kernel: config.kernel,
            has_bias: false,
            activation: Some(activation::load(loader, place, config.activation)?),
        };
        let convs = CONVS.map(|name| (module(name), config.width()));
        let conv = conv.of_modules(loader, &convs)?;
        let name = module(A_LOG);
        let a_log = loader.values(&name, &config.a_log_shape())?;
        let dt_bias = loader.values(&module(DT_BIAS), &[config.width()])?;
        let rule = KimiDeltaRule::new(
            config.heads(),
            &a_log,
            dt_bias,
            config.decay,
            config.heads_at(),
            loader.device(),
        );
        let norm = format!("{}.weight", module(NORM));
        let norm = GroupNorm {
            weight: loader.vector(&norm, config.head_dim)?,
            num_groups: config.num_heads,
            eps: place.config.norm.eps,
        };
        // The gates of states and b decide how long a head remembers, so they are never quantized.
        let mut forget_matrices = Vec::new();
        for (part, inputs) in forget {
            forget_matrices.push(Linear::unquantized(loader, &[part], inputs)?);
        }
        let mut gate_matrices = Vec::new();
        for (part, inputs) in gate {
            gate_matrices.push(Linear::load(loader, &[part], inputs, false)?);
        }
        Ok(Self {
            qkv: Linear::load(loader, &qkv, hidden, false)?,
            forget: Gate { matrices: forget_matrices },
            b: Linear::unquantized(loader, &[b], hidden)?,
            conv,
            rule: rule.map_err(refused(&name))?,
            gate: Gate { matrices: gate_matrices },
            norm: GatedNorm {
                norm: Some(norm),
                norm_before_gate: true,
                activation: Activation::Sigmoid,
                gate_scale: 1.0,
            },
            out: Linear::load(loader, &[out], config.width(), false)?,
            kv_layer: place.kv_layer(),
        })
    }
}

/// The modules of the projections.
pub(in crate::model) struct KimiParts {
    pub(in crate::model) qkv: Vec<Part>,
    /// The matrices of the gates of states, with their inputs.
    pub(in crate::model) forget: Vec<(Part, usize)>,
    pub(in crate::model) b: Part,
    /// The same of the gates of outputs.
    pub(in crate::model) gate: Vec<(Part, usize)>,
    pub(in crate::model) out: Part,
}

impl KimiParts {
    /// Returns the modules. `module` returns the full name of a module of the layer.
    pub(in crate::model) fn of(
        config: &KimiDeltaConfig,
        hidden: usize,
        module: impl Fn(&str) -> String,
    ) -> Self {
        let KimiDeltaConfig { num_heads, head_dim, .. } = *config;
        let width = config.width();
        let part = |name: &str, outputs| Part::new(module(&config.module(name)), outputs);
        let gate = |kind: &str| match config.has_low_rank_gates {
            false => vec![(part(&format!("{kind}_proj"), width), hidden)],
            true => vec![
                (part(&format!("{kind}_a_proj"), head_dim), hidden),
                (part(&format!("{kind}_b_proj"), width), head_dim),
            ],
        };
        Self {
            qkv: ["q_proj", "k_proj", "v_proj"].map(|name| part(name, width)).into(),
            forget: gate("f"),
            b: part("b_proj", num_heads),
            gate: gate("g"),
            out: part(config.names[1], hidden),
        }
    }
}
