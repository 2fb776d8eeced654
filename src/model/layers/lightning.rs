//! Lightning attention: HF `MiniMaxLightningAttention` (<https://arxiv.org/abs/2501.08313>).

use burn::tensor::Tensor;
use playhouse_kernels::{
    Activation, GatedNorm, GroupNorm, LightningAttention, activate, gated_norm,
    lightning_attention, profile::timed,
};

use super::delta_net::by_kind;
use super::{Arrangement, LayerPlace, Linear, Part, activation};
use crate::model::config::LightningConfig;
use crate::model::weight_loader::{WeightLoader, refused};
use crate::model::{ModelError, Step};
use crate::weights::WeightsError;

pub(in crate::model) const NORM: &str = "self_attn.norm";
pub(in crate::model) const GATE: &str = "self_attn.output_gate";
pub(in crate::model) const OUT: &str = "self_attn.out_proj";
const SLOPE_RATE: &str = "self_attn.slope_rate";
const QKV: &str = "self_attn.qkv_proj";

/// Tables that transformers computes from the rates of heads and stores beside the weights.
pub(in crate::model) const STORED_TABLES: [&str; 4] =
    ["slope_rate", "query_decay", "key_decay", "diagonal_decay"];

/// The number added to the mean square by the norm, whatever `rms_norm_eps` is.
const EPS: f32 = 1e-6;

/// The lightning attention of one layer.
#[derive(Debug)]
pub(in crate::model) struct Lightning {
    qkv: Linear,
    activation: Activation,
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
    pub(in crate::model) fn forward(&self, x: Tensor<2>, step: &mut Step<'_>) -> Tensor<2> {
        let adapters = step.adapters();
        let (meta, kv) = step.layer(self.kv_layer);
        let qkv = timed("qkv", || activate(self.qkv.forward(x.clone(), adapters), self.activation));
        let y = timed("lightning", || lightning_attention(qkv, &self.attention, kv, meta));
        let y = gated_norm(y, self.gate.forward(x, adapters), 0, &self.norm);
        timed("o", || self.out.forward(y, adapters))
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
    ) -> Result<Self, ModelError> {
        let (hidden, width) = (place.config.hidden_size, config.width());
        let part = |name: &str, outputs| [Part::new(place.module(name), outputs)];
        check_stored_rates(loader, place, config)?;
        let attention =
            LightningAttention::new(config.head_dim, &config.slopes, 0, loader.device());
        let norm = GroupNorm {
            weight: loader.vector(&format!("{}.weight", place.module(NORM)), width)?,
            num_groups: 1,
            eps: EPS,
        };
        let parts = [qkv(config, |name| place.module(name))];
        Ok(Self {
            qkv: Linear::load(loader, &parts, hidden, false)?,
            activation: activation::load(loader, place, config.activation)?,
            attention: attention.map_err(refused(&place.module(QKV)))?,
            gate: Linear::load(loader, &part(GATE, width), hidden, false)?,
            norm: GatedNorm {
                norm: Some(norm),
                norm_before_gate: true,
                activation: Activation::Sigmoid,
                gate_scale: 1.0,
            },
            out: Linear::load(loader, &part(OUT, hidden), width, false)?,
            kv_layer: place.kv_layer(),
        })
    }
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

/// Returns the module of queries, keys and values, which has them head by head.
pub(in crate::model) fn qkv(config: &LightningConfig, module: impl Fn(&str) -> String) -> Part {
    let rows = by_kind(config.slopes.len(), &[config.head_dim; 3]);
    let part = Part::new(module(QKV), 3 * config.width());
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
