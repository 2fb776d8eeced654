//! Gated delta rules: HF `Qwen3NextGatedDeltaNet`, and `Qwen3_5GatedDeltaNet` and
//! `OlmoHybridGatedDeltaNet` with more modules (<https://arxiv.org/abs/2412.06464>).

use std::ops::Range;

use burn::tensor::Tensor;
use playhouse_kernels::{
    CausalConv, GatedDeltaRule, GatedNorm, GroupNorm, causal_conv, gated_delta_rule, gated_norm,
    profile::timed,
};

use super::mamba2::Convolution;
use super::{Arrangement, LayerPlace, Linear, Part, activation};
use crate::model::config::{DeltaNetConfig, DeltaNetModules};
use crate::model::weight_loader::{WeightLoader, refused};
use crate::model::{ModelError, Step};

pub(in crate::model) const A_LOG: &str = "linear_attn.A_log";
pub(in crate::model) const DT_BIAS: &str = "linear_attn.dt_bias";

/// The gated delta rule of one layer.
#[derive(Debug)]
pub(in crate::model) struct DeltaNet {
    /// Queries, keys and values, which the convolution takes, then the gates of the output.
    projections: Linear,
    /// b of all heads, then a.
    gates: Linear,
    conv: CausalConv,
    rule: GatedDeltaRule,
    norm: GatedNorm,
    out: Linear,
    /// The number of key heads, the heads of each, and the width of a head. Only where key heads
    /// take turns in the columns of `out`.
    turns: Option<[usize; 3]>,
    /// The layer of the KV cache that holds its states.
    kv_layer: usize,
}

impl DeltaNet {
    /// Maps `[num_tokens, hidden]` to the same shape. Takes the states of the step's sequences over
    /// these tokens.
    pub(in crate::model) fn forward(&self, x: Tensor<2>, step: &mut Step<'_>) -> Tensor<2> {
        let adapters = step.adapters();
        let (meta, kv) = step.layer(self.kv_layer);
        let gates = self.gates.forward(x.clone(), adapters);
        let projected = timed("qkv", || self.projections.forward(x, adapters));
        let qkv = timed("conv", || causal_conv(projected.clone(), 0, &self.conv, kv, meta));
        let y = timed("delta_rule", || gated_delta_rule(qkv, gates, &self.rule, kv, meta));
        let y = gated_norm(y, projected, self.conv.channels(), &self.norm);
        let y = match self.turns {
            None => y,
            Some(turns) => in_turns(y, turns),
        };
        timed("o", || self.out.forward(y, adapters))
    }

    /// Returns the bytes of weights that are pages of a file.
    pub(in crate::model) fn mapped_bytes(&self) -> u64 {
        let linears = [&self.projections, &self.gates, &self.out];
        linears.iter().map(|linear| linear.mapped_bytes()).sum()
    }

    /// Loads the mixer of the layer at `place`.
    pub(in crate::model) fn load(
        loader: &mut WeightLoader<'_>,
        place: LayerPlace<'_>,
        config: &DeltaNetConfig,
    ) -> Result<Self, ModelError> {
        let hidden = place.config.hidden_size;
        let [projections, gates] = parts(config, |name| place.module(name));
        let out = [Part::new(place.module(config.modules.out()), hidden)];
        let convs: Vec<(String, usize)> = config
            .convs()
            .into_iter()
            .map(|(name, channels)| (place.module(name), channels))
            .collect();
        let conv = Convolution {
            module: convs.first().map(|(module, _)| module.clone()).unwrap_or_default(),
            kernel: config.kernel,
            has_bias: false,
            activation: Some(activation::load(loader, place, config.activation)?),
        };
        let conv = match config.takes_turns() {
            false => conv.of_modules(loader, &convs)?,
            true => conv.of_rows(loader, &qkv_rows(config))?,
        };
        let in_order = |values: Vec<f32>| match config.takes_turns() {
            false => values,
            true => stored_rows(config, 1).iter().map(|row| values[*row as usize]).collect(),
        };
        let a_log = loader.log_rates(&place.module(A_LOG), &[config.num_heads])?;
        let dt_bias = loader.values(&place.module(DT_BIAS), &[config.num_heads])?;
        let (a_log, dt_bias) = (in_order(a_log), in_order(dt_bias));
        let turns = config.takes_turns().then(|| {
            let keys = config.num_key_heads;
            [keys, config.num_heads / keys, config.value_dim]
        });
        let rule =
            GatedDeltaRule::new(config.heads(), a_log, dt_bias, config.heads_at(), loader.device());
        let norm = format!("{}.weight", place.module(config.modules.norm()));
        let norm = GroupNorm {
            weight: loader.vector(&norm, config.value_dim)?,
            num_groups: config.num_heads,
            eps: config.norm_eps.unwrap_or(place.config.norm.eps),
        };
        Ok(Self {
            projections: Linear::load(loader, &projections, hidden, false)?,
            // They decide how long a head remembers, so they are never quantized.
            gates: Linear::unquantized(loader, &gates, hidden)?,
            conv,
            rule: rule.map_err(refused(&place.module(A_LOG)))?.with_beta_max(config.beta_max),
            norm: GatedNorm {
                norm: Some(norm),
                norm_before_gate: true,
                activation: activation::load(loader, place, config.gate)?,
                gate_scale: 1.0,
            },
            out: Linear::load(loader, &out, config.values(), false)?,
            turns,
            kv_layer: place.kv_layer(),
        })
    }
}

/// Returns the modules of the projections: queries, keys, values and output gates, in that order.
/// The second list has those of the gates of heads: b, then a.
pub(in crate::model) fn parts(
    config: &DeltaNetConfig,
    module: impl Fn(&str) -> String,
) -> [Vec<Part>; 2] {
    let DeltaNetConfig { num_key_heads, num_heads, key_dim, value_dim, modules, .. } = *config;
    let part = |name: &str, outputs| Part::new(module(name), outputs);
    let by_head = |name: &str, widths: &[usize]| {
        let rows = by_kind(num_key_heads, widths);
        let part = part(name, rows.len());
        vec![Part { arrangement: Arrangement::Rows(rows.into()), ..part }]
    };
    // The heads of values of a key head.
    let group = num_heads / num_key_heads;
    let values = group * value_dim;
    let each = || {
        let qkv = part("linear_attn.in_proj_qkv", config.conv_channels());
        vec![qkv, part("linear_attn.in_proj_z", config.values())]
    };
    let gates = || by_head("linear_attn.in_proj_ba", &[group, group]);
    let ordered = |part: Part, rows: Vec<u32>| match config.takes_turns() {
        false => part,
        true => Part { arrangement: Arrangement::Rows(rows.into()), ..part },
    };
    match modules {
        DeltaNetModules::ByHead => {
            let widths = [key_dim, key_dim, values, values];
            [by_head("linear_attn.in_proj_qkvz", &widths), gates()]
        }
        DeltaNetModules::ByKind => {
            let gates = ["linear_attn.in_proj_b", "linear_attn.in_proj_a"];
            let gate = |name| ordered(part(name, num_heads), stored_rows(config, 1));
            let rows = [qkv_rows(config), stored_rows(config, value_dim)];
            let each = each().into_iter().zip(rows);
            let each = each.map(|(part, rows)| ordered(part, rows)).collect();
            [each, gates.map(gate).into()]
        }
        DeltaNetModules::GatesByHead => [each(), gates()],
        DeltaNetModules::Each => {
            let (keys, values) = (config.keys(), config.values());
            let projections = [("q", keys), ("k", keys), ("v", values), ("g", values)];
            let gates = [("b", num_heads), ("a", num_heads)];
            let part = |(kind, outputs)| part(&format!("linear_attn.{kind}_proj"), outputs);
            [projections.map(part).into(), gates.map(part).into()]
        }
    }
}

/// Returns the stored rows of heads, `width` each, in the order of the computation: the heads of a
/// key head are neighbours. They are stored in turns.
fn stored_rows(config: &DeltaNetConfig, width: usize) -> Vec<u32> {
    let DeltaNetConfig { num_key_heads, num_heads, .. } = *config;
    let group = num_heads / num_key_heads;
    let head = |index: usize| index % group * num_key_heads + index / group;
    let rows = |index: usize| (head(index) * width) as u32..((head(index) + 1) * width) as u32;
    (0..num_heads).flat_map(rows).collect()
}

/// Returns the same of queries, keys and values. Only the values have another order.
fn qkv_rows(config: &DeltaNetConfig) -> Vec<u32> {
    let keys = 2 * config.keys() as u32;
    let values = stored_rows(config, config.value_dim).into_iter().map(|row| keys + row);
    (0..keys).chain(values).collect()
}

/// Returns `y`, `[num_tokens, heads * width]`, in the order in which key heads take turns.
fn in_turns(y: Tensor<2>, [keys, group, width]: [usize; 3]) -> Tensor<2> {
    let [tokens, values] = y.dims();
    y.reshape([tokens, keys, group, width]).swap_dims(1, 2).reshape([tokens, values])
}

/// Returns the stored rows in the order of kinds. They are stored in `groups`, each of which has
/// the rows of all kinds: so many of each.
pub(super) fn by_kind(groups: usize, widths: &[usize]) -> Vec<u32> {
    let group_rows: usize = widths.iter().sum();
    let mut start = 0;
    let mut rows = Vec::with_capacity(groups * group_rows);
    for width in widths {
        let of_group = |group: usize| -> Range<u32> {
            let first = (group * group_rows + start) as u32;
            first..first + *width as u32
        };
        rows.extend((0..groups).flat_map(of_group));
        start += width;
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::{by_kind, stored_rows};
    use crate::model::config::{ActivationName, DeltaNetConfig, DeltaNetModules};

    #[test]
    fn key_heads_take_turns() {
        let config = DeltaNetConfig {
            num_key_heads: 2,
            num_heads: 6,
            key_dim: 4,
            value_dim: 2,
            kernel: 4,
            activation: ActivationName::Silu,
            modules: DeltaNetModules::ByKind,
            heads_take_turns: true,
            beta_max: 1.0,
            norm_eps: None,
            gate: ActivationName::Silu,
            ngrams: None,
        };
        assert_eq!(stored_rows(&config, 1), [0, 2, 4, 1, 3, 5]);
        assert_eq!(stored_rows(&config, 2), [0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11]);
    }

    #[test]
    fn kinds_come_apart() {
        assert_eq!(by_kind(2, &[1, 2]), [0, 3, 1, 2, 4, 5]);
        assert_eq!(by_kind(1, &[2, 1]), [0, 1, 2]);
    }
}
