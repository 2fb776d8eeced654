//! Requests that were convicted of making the model fail, remembered by their content. A client
//! that sends the same again is refused for a while.

use std::{slice, time::Duration};

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{
    error::RequestError,
    logic::{
        input::thinking::Thinking,
        request::{
            EngineRequest,
            ids::Micros,
            pooling_params::PoolingParams,
            sampling_params::SamplingParams,
            structured_output::{OutputFormat, StructuredOutput},
            work::Work,
        },
        text::stop::RepetitionDetection,
    },
};

/// Time for which a convicted request is refused, in microseconds: ten minutes.
pub const SENTENCE: Micros = 600_000_000;
/// Maximum number of fingerprints remembered. A new one replaces the oldest.
pub const CAPACITY: usize = 1_024;

/// Hash of a request's content: prompt, media, cache salt and sampling parameters. It leaves out
/// the seed, because a client that gives none gets another one each time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    /// Returns the fingerprint of a request. It is stable between builds, so it may be kept on
    /// disk.
    #[must_use]
    pub fn of(request: &EngineRequest) -> Self {
        let mut bytes = Bytes(Sha256::new());
        bytes.tokens(&request.prompt_token_ids);
        bytes.optional(request.cache_salt.as_deref(), |bytes, salt| bytes.text(salt));
        bytes.sequence(request.mm_features.iter(), |bytes, item| {
            bytes.text(&item.identifier);
            bytes.number(item.offset as u64);
            bytes.number(item.length as u64);
        });
        match &request.work {
            Work::Generate(params) => bytes.params(params),
            Work::Pool(params) => bytes.pooling(params),
        }
        if let Some(adapter) = &request.lora {
            bytes.text(&adapter.name);
            bytes.text(&adapter.path);
            bytes.text(&adapter.fingerprint.to_string());
        }
        Self(bytes.0.finalize().into())
    }
}

impl std::fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

/// The convicted requests, which are refused.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Quarantine {
    /// End of each refusal, in order of conviction, which is the order of release.
    until: IndexMap<Fingerprint, Micros>,
}

impl Quarantine {
    /// Returns a quarantine that refuses nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Refuses requests with this fingerprint from `now` on, for [`SENTENCE`].
    pub fn convict(&mut self, fingerprint: Fingerprint, now: Micros) {
        self.until.retain(|other, &mut until| until > now && *other != fingerprint);
        if self.until.len() >= CAPACITY {
            self.until.shift_remove_index(0);
        }
        self.until.insert(fingerprint, now.saturating_add(SENTENCE));
    }

    /// Checks whether a request with this fingerprint may be accepted.
    ///
    /// # Errors
    /// [`RequestError::Quarantined`] says how long the request is still refused.
    pub fn check(&self, fingerprint: Fingerprint, now: Micros) -> Result<(), RequestError> {
        match self.until.get(&fingerprint) {
            Some(&until) if until > now => {
                let retry_after = Duration::from_micros(until - now);
                Err(RequestError::Quarantined { retry_after })
            }
            _ => Ok(()),
        }
    }

    /// Returns the number of fingerprints, including those that expired since the last conviction.
    #[must_use]
    pub fn len(&self) -> usize {
        self.until.len()
    }

    /// Returns whether no fingerprint is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.until.is_empty()
    }
}

/// Writes values so that different ones never give the same bytes: a length stands before each
/// value of variable length.
struct Bytes(Sha256);

impl Bytes {
    fn number(&mut self, value: u64) {
        self.0.update(value.to_le_bytes());
    }

    fn float(&mut self, value: f32) {
        self.0.update(value.to_bits().to_le_bytes());
    }

    fn text(&mut self, value: &str) {
        self.number(value.len() as u64);
        self.0.update(value);
    }

    fn tokens(&mut self, tokens: &[u32]) {
        self.sequence(tokens.iter(), |bytes, token| bytes.0.update(token.to_le_bytes()));
    }

    fn sequence<T>(
        &mut self,
        values: impl ExactSizeIterator<Item = T>,
        mut write: impl FnMut(&mut Self, T),
    ) {
        self.number(values.len() as u64);
        values.for_each(|value| write(self, value));
    }

    fn optional<T>(&mut self, value: Option<T>, write: impl FnMut(&mut Self, T)) {
        self.sequence(value.into_iter(), write);
    }

    /// Every field is named, so that the compiler reports a missing one.
    fn params(&mut self, params: &SamplingParams) {
        let SamplingParams {
            n,
            presence_penalty,
            frequency_penalty,
            repetition_penalty,
            temperature,
            top_p,
            top_k,
            min_p,
            seed: _,
            stop,
            stop_token_ids,
            bad_words,
            include_stop_str_in_output,
            ignore_eos,
            max_tokens,
            min_tokens,
            logprobs,
            logprob_token_ids,
            prompt_logprobs,
            skip_special_tokens,
            spaces_between_special_tokens,
            logit_bias,
            allowed_token_ids,
            repetition_detection,
            stream_interval,
            structured_output,
            thinking,
            token_rules,
        } = params;
        let floats =
            [presence_penalty, frequency_penalty, repetition_penalty, temperature, top_p, min_p];
        floats.into_iter().for_each(|&value| self.float(value));
        let counts = [n, top_k, max_tokens, min_tokens, stream_interval];
        counts.into_iter().for_each(|&value| self.number(value.into()));
        let flags = [
            include_stop_str_in_output,
            ignore_eos,
            skip_special_tokens,
            spaces_between_special_tokens,
        ];
        flags.into_iter().for_each(|&flag| self.number(flag.into()));
        self.sequence(stop.iter(), |bytes, text| bytes.text(text));
        self.tokens(stop_token_ids);
        self.sequence(bad_words.iter(), |bytes, word| bytes.tokens(word));
        self.optional(*logprobs, |bytes, count| bytes.number(count.into()));
        self.tokens(logprob_token_ids);
        self.optional(*prompt_logprobs, |bytes, count| bytes.number(count.into()));
        self.sequence(logit_bias.iter(), |bytes, &(token, bias)| {
            bytes.number(token.into());
            bytes.float(bias);
        });
        self.optional(allowed_token_ids.as_deref(), Self::tokens);
        self.optional(*repetition_detection, |bytes, repetition: RepetitionDetection| {
            bytes.number(repetition.max_pattern_size as u64);
            bytes.number(repetition.min_pattern_size as u64);
            bytes.number(repetition.min_count as u64);
        });
        self.optional(structured_output.as_deref(), Self::structured_output);
        self.optional(thinking.as_deref(), |bytes, thinking: &Thinking| {
            bytes.tokens(&thinking.begin);
            bytes.tokens(&thinking.end);
            bytes.optional(thinking.budget, |bytes, budget| bytes.number(budget.into()));
        });
        // The last field, and absent where there are none: requests without rules keep their
        // fingerprint.
        if !token_rules.is_empty() {
            self.sequence(token_rules.iter(), |bytes, rule| {
                bytes.text(&rule.name);
                bytes.text(&rule.argument);
            });
        }
    }

    /// Appends the parameters of pooling. No encoding of sampling parameters begins with this word.
    fn pooling(&mut self, params: &PoolingParams) {
        let PoolingParams {
            task,
            use_activation,
            dimensions,
            second_text_at,
            in_pieces,
            needs_all_tokens,
            num_left_out,
            chunk_ends,
        } = params;
        self.text("pool");
        self.text(task.as_str());
        self.optional(*use_activation, |bytes, on| bytes.number(on.into()));
        self.optional(*dimensions, |bytes, count| bytes.number(count.into()));
        self.optional(*second_text_at, |bytes, at| bytes.number(at.into()));
        self.number((*in_pieces).into());
        self.number((*needs_all_tokens).into());
        self.sequence(chunk_ends.iter(), |bytes, end| bytes.number((*end).into()));
        // Absent where all tokens count: such requests keep their fingerprint.
        if *num_left_out > 0 {
            self.number((*num_left_out).into());
        }
    }

    fn structured_output(&mut self, output: &StructuredOutput) {
        let StructuredOutput { format, disable_any_whitespace, disable_additional_properties } =
            output;
        self.optional(*disable_any_whitespace, |bytes, value| bytes.number(value.into()));
        self.number((*disable_additional_properties).into());
        let (kind, texts) = match format {
            OutputFormat::JsonSchema(schema) => (0, slice::from_ref(schema)),
            OutputFormat::JsonObject => (1, [].as_slice()),
            OutputFormat::Regex(regex) => (2, slice::from_ref(regex)),
            OutputFormat::Choice(choices) => (3, choices.as_slice()),
            OutputFormat::Grammar(grammar) => (4, slice::from_ref(grammar)),
            OutputFormat::StructuralTag(tag) => (5, slice::from_ref(tag)),
        };
        self.number(kind);
        self.sequence(texts.iter(), |bytes, text| bytes.text(text));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::logic::request::{
        ids::RequestId, lora::LoraRequest, pooling_params::PoolingTask,
        sampling_params::TokenRuleCall,
    };

    fn request() -> EngineRequest {
        EngineRequest::for_test(1, [1, 2, 3])
    }

    fn changed(change: impl FnOnce(&mut EngineRequest)) -> Fingerprint {
        let mut request = request();
        change(&mut request);
        Fingerprint::of(&request)
    }

    /// The constant changes with the encoding, and then fingerprints on disk are void.
    #[test]
    fn the_encoding_is_stable() {
        let golden = "0dd6b3a604c586fbf84b3d6a84388fa16eb3e5fe77547dc48aee5e2386efafd6";
        assert_eq!(changed(|_| ()).to_string(), golden);
    }

    #[test]
    fn client_time_and_seed_make_no_difference() {
        let other = changed(|request| {
            request.id = RequestId(9);
            request.arrival = 7;
            request.priority = 3;
            request.deadline = Some(8);
            request.seed = 42;
            request.sampling_mut().seed = Some(42);
        });
        assert_eq!(other, changed(|_| ()));
    }

    #[test]
    fn every_input_of_the_model_makes_a_difference() {
        fn rule(name: &str, argument: &str) -> TokenRuleCall {
            TokenRuleCall { name: name.to_owned(), argument: argument.to_owned() }
        }
        let changes: [fn(&mut EngineRequest); 17] = [
            |request| request.lora = Some(Arc::new(LoraRequest::for_test("a"))),
            |request| request.lora = Some(Arc::new(LoraRequest::for_test("b"))),
            |_| (),
            |request| request.prompt_token_ids = Arc::from([1, 2]),
            |request| request.prompt_token_ids = Arc::from([1, 2, 4]),
            |request| request.cache_salt = Some(Arc::from("")),
            |request| request.cache_salt = Some(Arc::from("a")),
            |request| request.sampling_mut().temperature = 0.5,
            |request| request.sampling_mut().stop = vec!["ab".into()],
            |request| request.sampling_mut().stop = vec!["a".into(), "b".into()],
            |request| request.sampling_mut().logprobs = Some(0),
            |request| request.sampling_mut().logprob_token_ids = vec![0],
            |request| request.sampling_mut().prompt_logprobs = Some(0),
            |request| request.sampling_mut().token_rules = vec![rule("ab", "")],
            |request| request.sampling_mut().token_rules = vec![rule("a", "b")],
            |request| request.work = Work::Pool(PoolingParams::new(PoolingTask::Embed)),
            |request| request.work = Work::Pool(PoolingParams::new(PoolingTask::Classify)),
        ];
        let mut all: Vec<Fingerprint> = changes.map(changed).to_vec();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), changes.len());
    }

    fn print(number: usize) -> Fingerprint {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        Fingerprint(bytes)
    }

    #[test]
    fn a_convict_is_refused_for_ten_minutes() {
        let mut quarantine = Quarantine::new();
        quarantine.convict(print(1), 5);
        assert_eq!(quarantine.check(print(2), 5), Ok(()));
        let retry_after = Duration::from_secs(599);
        let refused = Err(RequestError::Quarantined { retry_after });
        assert_eq!(quarantine.check(print(1), 1_000_005), refused);
        assert!(quarantine.check(print(1), 600_000_004).is_err());
        assert_eq!(quarantine.check(print(1), 600_000_005), Ok(()));
    }

    #[test]
    fn a_second_conviction_begins_the_time_again() {
        let mut quarantine = Quarantine::new();
        quarantine.convict(print(1), 0);
        quarantine.convict(print(2), 1);
        quarantine.convict(print(1), 500);
        assert_eq!(quarantine.len(), 2);
        assert!(quarantine.check(print(1), SENTENCE + 499).is_err());
    }

    #[test]
    fn the_oldest_is_forgotten_for_a_new_one_and_the_expired_make_room() {
        let mut quarantine = Quarantine::new();
        for number in 0..CAPACITY {
            quarantine.convict(print(number), 0);
        }
        quarantine.convict(print(0), 1);
        quarantine.convict(print(CAPACITY), 2);
        assert_eq!(quarantine.len(), CAPACITY);
        assert_eq!(quarantine.check(print(1), 2), Ok(()), "the oldest");
        assert!(quarantine.check(print(0), 2).is_err(), "convicted again since");
        quarantine.convict(print(7), SENTENCE);
        assert_eq!(quarantine.len(), 3, "all but those of 1 and 2 have expired");
    }
}
