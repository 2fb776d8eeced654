//! Rotary embedding parameters: `rope_theta` and `rope_scaling` of transformers 4, or
//! `rope_parameters` of transformers 5, which has both, and may have them for each kind of layer.
//!
//! The fields and their defaults are those of `transformers/modeling_rope_utils.py`
//! (`RotaryEmbeddingConfigMixin.standardize_rope_params`). `layers::rotary::inverse_frequencies`
//! explains them.

use serde_json::Value;

use super::ConfigError;
use super::file::Fields;

/// The default base of transformers.
const DEFAULT_THETA: f64 = 10_000.0;
const TYPES: &str =
    "one of \"default\", \"linear\", \"dynamic\", \"yarn\", \"llama3\", \"longrope\"";

/// The rotary embedding of one layer: the rule that turns positions into angles.
#[derive(Debug, Clone, PartialEq)]
pub struct RopeParameters {
    /// The base of the wavelengths.
    pub theta: f64,
    /// The scaling of the frequencies for longer contexts.
    pub scaling: RopeScaling,
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
    /// YaRN.
    Yarn(YarnScaling),
    /// The rule of Llama 3.1.
    Llama3(Llama3Scaling),
    /// LongRoPE.
    LongRope(LongRopeScaling),
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
    /// The context of pretraining, in tokens.
    pub original_max_position_embeddings: usize,
}

/// Reads the rope parameters of layers of the kind `layer_type` (`full_attention`, …).
pub(super) fn read(
    config: &Fields,
    layer_type: &str,
    head_dim: usize,
    max_position_embeddings: usize,
) -> Result<RopeParameters, ConfigError> {
    let mut parameters = match rope_object(config)? {
        Some(parameters) if is_by_layer_type(&parameters) => parameters
            .nested(layer_type)?
            .ok_or_else(|| parameters.missing(layer_type, "an object for each layer type"))?,
        Some(parameters) => parameters,
        None => Fields::empty_in(config),
    };
    parameters.set_default("rope_theta", config.value("rope_theta"));
    parameters.set_default("partial_rotary_factor", config.value("partial_rotary_factor"));
    parameters.set_default("rope_type", parameters.value("type").cloned().as_ref());
    let original = "original_max_position_embeddings";
    if let Some(length) = config.value(original) {
        parameters.set(original, length.clone());
    }
    parameters.set_default(original, Some(&Value::from(max_position_embeddings)));

    if parameters.number("partial_rotary_factor")?.is_some_and(|part| part != 1.0) {
        return Err(parameters.invalid("partial_rotary_factor", "1.0, the whole head rotated"));
    }
    let theta = parameters.positive("rope_theta")?.unwrap_or(DEFAULT_THETA);
    let scaling = read_scaling(&parameters, head_dim, max_position_embeddings)?;
    Ok(RopeParameters { theta, scaling })
}

/// Returns `rope_scaling` if it is not empty, else `rope_parameters`.
fn rope_object(config: &Fields) -> Result<Option<Fields>, ConfigError> {
    match config.nested("rope_scaling")? {
        Some(scaling) if !scaling.is_empty() => Ok(Some(scaling)),
        _ => config.nested("rope_parameters"),
    }
}

fn is_by_layer_type(parameters: &Fields) -> bool {
    super::layer::LAYER_TYPES.iter().any(|layer_type| parameters.value(layer_type).is_some())
}

fn read_scaling(
    parameters: &Fields,
    head_dim: usize,
    max_position_embeddings: usize,
) -> Result<RopeScaling, ConfigError> {
    let factor = || parameters.required_positive("factor");
    let rope_type = parameters.text("rope_type")?.unwrap_or("default");
    Ok(match rope_type {
        "default" => RopeScaling::Default,
        "linear" => RopeScaling::Linear { factor: factor()? },
        // The exponent of the base is head_dim / (head_dim - 2).
        "dynamic" if head_dim > 2 => RopeScaling::Dynamic { factor: factor()? },
        "yarn" => RopeScaling::Yarn(read_yarn(parameters, max_position_embeddings)?),
        "llama3" => RopeScaling::Llama3(read_llama3(parameters)?),
        // "su" is its name in the first Phi-3 checkpoints.
        "longrope" | "su" => {
            RopeScaling::LongRope(read_longrope(parameters, head_dim, max_position_embeddings)?)
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
        truncate: parameters.flag("truncate")?.unwrap_or(true),
    })
}

/// Returns `number` unless it is 0, which transformers treats as absent in these fields.
fn non_zero(number: Option<f64>) -> Option<f64> {
    number.filter(|x| *x != 0.0)
}

fn read_llama3(parameters: &Fields) -> Result<Llama3Scaling, ConfigError> {
    let low_freq_factor = parameters.required_positive("low_freq_factor")?;
    let high_freq_factor = parameters.required_positive("high_freq_factor")?;
    if high_freq_factor <= low_freq_factor {
        let expected = format!("a number above low_freq_factor, {low_freq_factor}");
        return Err(parameters.invalid("high_freq_factor", &expected));
    }
    Ok(Llama3Scaling {
        factor: parameters.required_positive("factor")?,
        low_freq_factor,
        high_freq_factor,
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
        original_max_position_embeddings: original,
    })
}

#[cfg(test)]
mod tests;
