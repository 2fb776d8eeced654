//! `options`: how to sample, and when to stop. Options of the runtime (`num_ctx`) are the
//! server's settings and change nothing here.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    api::SamplingParams,
    config::LimitSettings,
    engine::DefaultSampling,
    server::http::{
        error::ApiError,
        fields::{Float, Int, Strings},
        limits::at_most,
    },
};

/// How many times as many stop strings as with OpenAI's API a request may have. Ollama has no
/// limit, and editors send ten for a completion.
const STOPS_FACTOR: usize = 4;

/// The options that have a meaning here. Others are ignored, as Ollama does.
#[derive(Debug, Default, Clone, Deserialize, Serialize, ToSchema)]
#[serde(default)]
#[schema(as = OllamaOptions)]
pub(super) struct Options {
    temperature: Option<Float>,
    top_p: Option<Float>,
    top_k: Option<Int>,
    min_p: Option<Float>,
    seed: Option<Int>,
    stop: Option<Strings>,
    /// Most tokens of output. -1 and -2: as many as the context leaves.
    num_predict: Option<Int>,
    repeat_penalty: Option<Float>,
    /// 0: no penalty for repetitions. Other values: the penalty looks at the whole text.
    repeat_last_n: Option<Int>,
    presence_penalty: Option<Float>,
    frequency_penalty: Option<Float>,
    typical_p: Option<Float>,
    tfs_z: Option<Float>,
    mirostat: Option<Int>,
}

impl Options {
    /// Rejects more stop strings than one request may have.
    pub(super) fn check_limits(&self, limits: &LimitSettings) -> Result<(), ApiError> {
        let stop = self.stop.as_ref().map_or(0, |Strings(stop)| stop.len());
        at_most("options.stop", stop, limits.max_stop_strings.saturating_mul(STOPS_FACTOR))
    }

    /// Returns the parameters: the client's values, then those of the model.
    ///
    /// # Errors
    /// If an option asks for a sampler that is not here, or is out of range.
    pub(super) fn params(&self, defaults: &DefaultSampling) -> Result<SamplingParams, ApiError> {
        let absent = [
            ("typical_p", self.typical_p.is_some_and(|Float(p)| p != 1.0)),
            ("tfs_z", self.tfs_z.is_some_and(|Float(z)| z != 1.0)),
            ("mirostat", self.mirostat.is_some_and(|mode| mode != Int(0))),
        ];
        if let Some((name, _)) = absent.iter().find(|(_, is_set)| *is_set) {
            let name = format!("options.{name}");
            let message = format!("{name} is not supported: use temperature, top_p or min_p");
            return Err(ApiError::invalid(&name, message));
        }
        let mut params = SamplingParams::default();
        defaults.apply(&mut params);
        let set =
            |to: &mut f32, given: Option<Float>| *to = given.map_or(*to, |Float(value)| value);
        set(&mut params.temperature, self.temperature);
        set(&mut params.top_p, self.top_p);
        set(&mut params.min_p, self.min_p);
        set(&mut params.presence_penalty, self.presence_penalty);
        set(&mut params.frequency_penalty, self.frequency_penalty);
        set(&mut params.repetition_penalty, self.repeat_penalty);
        if self.repeat_last_n == Some(Int(0)) {
            params.repetition_penalty = 1.0;
        }
        if let Some(top_k) = self.top_k {
            params.top_k = top_k.cast("options.top_k", "at least 0 (off)")?;
        }
        // -1 asks for a random seed.
        params.seed = self.seed.filter(|&seed| seed != Int(-1)).map(|Int(seed)| seed as u64);
        params.stop = self.stop.clone().map(|Strings(stop)| stop).unwrap_or_default();
        params.stop.retain(|stop| !stop.is_empty());
        Ok(params)
    }

    /// Returns the most tokens of output, if the client gives a limit.
    ///
    /// # Errors
    /// If it is out of range.
    pub(super) fn max_tokens(&self) -> Result<Option<u32>, ApiError> {
        match self.num_predict {
            None | Some(Int(-1 | -2)) => Ok(None),
            Some(tokens) => {
                let accepted = "at least 1, or -1 for as many as the context leaves";
                let count: u32 = tokens.cast("options.num_predict", accepted)?;
                // Zero tokens mean no limit, as in Ollama.
                Ok((count > 0).then_some(count))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn options(given: Value) -> Options {
        serde_json::from_value(given).unwrap()
    }

    #[test]
    fn options_become_parameters() {
        let defaults = DefaultSampling {
            temperature: Some(0.6),
            top_k: Some(20),
            repetition_penalty: Some(1.2),
            ..DefaultSampling::default()
        };
        let given = options(json!({
            "top_p": 0.5, "seed": 7, "stop": "END", "min_p": 0.1, "num_ctx": 4096,
            "presence_penalty": 1, "frequency_penalty": 0.5, "num_predict": 9,
        }));
        let params = given.params(&defaults).unwrap();
        assert_eq!((params.temperature, params.top_p, params.min_p), (0.6, 0.5, 0.1));
        assert_eq!((params.top_k, params.seed, params.stop), (20, Some(7), vec!["END".to_owned()]));
        assert_eq!((params.presence_penalty, params.frequency_penalty), (1.0, 0.5));
        assert_eq!((params.repetition_penalty, given.max_tokens()), (1.2, Ok(Some(9))));
        let off = options(json!({"repeat_last_n": 0, "repeat_penalty": 1.5, "seed": -1}));
        let params = off.params(&defaults).unwrap();
        assert_eq!((params.repetition_penalty, params.seed), (1.0, None));
        for unbounded in [json!({}), json!({"num_predict": -1}), json!({"num_predict": -2})] {
            assert_eq!(options(unbounded).max_tokens(), Ok(None));
        }
    }

    #[test]
    fn editors_may_send_many_stop_strings() {
        let limits = LimitSettings { max_stop_strings: 2, ..LimitSettings::default() };
        let stops = |count| options(json!({"stop": vec!["a"; count]})).check_limits(&limits);
        assert!(stops(8).is_ok());
        assert_eq!(stops(9).unwrap_err().param.as_deref(), Some("options.stop"));
    }

    #[test]
    fn a_sampler_that_is_not_here_is_named() {
        let refused = |given| {
            let params = options(given).params(&DefaultSampling::default());
            params.err().map(|error| error.param.unwrap())
        };
        assert_eq!(refused(json!({"mirostat": 2})).as_deref(), Some("options.mirostat"));
        assert_eq!(refused(json!({"typical_p": 0.7})).as_deref(), Some("options.typical_p"));
        assert_eq!(refused(json!({"top_k": -1})).as_deref(), Some("options.top_k"));
        let neutral = json!({"mirostat": 0, "typical_p": 1.0, "tfs_z": 1, "num_gpu": 9});
        assert_eq!(refused(neutral), None);
    }
}
