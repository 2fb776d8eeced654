//! Mixers that carry a state from token to token in place of keys and values: delta rules, short
//! convolutions, lightning attention and Griffin's recurrent blocks.

mod kimi;
mod lightning;

use playhouse_kernels::{CausalConv, LinearHeads};
use serde_json::Value;

use super::heads::num_heads;
use super::windows::{FULL, num_layers};
use super::{ActivationName, LayerConfig, Mixer, read_alike};
use crate::model::config::file::Fields;
use crate::model::config::{ConfigError, NgramConfig, SIZE_MAX};
use crate::model::family::Family;
pub use kimi::KimiDeltaConfig;
pub use lightning::LightningConfig;
pub(crate) use lightning::LightningNames;

/// Most heads and taps, far above any real number. The limit prevents absurd allocations.
const HEADS_MAX: usize = 4_096;
const TAPS_MAX: usize = 1_024;

/// The f32 of a cache line.
const LINE_FLOATS: usize = 16;

/// A mixer whose state is in the KV cache.
#[derive(Debug, Clone, PartialEq)]
pub enum RecurrentConfig {
    /// A gated delta rule.
    DeltaNet(DeltaNetConfig),
    /// A gated convolution over a few tokens.
    ShortConv(ShortConvConfig),
    /// Linear attention with fixed rates.
    Lightning(LightningConfig),
    /// A gated linear recurrence over the outputs of a convolution.
    Griffin(GriffinConfig),
    /// Kimi's delta rule.
    Kimi(KimiDeltaConfig),
}

/// A gated delta rule over the outputs of a convolution: HF `Qwen3NextGatedDeltaNet`.
#[derive(Debug, Clone, PartialEq)]
pub struct DeltaNetConfig {
    /// Heads of queries and keys; a divisor of the number of heads.
    pub num_key_heads: usize,
    /// Heads of values.
    pub num_heads: usize,
    /// Elements of a query and of a key.
    pub key_dim: usize,
    /// Elements of a value.
    pub value_dim: usize,
    /// Taps of the convolution.
    pub kernel: usize,
    /// The activation after the convolution.
    pub activation: ActivationName,
    /// The modules of its projections.
    pub modules: DeltaNetModules,
    /// Whether key heads take turns in the stored order of heads: each has its first one, then each
    /// its second one. Otherwise the heads of a key head are neighbours. GGUF files have turns.
    pub heads_take_turns: bool,
    /// The limit of the factors of changes: 1, or 2 with `linear_allow_neg_eigval`.
    pub beta_max: f32,
    /// The number added to the mean squares of outputs. `None`: that of the model's norms.
    pub norm_eps: Option<f32>,
    /// The activation of the outputs' gates.
    pub gate: ActivationName,
    /// The embeddings of n-grams before the rule, whose windows are in the same state.
    pub ngrams: Option<NgramConfig>,
}

/// The modules of a gated delta rule's projections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeltaNetModules {
    /// One for queries, keys, values and output gates, and one for the gates of heads. Each has the
    /// rows of all kinds, key head by key head.
    ByHead,
    /// One for queries, keys and values, and one for each other kind.
    ByKind,
    /// One for queries, keys and values, and one for output gates. The gates of heads are one
    /// module, key head by key head. GGUF files have these.
    GatesByHead,
    /// One for each kind, and convolutions of queries, of keys and of values: HF
    /// `OlmoHybridGatedDeltaNet` in the published checkpoints.
    Each,
}

impl DeltaNetModules {
    /// Returns the module of the norm of outputs.
    pub(crate) fn norm(self) -> &'static str {
        match self {
            Self::ByHead | Self::ByKind | Self::GatesByHead => "linear_attn.norm",
            Self::Each => "linear_attn.o_norm",
        }
    }

    /// Returns the module of the output projection.
    pub(crate) fn out(self) -> &'static str {
        match self {
            Self::ByHead | Self::ByKind | Self::GatesByHead => "linear_attn.out_proj",
            Self::Each => "linear_attn.o_proj",
        }
    }
}

/// A gated convolution over a few tokens: HF `Lfm2ShortConv`.
#[derive(Debug, Clone, PartialEq)]
pub struct ShortConvConfig {
    /// Channels of the convolution: the hidden size.
    pub channels: usize,
    /// Taps of the convolution.
    pub kernel: usize,
    /// Whether the convolution and the projections have biases.
    pub bias: bool,
    /// Whether a token sees none after it. Otherwise it sees as many on both sides, and the layer
    /// keeps nothing of a sequence.
    pub is_causal: bool,
}

/// Griffin's recurrent block: HF `RecurrentGemmaRecurrentBlock`.
#[derive(Debug, Clone, PartialEq)]
pub struct GriffinConfig {
    /// Heads of the recurrence; a divisor of its width.
    pub num_heads: usize,
    /// Channels of the recurrence.
    pub width: usize,
    /// Taps of the convolution.
    pub kernel: usize,
    /// The activation of the gate.
    pub activation: ActivationName,
}

impl GriffinConfig {
    /// Reads the fields of HF `RecurrentGemmaConfig`.
    pub(crate) fn read(
        fields: &Fields,
        activation: Option<ActivationName>,
    ) -> Result<Self, ConfigError> {
        let num_heads = num_heads(fields)?;
        let width = match fields.size("lru_width")? {
            Some(width) => width,
            None => fields.required_size("hidden_size")?,
        };
        if !width.is_multiple_of(num_heads) {
            let expected = format!("a multiple of num_attention_heads, {num_heads}");
            return Err(fields.invalid("lru_width", &expected));
        }
        let kernel = fields.size("conv1d_width")?.unwrap_or(4);
        if kernel > TAPS_MAX || width.saturating_mul(kernel) > SIZE_MAX {
            let expected = format!(
                "an integer from 1 to {TAPS_MAX}, and a window of at most {SIZE_MAX} numbers"
            );
            return Err(fields.invalid("conv1d_width", &expected));
        }
        let activation = activation.unwrap_or(ActivationName::Silu);
        Ok(Self { num_heads, width, kernel, activation })
    }

    /// Returns the channels of a head.
    pub(crate) fn head_dim(&self) -> usize {
        self.width / self.num_heads
    }

    /// Returns the place of the recurrence's state in the layer's state, after the window of the
    /// convolution. It begins a cache line.
    pub(crate) fn lru_at(&self) -> usize {
        CausalConv::state_len(self.width, self.kernel).next_multiple_of(LINE_FLOATS)
    }
}

impl DeltaNetConfig {
    /// Reads the fields of HF `Qwen3NextConfig`.
    pub(crate) fn read(
        fields: &Fields,
        activation: ActivationName,
        modules: DeltaNetModules,
    ) -> Result<Self, ConfigError> {
        let most = |field: &str, default: usize, most: usize| match fields.size(field)? {
            Some(size) if size > most => {
                Err(fields.invalid(field, &format!("an integer from 1 to {most}")))
            }
            size => Ok(size.unwrap_or(default)),
        };
        let config = Self {
            num_key_heads: most("linear_num_key_heads", 16, HEADS_MAX)?,
            num_heads: most("linear_num_value_heads", 32, HEADS_MAX)?,
            key_dim: most("linear_key_head_dim", 128, HEADS_MAX)?,
            value_dim: most("linear_value_head_dim", 128, HEADS_MAX)?,
            kernel: most("linear_conv_kernel_dim", 4, TAPS_MAX)?,
            activation,
            modules,
            heads_take_turns: false,
            beta_max: 1.0,
            norm_eps: None,
            gate: ActivationName::Silu,
            ngrams: None,
        };
        let Self { num_key_heads, num_heads, .. } = config;
        if !num_heads.is_multiple_of(num_key_heads) {
            let expected = format!("a multiple of linear_num_key_heads, {num_key_heads}");
            return Err(fields.invalid("linear_num_value_heads", &expected));
        }
        // Stored matrices have their rows in another order, which is a list of all rows.
        let rows = config.conv_channels() + config.values();
        let window = config.conv_channels().saturating_mul(config.kernel);
        if rows.max(window).max(config.values().saturating_mul(config.key_dim)) > SIZE_MAX {
            let expected = format!("a state of at most {SIZE_MAX} numbers in a layer");
            return Err(fields.invalid("linear_num_value_heads", &expected));
        }
        Ok(config)
    }

    /// Returns whether the stored order of heads is another than that of the computation.
    pub(crate) fn takes_turns(&self) -> bool {
        self.heads_take_turns && self.num_key_heads > 1 && self.num_key_heads < self.num_heads
    }

    /// Returns the elements of a token's queries, and of its keys.
    pub(crate) fn keys(&self) -> usize {
        self.num_key_heads * self.key_dim
    }

    /// Returns the elements of a token's values.
    pub(crate) fn values(&self) -> usize {
        self.num_heads * self.value_dim
    }

    /// Returns the channels of the convolution: queries, keys and values.
    pub(crate) fn conv_channels(&self) -> usize {
        2 * self.keys() + self.values()
    }

    /// Returns the modules of the convolution with their channels, which follow each other.
    pub(crate) fn convs(&self) -> Vec<(&'static str, usize)> {
        match self.modules {
            DeltaNetModules::ByHead | DeltaNetModules::ByKind | DeltaNetModules::GatesByHead => {
                vec![("linear_attn.conv1d", self.conv_channels())]
            }
            DeltaNetModules::Each => vec![
                ("linear_attn.q_conv1d", self.keys()),
                ("linear_attn.k_conv1d", self.keys()),
                ("linear_attn.v_conv1d", self.values()),
            ],
        }
    }

    pub(crate) fn heads(&self) -> LinearHeads {
        let Self { num_key_heads, num_heads, key_dim, value_dim, .. } = *self;
        LinearHeads { num_key_heads, num_heads, key_dim, value_dim }
    }

    /// Returns the place of the heads' states in the layer's state, after the window of the
    /// convolution. It begins a cache line.
    pub(crate) fn heads_at(&self) -> usize {
        CausalConv::state_len(self.conv_channels(), self.kernel).next_multiple_of(LINE_FLOATS)
    }

    /// Returns the place of the windows of n-grams in the layer's state, after the heads' states.
    /// It begins a cache line.
    pub(crate) fn ngrams_at(&self) -> usize {
        self.own_state_len().next_multiple_of(LINE_FLOATS)
    }

    /// Returns the f32 of the convolution's window and of the heads' states.
    fn own_state_len(&self) -> usize {
        self.heads_at() + self.heads().state_len()
    }

    fn state_len(&self) -> usize {
        match &self.ngrams {
            None => self.own_state_len(),
            Some(ngrams) => self.ngrams_at() + ngrams.state_len(),
        }
    }
}

impl ShortConvConfig {
    /// Reads the fields of HF `Lfm2Config`.
    pub(crate) fn read(fields: &Fields) -> Result<Self, ConfigError> {
        let kernel = fields.size("conv_L_cache")?.unwrap_or(3);
        if kernel > TAPS_MAX {
            let expected = format!("an integer from 1 to {TAPS_MAX}");
            return Err(fields.invalid("conv_L_cache", &expected));
        }
        let channels = fields.required_size("hidden_size")?;
        if channels.saturating_mul(kernel) > SIZE_MAX {
            let expected = format!("a window of at most {SIZE_MAX} numbers");
            return Err(fields.invalid("conv_L_cache", &expected));
        }
        let bias = fields.flag("conv_bias")?.unwrap_or(false);
        Ok(Self { channels, kernel, bias, is_causal: true })
    }
}

impl RecurrentConfig {
    /// Returns whether a sequence has a state, which a step with the whole sequence may lack.
    pub(crate) fn has_state(&self) -> bool {
        !matches!(self, Self::ShortConv(conv) if !conv.is_causal)
    }

    /// Returns the f32 of a sequence's state.
    pub(crate) fn state_len(&self) -> usize {
        match self {
            Self::DeltaNet(config) => config.state_len(),
            Self::ShortConv(config) => CausalConv::state_len(config.channels, config.kernel),
            Self::Griffin(config) => config.lru_at() + config.width,
            Self::Kimi(config) => config.heads_at() + config.heads().state_len(),
            Self::Lightning(config) => config.heads().state_len(),
        }
    }
}

/// The layers of a model that have a state instead of attention.
pub(crate) struct StateLayers<'a> {
    /// Their name in `layer_types`.
    pub(crate) name: &'a str,
    /// Whether a layer is one of them if `layer_types` is absent.
    pub(crate) by_default: &'a dyn Fn(usize) -> bool,
}

impl StateLayers<'_> {
    /// Reads all layers, those with attention as other families have them. `mixer` returns the
    /// mixer of a layer with a state, whose index it gets.
    pub(crate) fn read(
        &self,
        fields: &Fields,
        family: &Family,
        max_position_embeddings: usize,
        mixer: impl Fn(usize, &LayerConfig) -> Result<RecurrentConfig, ConfigError>,
    ) -> Result<Vec<LayerConfig>, ConfigError> {
        let has_state = self.list(fields)?;
        let mut of_attention = fields.clone();
        // The list has been read, and its other kinds are full attention.
        of_attention.set("layer_types", Value::Null);
        let mut layers = read_alike(&of_attention, family, max_position_embeddings)?;
        let states = layers.iter_mut().zip(has_state).enumerate();
        for (index, (layer, _)) in states.filter(|(_, (_, has_state))| *has_state) {
            layer.mixer = Mixer::Recurrent(mixer(index, layer)?);
        }
        Ok(layers)
    }

    /// Returns for each layer whether it has a state.
    fn list(&self, fields: &Fields) -> Result<Vec<bool>, ConfigError> {
        let count = num_layers(fields)?;
        let Some(listed) = fields.value("layer_types") else {
            return Ok((0..count).map(self.by_default).collect());
        };
        let has_state = |layer_type: &Value| match layer_type.as_str()? {
            FULL => Some(false),
            name if name == self.name => Some(true),
            _ => None,
        };
        let listed = listed.as_array().filter(|list| list.len() == count);
        listed.and_then(|list| list.iter().map(has_state).collect()).ok_or_else(|| {
            let name = self.name;
            let expected =
                format!("a list of {count} (num_hidden_layers) of \"{FULL}\" or \"{name}\"");
            fields.invalid("layer_types", &expected)
        })
    }
}

#[cfg(test)]
mod tests;
