//! Sampling defaults of the model's authors.

use playhouse_actors::logic::request::sampling_params::SamplingParams;

use crate::model::GenerationConfig;

/// The sampling parameters of `generation_config.json`. An absent one has the API's default.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DefaultSampling {
    /// Sampling temperature.
    pub temperature: Option<f32>,
    /// Nucleus mass.
    pub top_p: Option<f32>,
    /// The number of likeliest tokens to sample from; 0 for all.
    pub top_k: Option<u32>,
    /// The least probability of a token, relative to the likeliest one.
    pub min_p: Option<f32>,
    /// The divisor of the logits of tokens seen before.
    pub repetition_penalty: Option<f32>,
    /// The number subtracted from the logits of tokens generated before.
    pub presence_penalty: Option<f32>,
    /// The number subtracted from a token's logit for each time that it was generated.
    pub frequency_penalty: Option<f32>,
    /// The most tokens to generate.
    pub max_tokens: Option<u32>,
    /// The most tokens that a client may ask for, if the operator set it.
    pub max_tokens_limit: Option<u32>,
}

impl DefaultSampling {
    /// Returns the number of tokens that a client gets that asks for `wanted`.
    #[must_use]
    pub fn limited(&self, wanted: Option<u32>) -> Option<u32> {
        let limit = self.max_tokens_limit.unwrap_or(u32::MAX);
        wanted.map(|wanted| wanted.min(limit))
    }

    /// Copies the defaults that are set into `params`.
    pub fn apply(&self, params: &mut SamplingParams) {
        params.temperature = self.temperature.unwrap_or(params.temperature);
        params.top_p = self.top_p.unwrap_or(params.top_p);
        params.top_k = self.top_k.unwrap_or(params.top_k);
        params.min_p = self.min_p.unwrap_or(params.min_p);
        params.repetition_penalty = self.repetition_penalty.unwrap_or(params.repetition_penalty);
        params.presence_penalty = self.presence_penalty.unwrap_or(params.presence_penalty);
        params.frequency_penalty = self.frequency_penalty.unwrap_or(params.frequency_penalty);
    }
}

impl From<&GenerationConfig> for DefaultSampling {
    fn from(config: &GenerationConfig) -> Self {
        let max_tokens = config.max_new_tokens.and_then(|value| u32::try_from(value).ok());
        Self {
            temperature: config.temperature.map(|value| value as f32),
            top_p: config.top_p.map(|value| value as f32),
            // -1 means all, as 0 does.
            top_k: config.top_k.map(|value| u32::try_from(value).unwrap_or(0)),
            min_p: config.min_p.map(|value| value as f32),
            repetition_penalty: config.repetition_penalty.map(|value| value as f32),
            presence_penalty: config.presence_penalty.map(|value| value as f32),
            frequency_penalty: config.frequency_penalty.map(|value| value as f32),
            max_tokens,
            max_tokens_limit: max_tokens.filter(|_| config.bounds_clients),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_file_sets_is_applied() {
        let config = GenerationConfig {
            top_k: Some(-1),
            presence_penalty: Some(1.5),
            frequency_penalty: Some(-0.5),
            ..GenerationConfig::default()
        };
        let mut params = SamplingParams { min_p: 0.25, top_k: 7, ..SamplingParams::default() };
        DefaultSampling::from(&config).apply(&mut params);
        let expected = SamplingParams {
            min_p: 0.25,
            top_k: 0,
            presence_penalty: 1.5,
            frequency_penalty: -0.5,
            ..SamplingParams::default()
        };
        assert_eq!(params, expected);
    }
}
