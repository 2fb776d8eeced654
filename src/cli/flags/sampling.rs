//! Flags about the sampling of one request.

use std::{fmt, str::FromStr};

use clap::Args;
use serde_json::{Map, Value, json};

use crate::api::{RawRequest, SamplingParams};
use crate::engine::DefaultSampling;

/// Flags of the commands that make requests. Parameters without a flag have the model's default,
/// then the API's.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Sampling")]
pub(crate) struct SamplingFlags {
    /// Maximum number of tokens to generate [default: 256; in chat as many as the context leaves]
    #[arg(long, value_name = "N")]
    pub(crate) max_tokens: Option<u32>,
    /// Fewest tokens to generate
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
    /// Continue after the end-of-sequence token
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
        request.max_tokens = self.max_tokens;
    }

    fn apply_limits(&self, params: &mut SamplingParams) {
        params.top_k = self.top_k.unwrap_or(params.top_k);
        params.min_tokens = self.min_tokens.unwrap_or(params.min_tokens);
        params.seed = self.seed.or(params.seed);
        params.stop.extend(self.stop.iter().cloned());
        params.ignore_eos |= self.ignore_eos;
    }
}

impl SamplingFlags {
    /// Returns the fields of a request over HTTP that these flags set.
    pub(crate) fn fields(&self) -> Map<String, Value> {
        let stop = (!self.stop.is_empty()).then(|| json!(self.stop));
        let fields = [
            ("max_tokens", self.max_tokens.map(Value::from)),
            ("min_tokens", self.min_tokens.map(Value::from)),
            ("temperature", self.temperature.map(|value| json!(value))),
            ("top_p", self.top_p.map(|value| json!(value))),
            ("top_k", self.top_k.map(Value::from)),
            ("min_p", self.min_p.map(|value| json!(value))),
            ("seed", self.seed.map(Value::from)),
            ("stop", stop),
            ("repetition_penalty", self.repetition_penalty.map(|value| json!(value))),
            ("presence_penalty", self.presence_penalty.map(|value| json!(value))),
            ("frequency_penalty", self.frequency_penalty.map(|value| json!(value))),
            ("ignore_eos", self.ignore_eos.then(|| Value::from(true))),
        ];
        fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }
}

/// The parameters that [`SamplingFlags::set`] accepts.
const SETTABLE: &str = "max_tokens, min_tokens, temperature, top_p, top_k, min_p, seed, \
                        repetition_penalty, presence_penalty, frequency_penalty";

impl SamplingFlags {
    /// Sets the parameter `name`, or resets it if the value is `default`.
    ///
    /// # Errors
    /// A message, when there is no parameter of this name, or it cannot have this value.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "max_tokens" => put(&mut self.max_tokens, name, value),
            "min_tokens" => put(&mut self.min_tokens, name, value),
            "temperature" => put(&mut self.temperature, name, value),
            "top_p" => put(&mut self.top_p, name, value),
            "top_k" => put(&mut self.top_k, name, value),
            "min_p" => put(&mut self.min_p, name, value),
            "seed" => put(&mut self.seed, name, value),
            "repetition_penalty" => put(&mut self.repetition_penalty, name, value),
            "presence_penalty" => put(&mut self.presence_penalty, name, value),
            "frequency_penalty" => put(&mut self.frequency_penalty, name, value),
            _ => Err(format!("there is no parameter {name}: set one of {SETTABLE}")),
        }
    }
}

fn put<T: FromStr>(parameter: &mut Option<T>, name: &str, value: &str) -> Result<(), String> {
    if value == "default" {
        *parameter = None;
        return Ok(());
    }
    let parsed = value.parse().map_err(|_| format!("{name} must be a number, not {value:?}"))?;
    *parameter = Some(parsed);
    Ok(())
}

/// Writes the parameters that are set.
impl fmt::Display for SamplingFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |value: Option<f32>| value.map(|value| value.to_string());
        let set = [
            ("max_tokens", self.max_tokens.map(|value| value.to_string())),
            ("min_tokens", self.min_tokens.map(|value| value.to_string())),
            ("temperature", text(self.temperature)),
            ("top_p", text(self.top_p)),
            ("top_k", self.top_k.map(|value| value.to_string())),
            ("min_p", text(self.min_p)),
            ("seed", self.seed.map(|value| value.to_string())),
            ("repetition_penalty", text(self.repetition_penalty)),
            ("presence_penalty", text(self.presence_penalty)),
            ("frequency_penalty", text(self.frequency_penalty)),
        ];
        let set = set.into_iter().filter_map(|(name, value)| Some(format!("{name} {}", value?)));
        let set: Vec<_> = set.collect();
        match set.is_empty() {
            true => write!(f, "all as the model's authors, or the API, have it; set {SETTABLE}"),
            false => write!(f, "{}; all else by default", set.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::api::Prompt;

    #[test]
    fn flags_come_before_the_models_defaults() {
        let defaults =
            DefaultSampling { temperature: Some(0.6), top_p: Some(0.9), ..Default::default() };
        let flags =
            SamplingFlags { temperature: Some(0.0), max_tokens: Some(7), ..Default::default() };
        let mut request = RawRequest::new(Prompt::Text("hello".to_owned()));
        flags.apply(&defaults, &mut request);
        assert_eq!((request.params.temperature, request.params.top_p), (0.0, 0.9));
        assert_eq!(request.params.repetition_penalty, 1.0);
        assert_eq!(request.max_tokens, Some(7));
    }

    #[test]
    fn only_flags_that_are_given_become_fields() {
        assert!(SamplingFlags::default().fields().is_empty());
        let flags = SamplingFlags {
            temperature: Some(0.5),
            stop: vec!["a".to_owned()],
            ignore_eos: true,
            ..Default::default()
        };
        let expected = json!({"temperature": 0.5, "stop": ["a"], "ignore_eos": true});
        assert_eq!(Value::from(flags.fields()), expected);
    }

    #[test]
    fn parameters_are_set_by_name_and_errors_list_the_known_ones() {
        let mut flags = SamplingFlags::default();
        for name in SETTABLE.split(", ") {
            flags.set(name, "1").unwrap();
            assert!(flags.to_string().contains(&format!("{name} 1")), "{flags}");
            flags.set(name, "default").unwrap();
        }
        assert!(flags.to_string().starts_with("all as"));
        assert_eq!(flags.set("seed", "x").unwrap_err(), "seed must be a number, not \"x\"");
        assert!(flags.set("heat", "1").unwrap_err().contains("set one of max_tokens, "));
    }
}
