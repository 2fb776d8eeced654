//! Rotary embedding parameters: `rope_theta` and `rope_scaling` of transformers 4, or
//! `rope_parameters` of transformers 5, which has both, and may have them for each kind of layer.
//!
//! The fields and their defaults are those of `transformers/modeling_rope_utils.py`
//! (`RotaryEmbeddingConfigMixin.standardize_rope_params`). `layers::rotary::inverse_frequencies`
//! explains them.

mod part;

use serde_json::Value;

use super::ConfigError;
use super::file::Fields;
use super::layer::{LAYER_TYPES, SLIDING};
use crate::model::family::{AxesRule, Family, PositionRule};

const TYPES: &str =
    "one of \"default\", \"linear\", \"dynamic\", \"ntk\", \"yarn\", \"llama3\", \"longrope\"";
const ORIGINAL: &str = "original_max_position_embeddings";

/// The rotary embedding of one layer: the rule that turns positions into angles.
#[derive(Debug, Clone, PartialEq)]
pub struct RopeParameters {
    /// The base of the wavelengths.
    pub theta: f64,
    /// The scaling of the frequencies for longer contexts.
    pub scaling: RopeScaling,
    /// Elements of a head that rotate, from its first on; even.
    pub rotary_dim: usize,
    /// The same number before it is rounded up to an even one: the divisor in exponents.
    pub frequency_dim: usize,
    /// Whether a pair is two neighbours. Otherwise it is an element of each half of the rotating
    /// part.
    pub is_interleaved: bool,
    /// Whether pairs turn the other way: by the negative of the usual angles.
    pub is_backward: bool,
    /// In models whose positions of media have three axes, the axis of each pair: 0 for frames, 1
    /// for rows, 2 for columns. `[rotary_dim / 2]`.
    pub axes: Option<Vec<u8>>,
}

/// The scaling of frequencies for contexts longer than those of the training.
#[derive(Debug, Clone, PartialEq)]
pub enum RopeScaling {
    /// No scaling.
    Default,
    /// Positions are divided by a factor.
    Linear {
        /// The factor.
        factor: f64,
    },
    /// The base grows with the context (dynamic NTK).
    Dynamic {
        /// The factor by which contexts may outgrow `max_position_embeddings`.
        factor: f64,
    },
    /// The base grows by a factor, and so do all wavelengths a little (NTK of GTE's authors).
    Ntk {
        /// The factor by which the context grows.
        factor: f64,
    },
    /// YaRN.
    Yarn(YarnScaling),
    /// The rule of Llama 3.1.
    Llama3(Llama3Scaling),
    /// LongRoPE.
    LongRope(LongRopeScaling),
    /// The first pairs of a head turn, and all others stand still (Gemma 4).
    Proportional {
        /// The pairs that turn.
        turning: usize,
        /// The divisor of positions.
        factor: f64,
    },
}

/// The parameters of YaRN (<https://arxiv.org/abs/2309.00071>).
#[derive(Debug, Clone, PartialEq)]
pub struct YarnScaling {
    /// The factor by which the context grows.
    pub factor: f64,
    /// The context of pretraining, in tokens.
    pub original_max_position_embeddings: usize,
    /// The factor of cos and sin. `None`: derived from `factor`.
    pub attention_factor: Option<f64>,
    /// Rotations above which a dimension does not change.
    pub beta_fast: f64,
    /// Rotations below which a dimension is fully interpolated.
    pub beta_slow: f64,
    /// With `mscale_all_dim`: the numerator of the derived attention factor.
    pub mscale: Option<f64>,
    /// With `mscale`: the denominator of the derived attention factor.
    pub mscale_all_dim: Option<f64>,
    /// Whether the borders of the ramp are rounded to whole dimensions.
    pub truncate: bool,
}

/// The parameters of Llama 3.1's scaling.
#[derive(Debug, Clone, PartialEq)]
pub struct Llama3Scaling {
    /// The divisor of frequencies with long wavelengths.
    pub factor: f64,
    /// Wavelengths above `original_max_position_embeddings / low_freq_factor` are long.
    pub low_freq_factor: f64,
    /// Wavelengths below `original_max_position_embeddings / high_freq_factor` are short.
    pub high_freq_factor: f64,
    /// The context of pretraining, in tokens.
    pub original_max_position_embeddings: usize,
}

/// The parameters of LongRoPE (<https://arxiv.org/abs/2402.13753>).
#[derive(Debug, Clone, PartialEq)]
pub struct LongRopeScaling {
    /// Divisors of the frequencies in contexts no longer than pretraining's: `[head_dim / 2]`.
    pub short_factor: Vec<f32>,
    /// Divisors of the frequencies in longer contexts: `[head_dim / 2]`.
    pub long_factor: Vec<f32>,
    /// The factor by which the context grows.
    pub factor: f64,
    /// The factor of cos and sin. `None`: derived from `factor`.
    pub attention_factor: Option<f64>,
    /// The same for contexts no longer than pretraining's, and for longer ones: `short_mscale` and
    /// `long_mscale`. They have precedence.
    pub mscales: Option<[f64; 2]>,
    /// The context of pretraining, in tokens.
    pub original_max_position_embeddings: usize,
}

/// Reads the rope parameters of layers of the kind `layer_type` (`full_attention`, …), if the
/// family has rotary embeddings.
pub(super) fn read(
    config: &Fields,
    family: &Family,
    layer_type: &str,
    head_dim: usize,
    max_position_embeddings: usize,
) -> Result<Option<RopeParameters>, ConfigError> {
    let PositionRule::Rotary { is_interleaved, percent } = family.positions else {
        return Ok(None);
    };
    let mut parameters = of_layers(config, family, layer_type, max_position_embeddings)?;
    let (base, default_theta) = match family.rope.sliding {
        Some(sliding) if layer_type == SLIDING => (sliding.theta, sliding.default),
        _ => (Some(family.rope.theta), family.defaults.rope_theta),
    };
    base.iter().for_each(|base| parameters.adopt("rope_theta", config, base));
    let proportion = part::proportion(&mut parameters, family, head_dim)?;
    let (rotary_dim, frequency_dim) =
        part::rotating(config, &mut parameters, family, head_dim, percent)?;
    let theta = parameters.positive("rope_theta")?.unwrap_or(default_theta);
    let scaling = match proportion {
        Some(turning) => {
            let factor = parameters.positive("factor")?.unwrap_or(1.0);
            RopeScaling::Proportional { turning, factor }
        }
        None => read_scaling(&parameters, family, frequency_dim, max_position_embeddings)?,
    };
    let axes = axes(&parameters, family.rope.axes, rotary_dim / 2);
    Ok(Some(RopeParameters {
        theta,
        scaling,
        rotary_dim,
        frequency_dim,
        is_interleaved,
        is_backward: false,
        axes,
    }))
}

/// Returns the axis of each of `pairs` pairs, if the parameters name as many pairs of three axes. A
/// text model alone needs none.
fn axes(parameters: &Fields, rule: AxesRule, pairs: usize) -> Option<Vec<u8>> {
    let size = |value: &Value| usize::try_from(value.as_u64()?).ok().filter(|n| *n <= pairs);
    let list = parameters.value("mrope_section")?.as_array()?;
    let sizes: Vec<usize> = list.iter().map(size).collect::<Option<_>>()?;
    if sizes.len() != 3 || sizes.iter().sum::<usize>() != pairs {
        return None;
    }
    match rule {
        AxesRule::None => None,
        AxesRule::InTurns => {
            let of_pair = |pair: usize| match pair % 3 {
                axis @ (1 | 2) if pair < 3 * sizes[axis] => axis as u8,
                _ => 0,
            };
            Some((0..pairs).map(of_pair).collect())
        }
        AxesRule::InSections => {
            let sections = (0_u8..3).zip(&sizes);
            Some(sections.flat_map(|(axis, size)| std::iter::repeat_n(axis, *size)).collect())
        }
    }
}

/// The expected value of `rope_parameters` if kinds of layers differ.
const EACH_LAYER_TYPE: &str = "an object for each layer type";

/// Returns the parameters of layers of the kind `layer_type`, without the base and the part of a
/// head that fields beside them have.
fn of_layers(
    config: &Fields,
    family: &Family,
    layer_type: &str,
    max_position_embeddings: usize,
) -> Result<Fields, ConfigError> {
    let (mut parameters, are_of_kind) = match rope_object(config)? {
        _ if family.rope.sliding.is_some() => (of_kind(config, layer_type)?, true),
        Some(all) if is_by_layer_type(&all) => {
            let of_kind = all.nested(layer_type)?;
            (of_kind.ok_or_else(|| all.missing(layer_type, EACH_LAYER_TYPE))?, true)
        }
        Some(all) => (all, false),
        None => (Fields::empty_in(config), false),
    };
    let own_type = parameters.clone();
    parameters.adopt("rope_type", &own_type, "type");
    if !are_of_kind {
        if let Some(length) = family.rope.longrope {
            parameters.set(ORIGINAL, length.into());
        }
        parameters.replace(ORIGINAL, config, ORIGINAL);
    }
    parameters.set_default(ORIGINAL, Some(&Value::from(max_position_embeddings)));
    Ok(parameters)
}

/// Returns the parameters of a family in which each kind of layer has its own.
fn of_kind(config: &Fields, layer_type: &str) -> Result<Fields, ConfigError> {
    let all = config.nested("rope_parameters")?;
    if let Some(all) = all.as_ref().filter(|all| !all.is_empty() && !names_layer_type(all)) {
        return Err(all.missing(layer_type, EACH_LAYER_TYPE));
    }
    let own = all.map(|all| all.nested(layer_type)).transpose()?.flatten();
    let mut parameters =
        own.unwrap_or_else(|| Fields::empty_in(config).with("rope_type", Value::from("default")));
    if layer_type != SLIDING
        && let Some(scaling) = config.nested("rope_scaling")?
    {
        scaling.names().iter().for_each(|name| parameters.replace(name, &scaling, name));
    }
    Ok(parameters)
}

impl Fields {
    /// Returns `rope_scaling` if it is not empty, else `rope_parameters`.
    pub(crate) fn rope(&self) -> Result<Option<Self>, ConfigError> {
        rope_object(self)
    }

    /// Returns the fields with `default` as `rope_parameters`, if no object has such parameters.
    pub(crate) fn or_rope(&self, default: Value) -> Result<Self, ConfigError> {
        Ok(match self.rope()? {
            Some(_) => self.clone(),
            None => self.with("rope_parameters", default),
        })
    }
}

fn rope_object(config: &Fields) -> Result<Option<Fields>, ConfigError> {
    match config.nested("rope_scaling")? {
        Some(scaling) if !scaling.is_empty() => Ok(Some(scaling)),
        _ => config.nested("rope_parameters"),
    }
}

fn names_layer_type(parameters: &Fields) -> bool {
    LAYER_TYPES.iter().any(|layer_type| parameters.has(layer_type))
}

fn is_by_layer_type(parameters: &Fields) -> bool {
    LAYER_TYPES.iter().any(|layer_type| parameters.value(layer_type).is_some())
}

fn read_scaling(
    parameters: &Fields,
    family: &Family,
    dim: usize,
    max_position_embeddings: usize,
) -> Result<RopeScaling, ConfigError> {
    let factor = || parameters.required_positive("factor");
    let has_longrope_alone = family.rope.longrope.is_some();
    let kind = match parameters.text("rope_type")?.unwrap_or("default") {
        // The first Phi-3 checkpoints have these names.
        "su" => "longrope",
        // The name of Sarvam's authors.
        "deepseek_yarn" => "yarn",
        "yarn" if has_longrope_alone => "longrope",
        "mrope" if family.rope.axes != AxesRule::None => "default",
        "linear" | "dynamic" | "llama3" if has_longrope_alone => {
            return Err(parameters.invalid("rope_type", "\"default\" or \"longrope\""));
        }
        kind => kind,
    };
    if !dim.is_multiple_of(2) && ["yarn", "longrope"].contains(&kind) {
        let expected = format!("\"default\" beside {dim} rotating elements, an odd number");
        return Err(parameters.invalid("rope_type", &expected));
    }
    Ok(match kind {
        "default" => RopeScaling::Default,
        "linear" => RopeScaling::Linear { factor: factor()? },
        // The exponent of the base is dim / (dim - 2).
        "dynamic" if dim > 2 => RopeScaling::Dynamic { factor: factor()? },
        "ntk" => {
            if parameters.value("mixed_b").is_some() {
                return Err(parameters.invalid("mixed_b", "null: mixed NTK is not supported"));
            }
            RopeScaling::Ntk { factor: factor()? }
        }
        "yarn" => RopeScaling::Yarn(read_yarn(parameters, max_position_embeddings)?),
        "llama3" => RopeScaling::Llama3(read_llama3(parameters)?),
        "longrope" => {
            RopeScaling::LongRope(read_longrope(parameters, dim, max_position_embeddings)?)
        }
        _ => return Err(parameters.invalid("rope_type", TYPES)),
    })
}

fn read_yarn(
    parameters: &Fields,
    max_position_embeddings: usize,
) -> Result<YarnScaling, ConfigError> {
    let original = parameters.required_size("original_max_position_embeddings")?;
    let implied_factor = max_position_embeddings as f64 / original as f64;
    Ok(YarnScaling {
        factor: parameters.positive("factor")?.unwrap_or(implied_factor),
        original_max_position_embeddings: original,
        attention_factor: parameters.positive("attention_factor")?,
        beta_fast: non_zero(parameters.number("beta_fast")?).unwrap_or(32.0),
        beta_slow: non_zero(parameters.number("beta_slow")?).unwrap_or(1.0),
        mscale: non_zero(parameters.number("mscale")?),
        mscale_all_dim: non_zero(parameters.number("mscale_all_dim")?),
        truncate: parameters.flag_or("truncate", true)?,
    })
}

/// Returns the factor of scores that belongs to a rotary embedding of a latent attention: HF
/// `yarn_apply_mscale`. As there, `mscale_all_dim` has an effect beside every kind of scaling.
pub(super) fn score_factor(config: &Fields, rope: &RopeParameters) -> Result<f64, ConfigError> {
    let factor = match &rope.scaling {
        RopeScaling::Default => 1.0,
        RopeScaling::Linear { factor }
        | RopeScaling::Dynamic { factor }
        | RopeScaling::Ntk { factor }
        | RopeScaling::Proportional { factor, .. } => *factor,
        RopeScaling::Yarn(yarn) => yarn.factor,
        RopeScaling::Llama3(llama3) => llama3.factor,
        RopeScaling::LongRope(longrope) => longrope.factor,
    };
    let weight = match rope_object(config)? {
        Some(parameters) => non_zero(parameters.number("mscale_all_dim")?),
        None => None,
    };
    Ok(match weight {
        Some(weight) if factor > 1.0 => (0.1 * weight * factor.ln() + 1.0).powi(2),
        _ => 1.0,
    })
}

/// Returns `number` unless it is 0, which transformers treats as absent in these fields.
fn non_zero(number: Option<f64>) -> Option<f64> {
    number.filter(|x| *x != 0.0)
}

fn read_llama3(parameters: &Fields) -> Result<Llama3Scaling, ConfigError> {
    Ok(Llama3Scaling {
        factor: parameters.required_positive("factor")?,
        low_freq_factor: parameters.required_positive("low_freq_factor")?,
        high_freq_factor: parameters.required_positive("high_freq_factor")?,
        original_max_position_embeddings: parameters
            .required_size("original_max_position_embeddings")?,
    })
}

fn read_longrope(
    parameters: &Fields,
    head_dim: usize,
    max_position_embeddings: usize,
) -> Result<LongRopeScaling, ConfigError> {
    let original = parameters.required_size("original_max_position_embeddings")?;
    let implied_factor = max_position_embeddings as f64 / original as f64;
    Ok(LongRopeScaling {
        short_factor: parameters.positive_list("short_factor", head_dim / 2)?,
        long_factor: parameters.positive_list("long_factor", head_dim / 2)?,
        factor: parameters.positive("factor")?.unwrap_or(implied_factor),
        attention_factor: parameters.positive("attention_factor")?,
        mscales: None,
        original_max_position_embeddings: original,
    })
}

#[cfg(test)]
mod family_tests;
#[cfg(test)]
mod tests;
