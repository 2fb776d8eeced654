//! Flags about how one request samples.

use clap::Args;
use playhouse_actors::{
    logic::sampling_params::SamplingParams, message::input_processor::RawRequest,
};

use crate::engine::DefaultSampling;

/// Flags of the commands that make requests. What is not given is the model's default, then the
/// API's.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Sampling")]
pub(crate) struct SamplingFlags {
    /// Tokens at most to generate
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub(crate) max_tokens: u32,
    /// Tokens at least to generate
    #[arg(long, value_name = "N")]
    pub(crate) min_tokens: Option<u32>,
    /// Randomness; 0 always takes the likeliest token
    #[arg(long, short = 't', value_name = "T")]
    pub(crate) temperature: Option<f32>,
    /// Sample from the likeliest tokens that have this much probability together
    #[arg(long, value_name = "P")]
    pub(crate) top_p: Option<f32>,
    /// Sample from this many likeliest tokens; 0 for all
    #[arg(long, value_name = "K")]
    pub(crate) top_k: Option<u32>,
    /// Sample from tokens with at least this share of the likeliest one's probability
    #[arg(long, value_name = "P")]
    pub(crate) min_p: Option<f32>,
    /// Makes the output repeatable
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Text that ends the output; may be repeated
    #[arg(long, value_name = "TEXT")]
    pub(crate) stop: Vec<String>,
    /// Divides the logits of tokens seen before
    #[arg(long, value_name = "R")]
    pub(crate) repetition_penalty: Option<f32>,
    /// Subtracted from the logits of tokens generated before
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub(crate) presence_penalty: Option<f32>,
    /// The same for each time that they were generated
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub(crate) frequency_penalty: Option<f32>,
    /// Go on past the end-of-sequence token
    #[arg(long)]
    pub(crate) ignore_eos: bool,
}

impl SamplingFlags {
    /// Puts the model's defaults and then these flags into `request`.
    pub(crate) fn apply(&self, defaults: &DefaultSampling, request: &mut RawRequest) {
        let params = &mut request.params;
        defaults.apply(params);
        let set = |given: Option<f32>, param: &mut f32| *param = given.unwrap_or(*param);
        set(self.temperature, &mut params.temperature);
        set(self.top_p, &mut params.top_p);
        set(self.min_p, &mut params.min_p);
        set(self.repetition_penalty, &mut params.repetition_penalty);
        set(self.presence_penalty, &mut params.presence_penalty);
        set(self.frequency_penalty, &mut params.frequency_penalty);
        self.apply_limits(params);
        request.max_tokens = Some(self.max_tokens);
    }

    fn apply_limits(&self, params: &mut SamplingParams) {
        params.top_k = self.top_k.unwrap_or(params.top_k);
        params.min_tokens = self.min_tokens.unwrap_or(params.min_tokens);
        params.seed = self.seed.or(params.seed);
        params.stop.extend(self.stop.iter().cloned());
        params.ignore_eos |= self.ignore_eos;
    }
}

#[cfg(test)]
mod tests {
    use playhouse_actors::message::input_processor::Prompt;

    use super::*;

    #[test]
    fn flags_come_before_the_models_defaults() {
        let defaults =
            DefaultSampling { temperature: Some(0.6), top_p: Some(0.9), ..Default::default() };
        let flags = SamplingFlags { temperature: Some(0.0), max_tokens: 7, ..Default::default() };
        let mut request = RawRequest::new(Prompt::Text("hello".to_owned()));
        flags.apply(&defaults, &mut request);
        assert_eq!((request.params.temperature, request.params.top_p), (0.0, 0.9));
        assert_eq!(request.params.repetition_penalty, 1.0);
        assert_eq!(request.max_tokens, Some(7));
    }
}
