//! State-space models as data.

use playhouse_kernels::{CausalConv, SelectiveScan, Ssd};

use super::activation::accepted;
use super::windows::num_layers;
use super::{ActivationName, FeedForward, LayerConfig, Mixer, read_alike};
use crate::model::config::file::Fields;
use crate::model::config::{ConfigError, SIZE_MAX};
use crate::model::family::Family;

/// Mamba's selective scan: HF `MambaMixer`.
#[derive(Debug, Clone, PartialEq)]
pub struct MambaConfig {
    /// Channels of the scan.
    pub channels: usize,
    /// Elements of B and C.
    pub state_size: usize,
    /// Elements from which dt is projected.
    pub time_step_rank: usize,
    /// Taps of the convolution.
    pub conv_kernel: usize,
    /// Whether the convolution has a bias.
    pub conv_bias: bool,
    /// Whether the projections to and from the inner width have biases.
    pub proj_bias: bool,
    /// The activation after the convolution. That of the gate is SiLU.
    pub activation: ActivationName,
    /// The norms of dt, B and C.
    pub norms: MambaNorms,
}

/// The norms of dt, B and C.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum MambaNorms {
    /// None.
    None,
    /// Root mean squares with weights: HF `JambaMambaMixer`.
    Weighted {
        /// The number added to the mean square.
        eps: f32,
    },
    /// Root mean squares without weights: HF `FalconMambaMixer`.
    Plain {
        /// The number added to the mean square.
        eps: f32,
    },
}

/// Mamba 2's state-space model: HF `Mamba2Mixer`.
#[derive(Debug, Clone, PartialEq)]
pub struct Mamba2Config {
    /// Heads; a multiple of the groups.
    pub num_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Elements of B and C in a group.
    pub state_size: usize,
    /// Groups of heads that share B and C.
    pub num_groups: usize,
    /// Taps of the convolution.
    pub conv_kernel: usize,
    /// Whether the convolution has a bias.
    pub conv_bias: bool,
    /// Whether the projection to the inner width has a bias.
    pub in_bias: bool,
    /// Whether the projection from the inner width has a bias.
    pub out_bias: bool,
    /// The activation after the convolution.
    pub activation: ActivationName,
    /// The least and the largest time step.
    pub dt_limit: [f32; 2],
    /// The norm over the output.
    pub norm: Option<Mamba2Norm>,
    /// Factors of inputs and outputs.
    pub multipliers: Mamba2Multipliers,
}

/// The norm over the output of a state-space model, and its gate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mamba2Norm {
    /// Groups of neighbouring elements that are normalised apart.
    pub num_groups: usize,
    /// The number added to the mean square.
    pub eps: f32,
    /// Whether the output is normalised before it is gated.
    pub before_gate: bool,
}

/// Factors of the parts of a state-space model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mamba2Multipliers {
    /// Of the input.
    pub input: f32,
    /// Of the gate, x, B, C and dt.
    pub projected: [f32; 5],
    /// Of the output.
    pub output: f32,
}

impl Mamba2Multipliers {
    pub(crate) const ONE: Self = Self { input: 1.0, projected: [1.0; 5], output: 1.0 };
}

impl MambaConfig {
    /// Returns the numbers of a sequence's state.
    pub(crate) fn state_len(&self) -> usize {
        CausalConv::state_len(self.channels, self.conv_kernel)
            + SelectiveScan::state_len(self.channels, self.state_size)
    }
}

impl Mamba2Config {
    /// Returns the elements of x.
    pub(crate) fn inner_size(&self) -> usize {
        self.num_heads * self.head_dim
    }

    /// Returns the elements of x, B and C.
    pub(crate) fn conv_size(&self) -> usize {
        self.inner_size() + 2 * self.num_groups * self.state_size
    }

    /// Returns the elements of the gate, x, B, C and dt.
    pub(crate) fn projected_size(&self) -> usize {
        self.inner_size() + self.conv_size() + self.num_heads
    }

    /// Returns the numbers of a sequence's state.
    pub(crate) fn state_len(&self) -> usize {
        CausalConv::state_len(self.conv_size(), self.conv_kernel)
            + Ssd::state_len(self.num_heads, self.head_dim, self.state_size)
    }
}

/// The names of a family's fields for Mamba, each with the default of its config class.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MambaFields {
    pub(crate) state_size: (&'static str, usize),
    /// By default a 16th of the hidden size.
    pub(crate) time_step_rank: &'static str,
    pub(crate) conv_kernel: (&'static str, usize),
    /// The width of x. `None`: the family has no field for it.
    pub(crate) inner_size: Option<&'static str>,
    /// The width of x in hidden sizes, where no field has it.
    pub(crate) expand: (&'static str, f64),
    pub(crate) conv_bias: (&'static str, bool),
    pub(crate) proj_bias: (&'static str, bool),
}

impl MambaFields {
    /// Reads a scan without norms of dt, B and C.
    pub(crate) fn read(&self, fields: &Fields) -> Result<MambaConfig, ConfigError> {
        let hidden = fields.required_size("hidden_size")?;
        let own = self.inner_size.map(|field| fields.size(field)).transpose()?;
        let channels = match own.flatten() {
            Some(size) => size,
            None => inner_size(fields, self.expand, hidden)?,
        };
        let config = MambaConfig {
            channels,
            state_size: size(fields, self.state_size)?,
            time_step_rank: match is_auto(fields, self.time_step_rank) {
                true => hidden.div_ceil(16),
                false => fields.required_size(self.time_step_rank)?,
            },
            conv_kernel: size(fields, self.conv_kernel)?,
            conv_bias: fields.flag_or(self.conv_bias.0, self.conv_bias.1)?,
            proj_bias: fields.flag_or(self.proj_bias.0, self.proj_bias.1)?,
            activation: activation(fields, ("hidden_act", "silu"))?,
            norms: MambaNorms::None,
        };
        let sizes = [config.channels, config.state_size.max(config.conv_kernel)];
        check_state(fields, self.state_size.0, &sizes)?;
        Ok(config)
    }
}

/// The names of a family's fields for Mamba 2, each with the default of its config class.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mamba2Fields {
    pub(crate) num_heads: (&'static str, usize),
    /// By default the inner width divided by the heads.
    pub(crate) head_dim: (&'static str, Option<usize>),
    pub(crate) state_size: (&'static str, usize),
    pub(crate) num_groups: (&'static str, usize),
    pub(crate) conv_kernel: (&'static str, usize),
    pub(crate) conv_bias: (&'static str, bool),
    pub(crate) in_bias: (&'static str, bool),
    pub(crate) out_bias: (&'static str, bool),
    pub(crate) activation: (&'static str, &'static str),
    /// Whether a group has a norm of its own, over the gated output.
    pub(crate) norm_eps: Option<(&'static str, f64)>,
}

impl Mamba2Fields {
    /// Reads a model. `inner_size` is the width of x, if a field has it.
    pub(crate) fn read(
        &self,
        fields: &Fields,
        inner_size: Option<usize>,
    ) -> Result<Mamba2Config, ConfigError> {
        let num_heads = size(fields, self.num_heads)?;
        let (head_dim_field, default) = self.head_dim;
        let head_dim = match (is_auto(fields, head_dim_field), default, inner_size) {
            (false, ..) => fields.required_size(head_dim_field)?,
            (true, Some(default), _) => default,
            (true, None, Some(inner)) => (inner / num_heads).max(1),
            (true, None, None) => fields.required_size(head_dim_field)?,
        };
        if let Some(inner) = inner_size.filter(|inner| *inner != num_heads * head_dim) {
            let expected = format!("a number of heads that divides the inner width, {inner}");
            return Err(fields.invalid(self.num_heads.0, &expected));
        }
        let num_groups = size(fields, self.num_groups)?;
        if !num_heads.is_multiple_of(num_groups) {
            let expected = format!("a divisor of {}, {num_heads}", self.num_heads.0);
            return Err(fields.invalid(self.num_groups.0, &expected));
        }
        let norm = self.norm_eps.map(|(field, default)| {
            let eps = fields.positive(field)?.unwrap_or(default) as f32;
            Ok::<_, ConfigError>(Mamba2Norm { num_groups, eps, before_gate: false })
        });
        let config = Mamba2Config {
            num_heads,
            head_dim,
            state_size: size(fields, self.state_size)?,
            num_groups,
            conv_kernel: size(fields, self.conv_kernel)?,
            conv_bias: fields.flag_or(self.conv_bias.0, self.conv_bias.1)?,
            in_bias: fields.flag_or(self.in_bias.0, self.in_bias.1)?,
            out_bias: fields.flag_or(self.out_bias.0, self.out_bias.1)?,
            activation: activation(fields, self.activation)?,
            dt_limit: dt_limit(fields)?,
            norm: norm.transpose()?,
            multipliers: Mamba2Multipliers::ONE,
        };
        let widest = config.state_size.max(config.conv_kernel * 2 * num_groups);
        check_state(fields, self.state_size.0, &[num_heads, head_dim, widest])?;
        Ok(config)
    }
}

/// Returns the width that `expand` times the hidden size gives.
pub(crate) fn inner_size(
    fields: &Fields,
    (field, default): (&str, f64),
    hidden: usize,
) -> Result<usize, ConfigError> {
    let inner = fields.positive(field)?.unwrap_or(default) * hidden as f64;
    let inner = inner as usize;
    match (1..=SIZE_MAX).contains(&inner) {
        true => Ok(inner),
        false => Err(fields.invalid(field, &format!("an inner width from 1 to {SIZE_MAX}"))),
    }
}

/// Reads `time_step_limit`, the least and the largest time step.
fn dt_limit(fields: &Fields) -> Result<[f32; 2], ConfigError> {
    const FIELD: &str = "time_step_limit";
    let limit = fields.numbers(FIELD, 2)?.unwrap_or_else(|| vec![0.0, f64::INFINITY]);
    match limit[..] {
        [least, most] if least <= most => Ok([least as f32, most as f32]),
        _ => Err(fields.invalid(FIELD, "a list of two numbers, the smaller one first")),
    }
}

fn size(fields: &Fields, (field, default): (&str, usize)) -> Result<usize, ConfigError> {
    Ok(fields.size(field)?.unwrap_or(default))
}

/// Returns whether a size is absent or `"auto"`.
fn is_auto(fields: &Fields, field: &str) -> bool {
    fields.value(field).is_none_or(|value| value.as_str() == Some("auto"))
}

/// Reads an activation that has no weights.
fn activation(
    fields: &Fields,
    (field, default): (&str, &str),
) -> Result<ActivationName, ConfigError> {
    let name = ActivationName::from_name(fields.text(field)?.unwrap_or(default));
    let is_plain = |name: &ActivationName| *name != ActivationName::XIelu;
    name.filter(is_plain).ok_or_else(|| fields.invalid(field, &accepted(false)))
}

/// Rejects a state that is larger than any real one.
fn check_state(fields: &Fields, field: &str, sizes: &[usize]) -> Result<(), ConfigError> {
    let product = sizes.iter().try_fold(1usize, |all, size| all.checked_mul(*size));
    match product.is_some_and(|product| product <= SIZE_MAX) {
        true => Ok(()),
        false => Err(fields.invalid(field, &format!("a state of at most {SIZE_MAX} numbers"))),
    }
}

/// Returns the layers of a family whose only parts are the mixer `mixer`.
pub(crate) fn mixers_alone(
    fields: &Fields,
    mixer: &Mixer,
) -> Result<Vec<LayerConfig>, ConfigError> {
    let layer = LayerConfig { mixer: mixer.clone(), feed_forward: FeedForward::None };
    Ok(vec![layer; num_layers(fields)?])
}

/// Returns the layers of a family in which `mixer` stands in the place of attention where
/// `has_attention` is false. Fields that list the kinds of layers are not read.
pub(crate) fn hybrid(
    fields: &Fields,
    family: &Family,
    max_position_embeddings: usize,
    mixer: &Mixer,
    has_attention: impl Fn(usize) -> bool,
) -> Result<Vec<LayerConfig>, ConfigError> {
    let fields = fields.without(&["layer_types", "layers_block_type"]);
    let mut layers = read_alike(&fields, family, max_position_embeddings)?;
    let others = layers.iter_mut().enumerate().filter(|(index, _)| !has_attention(*index));
    others.for_each(|(_, layer)| layer.mixer = mixer.clone());
    Ok(layers)
}
