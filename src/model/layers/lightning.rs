//! Lightning attention: HF `MiniMaxLightningAttention` (<https://arxiv.org/abs/2501.08313>), and
//! vLLM's `BailingMoELinearAttention`, whose queries and keys may have norms and rotate.

use std::sync::Arc;

use burn::tensor::Tensor;
use playhouse_kernels::{
    Activation, GatedNorm, GroupNorm, HeadNorm, LightningAttention, QkvHeads, RotaryTable,
    activate, gated_norm, lightning_attention, profile::timed, qk_norm_rope,
};

use super::delta_net::by_kind;
use super::rotary::RotaryTables;
use super::{Arrangement, LayerPlace, Linear, Part, activation};
use crate::model::config::LightningConfig;
use crate::model::weight_loader::{WeightLoader, refused};
use crate::model::{ModelError, Positions, Step};
use crate::weights::WeightsError;

const SLOPE_RATE: &str = "self_attn.slope_rate";

/// Tables that transformers computes from the rates of heads and stores beside the weights.
pub(in crate::model) const STORED_TABLES: [&str; 4] =
    ["slope_rate", "query_decay", "key_decay", "diagonal_decay"];

/// The lightning attention of one layer.
#[derive(Debug)]
pub(in crate::model) struct Lightning {
    qkv: Linear,
    activation: Activation,
    /// The norms of query and key heads.
    heads: QkvHeads,
    rotary: Option<Arc<RotaryTable>>,
    attention: LightningAttention,
    gate: Linear,
    norm: GatedNorm,
    out: Linear,
    /// The layer of the KV cache that holds its states.
    kv_layer: usize,
}

impl Lightning {
    /// Maps `[num_tokens, hidden]` to the same shape. Takes the states of the step's sequences over
    /// these tokens.
    pub(in crate::model) fn forward(
        &self,
        x: Tensor<2>,
        positions: Positions<'_>,
        step: &mut Step<'_>,
    ) -> Tensor<2> {
        let adapters = step.adapters();
        let (meta, kv) = step.layer(self.kv_layer);
        let qkv = timed("qkv", || match self.activation {
            Activation::Identity => self.qkv.forward(x.clone(), adapters),
            activation => activate(self.qkv.forward(x.clone(), adapters), activation),
        });
        let qkv = self.changed(qkv, positions);
        let y = timed("lightning", || lightning_attention(qkv, &self.attention, kv, meta));
        let y = gated_norm(y, self.gate.forward(x, adapters), 0, &self.norm);
        timed("o", || self.out.forward(y, adapters))
    }

    /// Returns queries, keys and values, of which the first two are normalised and rotated, if the
    /// layer does that.
    fn changed(&self, qkv: Tensor<2>, positions: Positions<'_>) -> Tensor<2> {
        if self.heads.q_norm.is_none() && self.rotary.is_none() {
            return qkv;
        }
        let (q, k, v) = timed("qk_norm_rope", || {
            let (rows, table) = positions.of_table(self.rotary.as_deref());
            qk_norm_rope(qkv, &self.heads, rows, table)
        });
        Tensor::cat(vec![q, k, v], 1)
    }

    /// Returns the bytes of weights that are pages of a file.
    pub(in crate::model) fn mapped_bytes(&self) -> u64 {
        [&self.qkv, &self.gate, &self.out].iter().map(|linear| linear.mapped_bytes()).sum()
    }

    /// Loads the mixer of the layer at `place`.
    pub(in crate::model) fn load(
        loader: &mut WeightLoader<'_>,
        place: LayerPlace<'_>,
        config: &LightningConfig,
        rotary: &mut RotaryTables<'_>,
    ) -> Result<Self, ModelError> {
        let (hidden, width, names) = (place.config.hidden_size, config.width(), config.names);
        let part = |name: &str, outputs| [Part::new(place.module(name), outputs)];
        check_stored_rates(loader, place, config)?;
        let attention =
            LightningAttention::new(config.head_dim, &config.slopes, 0, loader.device());
        let norm = GroupNorm {
            weight: loader.vector(&format!("{}.weight", place.module(names.norm)), width)?,
            num_groups: config.num_groups,
            // Outputs are linear in queries, whose factor is that of this number.
            eps: config.norm_eps / config.scale.powi(2),
        };
        let heads = heads(loader, place, config)?;
        let rotary = config.rope.as_ref().map(|rope| rotary.with(rope));
        let parts = [qkv(config, |name| place.module(name))];
        Ok(Self {
            qkv: Linear::load(loader, &parts, hidden, config.qkv_bias)?,
            activation: activation::load(loader, place, config.activation)?,
            heads,
            rotary: rotary.transpose()?,
            attention: attention.map_err(refused(&place.module(names.qkv)))?,
            gate: Linear::load(loader, &part(names.gate, width), hidden, false)?,
            norm: GatedNorm {
                norm: Some(norm),
                norm_before_gate: true,
                activation: Activation::Sigmoid,
                gate_scale: 1.0,
            },
            out: Linear::load(loader, &part(names.out, hidden), width, false)?,
            kv_layer: place.kv_layer(),
        })
    }
}

/// Loads the norms of heads, and returns the heads with them.
fn heads(
    loader: &mut WeightLoader<'_>,
    place: LayerPlace<'_>,
    config: &LightningConfig,
) -> Result<QkvHeads, ModelError> {
    let mut norm = |name: &str| {
        let weight = loader.vector(&format!("{}.weight", place.module(name)), config.head_dim)?;
        Ok::<_, ModelError>(HeadNorm::Rms(weight))
    };
    let [q_norm, k_norm] = match config.has_head_norms {
        true => {
            let [of_q, of_k] = config.names.head_norms;
            [Some(norm(of_q)?), Some(norm(of_k)?)]
        }
        false => [None, None],
    };
    let num_heads = config.slopes.len();
    Ok(QkvHeads {
        num_heads,
        num_kv_heads: num_heads,
        head_dim: config.head_dim,
        q_norm,
        k_norm,
        norms_after_rope: false,
        eps: place.config.norm.eps,
        clip: None,
    })
}

/// Refuses rates in the checkpoint that are not those of the config, beyond the rounding of any
/// format.
fn check_stored_rates(
    loader: &mut WeightLoader<'_>,
    place: LayerPlace<'_>,
    config: &LightningConfig,
) -> Result<(), ModelError> {
    let name = place.module(SLOPE_RATE);
    if !loader.has(&name) {
        return Ok(());
    }
    let shape = [config.slopes.len(), 1, 1];
    let tensor = loader.tensor(&name, &shape)?;
    let stored = tensor.values().view().to_f32();
    if !stored.iter().zip(&*config.slopes).all(|(stored, slope)| is_rounded(*stored, *slope)) {
        let why = "it differs from the rates that config.json implies by \
                   `num_attention_heads` and `num_hidden_layers`";
        let path = tensor.path().to_owned();
        return Err(WeightsError::Unused { path, tensor: name, why }.into());
    }
    loader.loaded(&tensor);
    Ok(())
}

/// Returns whether `stored` may be `slope`, rounded to bfloat16 or float16. The slopes of the last
/// layer are so small that float16 rounds them to multiples of 2^-24.
fn is_rounded(stored: f32, slope: f32) -> bool {
    (stored - slope).abs() <= 0.01 * slope + 2_f32.powi(-25)
}

/// Returns the module of queries, keys and values.
pub(in crate::model) fn qkv(config: &LightningConfig, module: impl Fn(&str) -> String) -> Part {
    let part = Part::new(module(config.names.qkv), 3 * config.width());
    if !config.names.is_by_head {
        return part;
    }
    let rows = by_kind(config.slopes.len(), &[config.head_dim; 3]);
    Part { arrangement: Arrangement::Rows(rows.into()), ..part }
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::is_rounded;

    #[test]
    fn rates_in_any_format_are_those_of_the_config() {
        for slope in [0.84, 0.003_9, 8.4e-6, 2.6e-6, 3.9e-8, 2.9e-8] {
            assert!(is_rounded(f16::from_f32(slope).to_f32(), slope), "{slope}");
            assert!(is_rounded(bf16::from_f32(slope).to_f32(), slope), "{slope}");
        }
        assert!(!is_rounded(0.5, 0.84));
        assert!(!is_rounded(1.7e-5, 8.4e-6));
    }
}
