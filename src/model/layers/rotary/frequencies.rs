//! Inverse frequencies: the angle by which each pair of a head turns from one position to the next.
//!
//! The formulas are those of `transformers/modeling_rope_utils.py`, each named at its function. The
//! rounding is the same too: powers and products in f32, borders of ramps in f64.

use std::f64::consts::{PI, TAU};

use crate::model::config::{
    Llama3Scaling, LongRopeScaling, RopeParameters, RopeScaling, YarnScaling,
};

/// The angles of one position, and the factor of their cosines and sines.
#[derive(Debug, Clone, PartialEq)]
pub struct InverseFrequencies {
    /// Radians per position: `[rotary_dim / 2]`, fastest first.
    pub inv_freq: Vec<f32>,
    /// The factor of every cosine and sine.
    pub attention_factor: f32,
}

/// Returns the inverse frequencies of the rotating parts of heads in a model that serves
/// `max_model_len` tokens.
///
/// In HF, the frequencies of dynamic NTK and LongRoPE depend on the longest sequence in the batch.
/// A request's result would then depend on its neighbours, and the frequencies would change after
/// keys are cached. So all tokens of a request here have those of HF for a sequence of
/// `max_model_len` tokens, as in vLLM. Only a request that cannot outgrow the context of the
/// training has those of that context, by a call with its length as `max_model_len`:
/// `ModelConfig::short_context`.
#[must_use]
pub fn inverse_frequencies(
    parameters: &RopeParameters,
    max_position_embeddings: usize,
    max_model_len: usize,
) -> InverseFrequencies {
    let (theta, head_dim) = (parameters.theta, parameters.frequency_dim);
    let plain = || default_frequencies(theta, head_dim);
    let (mut inv_freq, attention_factor) = match &parameters.scaling {
        RopeScaling::Default => (plain(), 1.0),
        RopeScaling::Linear { factor } => (linear(plain(), *factor), 1.0),
        RopeScaling::Dynamic { factor } => {
            let length = max_model_len.max(max_position_embeddings) as f64;
            let stretch = length / max_position_embeddings as f64;
            (default_frequencies(dynamic_base(theta, *factor, stretch, head_dim), head_dim), 1.0)
        }
        RopeScaling::Ntk { factor } => (ntk(theta, *factor, head_dim), 1.0),
        RopeScaling::Yarn(scaling) => {
            (yarn(scaling, theta, head_dim), yarn_attention_factor(scaling))
        }
        RopeScaling::Llama3(scaling) => (llama3(plain(), scaling), 1.0),
        RopeScaling::Proportional { turning, factor } => {
            (proportional(plain(), *turning, *factor), 1.0)
        }
        RopeScaling::LongRope(scaling) => {
            let factor = longrope_attention_factor(scaling, max_model_len);
            (longrope(scaling, theta, head_dim, max_model_len), factor)
        }
    };
    if parameters.is_backward {
        inv_freq.iter_mut().for_each(|frequency| *frequency = -*frequency);
    }
    InverseFrequencies { inv_freq, attention_factor: attention_factor as f32 }
}

/// Returns `theta^(2i / head_dim)` for each pair i.
fn wavelengths(theta: f64, head_dim: usize) -> impl Iterator<Item = f32> {
    let theta = f64::from(theta as f32);
    (0..head_dim).step_by(2).map(move |i| {
        let exponent = i as f32 / head_dim as f32;
        theta.powf(f64::from(exponent)) as f32
    })
}

/// Returns unscaled frequencies: HF `LlamaRotaryEmbedding.compute_default_rope_parameters`.
pub(in crate::model) fn default_frequencies(theta: f64, head_dim: usize) -> Vec<f32> {
    wavelengths(theta, head_dim).map(f32::recip).collect()
}

/// Divides positions by a factor: HF `_compute_linear_scaling_rope_parameters`.
fn linear(inv_freq: Vec<f32>, factor: f64) -> Vec<f32> {
    inv_freq.into_iter().map(|frequency| frequency / factor as f32).collect()
}

/// Divides positions by a factor, and stops the pairs from `turning` on: HF
/// `_compute_proportional_rope_parameters`.
fn proportional(mut inv_freq: Vec<f32>, turning: usize, factor: f64) -> Vec<f32> {
    inv_freq.iter_mut().skip(turning).for_each(|frequency| *frequency = 0.0);
    linear(inv_freq, factor)
}

/// Returns the base for a context `stretch` times that of training: HF
/// `_compute_dynamic_ntk_parameters`.
fn dynamic_base(theta: f64, factor: f64, stretch: f64, head_dim: usize) -> f64 {
    let head_dim = head_dim as f64;
    theta * (factor * stretch - (factor - 1.0)).powf(head_dim / (head_dim - 2.0))
}

/// Multiplies the base by the factor, and divides all frequencies by a root of it: vLLM
/// `NTKScalingRotaryEmbedding` without `mixed_b`, which is that of GTE's authors.
fn ntk(theta: f64, factor: f64, head_dim: usize) -> Vec<f32> {
    let root = factor.powf(2.0 / head_dim as f64) as f32;
    default_frequencies(theta * factor, head_dim).into_iter().map(|it| it / root).collect()
}

/// Interpolates slow dimensions and keeps fast ones, with a ramp between them: HF
/// `_compute_yarn_parameters`.
fn yarn(scaling: &YarnScaling, theta: f64, head_dim: usize) -> Vec<f32> {
    let (low, high) = yarn_ramp(scaling, theta, head_dim);
    // An empty ramp becomes a step.
    let width = if low == high { 0.001 } else { high - low } as f32;
    wavelengths(theta, head_dim)
        .enumerate()
        .map(|(pair, wavelength)| {
            let ramp = ((pair as f32 - low as f32) / width).clamp(0.0, 1.0);
            let kept = 1.0 - ramp;
            let interpolated = (scaling.factor as f32 * wavelength).recip();
            interpolated * (1.0 - kept) + wavelength.recip() * kept
        })
        .collect()
}

/// Returns the first and the last pair of the ramp.
fn yarn_ramp(scaling: &YarnScaling, theta: f64, head_dim: usize) -> (f64, f64) {
    let dim = head_dim as f64;
    let context = scaling.original_max_position_embeddings as f64;
    let pair_with = |rotations: f64| dim * (context / (rotations * TAU)).ln() / (2.0 * theta.ln());
    let (mut low, mut high) = (pair_with(scaling.beta_fast), pair_with(scaling.beta_slow));
    if scaling.truncate {
        (low, high) = (low.floor(), high.ceil());
    }
    (low.max(0.0), high.min(dim - 1.0))
}

/// Returns the attention factor, derived unless the config gives it: HF
/// `_compute_yarn_parameters`.
fn yarn_attention_factor(scaling: &YarnScaling) -> f64 {
    let mscale = |weight: f64| match scaling.factor {
        factor if factor <= 1.0 => 1.0,
        factor => 0.1 * weight * factor.ln() + 1.0,
    };
    match (scaling.attention_factor, scaling.mscale, scaling.mscale_all_dim) {
        (Some(given), _, _) => given,
        (None, Some(numerator), Some(denominator)) => mscale(numerator) / mscale(denominator),
        (None, _, _) => mscale(1.0),
    }
}

/// Divides the frequencies of long wavelengths by the factor, keeps those of short ones, and blends
/// between them: HF `_compute_llama3_parameters`.
fn llama3(inv_freq: Vec<f32>, scaling: &Llama3Scaling) -> Vec<f32> {
    let context = scaling.original_max_position_embeddings as f64;
    let (low, high) = (scaling.low_freq_factor, scaling.high_freq_factor);
    let factor = scaling.factor as f32;
    let (longest_kept, shortest_scaled) = ((context / high) as f32, (context / low) as f32);
    inv_freq
        .into_iter()
        .map(|frequency| {
            let wavelength = (2.0 * PI) as f32 / frequency;
            // Llama 4 Scout has equal borders, between which there is nothing.
            if wavelength > shortest_scaled || low == high && wavelength == shortest_scaled {
                frequency / factor
            } else if wavelength < longest_kept {
                frequency
            } else {
                let smooth = (context as f32 / wavelength - low as f32) / (high - low) as f32;
                (1.0 - smooth) * frequency / factor + smooth * frequency
            }
        })
        .collect()
}

/// Divides each frequency by its own factor, which differs between short and long contexts: HF
/// `_compute_longrope_parameters`.
fn longrope(
    scaling: &LongRopeScaling,
    theta: f64,
    head_dim: usize,
    max_model_len: usize,
) -> Vec<f32> {
    let factors =
        if is_long(scaling, max_model_len) { &scaling.long_factor } else { &scaling.short_factor };
    wavelengths(theta, head_dim)
        .zip(factors)
        .map(|(wavelength, factor)| (factor * wavelength).recip())
        .collect()
}

fn is_long(scaling: &LongRopeScaling, max_model_len: usize) -> bool {
    max_model_len > scaling.original_max_position_embeddings
}

/// Returns the attention factor, derived unless the config gives it: HF
/// `_compute_longrope_parameters`, and `PhimoeRotaryEmbedding` with a factor for each context.
fn longrope_attention_factor(scaling: &LongRopeScaling, max_model_len: usize) -> f64 {
    if let Some([short, long]) = scaling.mscales {
        return if is_long(scaling, max_model_len) { long } else { short };
    }
    let context = scaling.original_max_position_embeddings as f64;
    match (scaling.attention_factor, scaling.factor) {
        (Some(given), _) => given,
        (None, factor) if factor <= 1.0 => 1.0,
        (None, factor) => (1.0 + factor.ln() / context.ln()).sqrt(),
    }
}
