//! Which values go together.

use std::path::PathBuf;

use super::{
    ActivationQuantization, CertReqs, Device, Dtype, EngineConfig, KvCacheDtype, LimitSettings,
    LoadFormat, ParserChoice, ServerSettings, error::InvalidSetting,
};
use crate::parsers::UnknownParser;
use playhouse_actors::logic::memory::LIMIT_BYTES_MIN;

/// Longest that anything may be told to wait, seconds: a day.
const SECONDS_MAX: f64 = 86_400.0;
/// From windows of hours to windows of microseconds.
const RESTART_TOLERANCE_MIN: f64 = 0.01;
const RESTART_TOLERANCE_MAX: f64 = 1e6;

impl EngineConfig {
    /// Refuses values that are out of range or contradict each other, as far as that can be known
    /// without the model.
    ///
    /// # Errors
    /// The first such setting, with what would be accepted.
    pub fn validate(&self) -> Result<(), InvalidSetting> {
        self.validate_counts()?;
        self.validate_dtypes()?;
        self.validate_scheduling()?;
        self.validate_times()?;
        match self.max_model_len {
            Some(max_model_len) => self.validate_for(max_model_len),
            None => Ok(()),
        }
    }

    /// Refuses what does not go with the model's context length, once that is known.
    ///
    /// # Errors
    /// As [`EngineConfig::validate`].
    pub fn validate_for(&self, max_model_len: usize) -> Result<(), InvalidSetting> {
        let budget = self.max_num_batched_tokens;
        require(
            self.enable_chunked_prefill || budget >= max_model_len,
            "max_num_batched_tokens",
            budget,
            || {
                format!(
                    "at least max_model_len ({max_model_len}) when enable_chunked_prefill is \
                     false, or long prompts could never be computed"
                )
            },
        )?;
        let threshold = self.long_prefill_token_threshold;
        require(threshold <= max_model_len, "long_prefill_token_threshold", threshold, || {
            format!("at most max_model_len ({max_model_len})")
        })
    }

    fn validate_counts(&self) -> Result<(), InvalidSetting> {
        let at_least_one = [
            ("max_num_batched_tokens", self.max_num_batched_tokens),
            ("max_num_seqs", self.max_num_seqs),
            ("max_num_requests", self.max_num_requests),
            ("num_input_processors", self.num_input_processors),
            ("num_egress_shards", self.num_egress_shards),
            ("max_model_len", self.max_model_len.unwrap_or(1)),
            ("threads", self.threads.unwrap_or(1)),
            ("max_num_queued_tokens", self.max_num_queued_tokens.unwrap_or(1)),
            ("quota_max_open_requests", self.quota_max_open_requests.unwrap_or(1)),
            ("quota_tokens_per_minute", self.quota_tokens_per_minute.unwrap_or(1)),
        ];
        for (name, value) in at_least_one {
            require(value >= 1, name, value, || "at least 1".to_owned())?;
        }
        let few = [
            ("num_input_processors", self.num_input_processors),
            ("num_egress_shards", self.num_egress_shards),
            ("threads", self.threads.unwrap_or(1)),
        ];
        for (name, value) in few {
            require(value <= 1024, name, value, || "at most 1024".to_owned())?;
        }
        let group = self.quantization_group_size;
        require([32, 64, 128].contains(&group), "quantization_group_size", group, || {
            "32, 64 or 128".to_owned()
        })?;
        let memory = self.max_request_memory_bytes.unwrap_or(u64::MAX);
        require(memory >= LIMIT_BYTES_MIN as u64, "max_request_memory_bytes", memory, || {
            format!("at least {LIMIT_BYTES_MIN}")
        })?;
        let size = self.block_size;
        require((1..=1024).contains(&size), "block_size", size, || "in 1..=1024".to_owned())?;
        let share = self.gpu_memory_utilization;
        require(share > 0.0 && share <= 1.0, "gpu_memory_utilization", share, || {
            "a share of the memory, in (0, 1]".to_owned()
        })?;
        let blocks = self.num_gpu_blocks_override.unwrap_or(2);
        require(blocks >= 2, "num_gpu_blocks_override", blocks, || {
            "at least 2: the null block and one to use".to_owned()
        })
    }

    fn validate_dtypes(&self) -> Result<(), InvalidSetting> {
        let is_cpu = matches!(self.device, Device::Auto | Device::Cpu);
        let halves = [
            ("dtype", self.dtype == Dtype::Float16),
            ("kv_cache_dtype", self.kv_cache_dtype == KvCacheDtype::Float16),
        ];
        for (name, is_half) in halves {
            require(!(is_cpu && is_half), name, "float16", || {
                "auto, float32 or bfloat16 on the processor".to_owned()
            })?;
        }
        let is_int8 = self.activation_quantization == ActivationQuantization::Int8;
        require(is_cpu || !is_int8, "activation_quantization", "int8", || {
            "auto or none on a GPU, which multiplies quantized weights as floats".to_owned()
        })?;
        let is_exact = self.dtype == Dtype::Float32;
        require(!(is_int8 && is_exact), "activation_quantization", "int8", || {
            "auto or none where dtype is float32, which rounds nothing".to_owned()
        })?;
        let is_kept = self.load_format == LoadFormat::Dummy && self.weights_cache.is_some();
        require(!is_kept, "load_format", "dummy", || {
            "auto where there is a weights_cache: weights that are made up are not kept".to_owned()
        })
    }

    fn validate_scheduling(&self) -> Result<(), InvalidSetting> {
        let (budget, seqs) = (self.max_num_batched_tokens, self.max_num_seqs);
        require(budget >= seqs, "max_num_batched_tokens", budget, || {
            format!("at least max_num_seqs ({seqs}), or running requests would have to take turns")
        })?;
        let watermark = self.watermark;
        require((0.0..1.0).contains(&watermark), "watermark", watermark, || {
            "a share of the blocks, in [0, 1)".to_owned()
        })?;
        let age = self.priority_age_bound_s;
        require(age.is_finite() && age >= 0.0, "priority_age_bound_s", age, || {
            "a number of seconds, 0 for no bound".to_owned()
        })
    }

    fn validate_times(&self) -> Result<(), InvalidSetting> {
        let times = [
            ("reader_timeout_secs", self.reader_timeout_secs),
            ("min_step_deadline_secs", self.min_step_deadline_secs.unwrap_or(1.0)),
            ("grammar_timeout_secs", self.grammar_timeout_secs),
            ("hang_timeout_secs", self.hang_timeout_secs),
        ];
        times.into_iter().try_for_each(|(name, value)| require_seconds(name, value))?;
        let tolerance = self.restart_tolerance.unwrap_or(1.0);
        let range = RESTART_TOLERANCE_MIN..=RESTART_TOLERANCE_MAX;
        require(range.contains(&tolerance), "restart_tolerance", tolerance, || {
            format!("a number in [{RESTART_TOLERANCE_MIN}, {RESTART_TOLERANCE_MAX}]")
        })
    }
}

impl ServerSettings {
    /// Refuses values that are out of range or contradict each other.
    ///
    /// # Errors
    /// The first such setting, with what would be accepted.
    pub fn validate(&self) -> Result<(), InvalidSetting> {
        let times = [
            ("body_timeout", self.body_timeout_secs as f64),
            ("write_timeout", self.write_timeout_secs as f64),
            ("header_timeout", self.header_timeout_secs as f64),
            ("timeout_keep_alive", self.keep_alive_timeout_secs as f64),
            ("request_timeout", self.request_timeout_secs.unwrap_or(1.0)),
        ];
        times.into_iter().try_for_each(|(name, value)| require_seconds(name, value))?;
        let interval = self.sse_keep_alive_interval_secs;
        require(interval as f64 <= SECONDS_MAX, "sse_keep_alive_interval", interval, || {
            format!("at most {SECONDS_MAX} seconds, 0 for never")
        })?;
        let ranges = [
            ("max_connections", self.max_connections, 1..=1 << 20),
            ("h11_max_header_count", self.h11_max_header_count, 16..=1 << 15),
            // Below 8 KiB there is no room to read in.
            ("h11_max_incomplete_event_size", self.h11_max_incomplete_event_size, 8192..=16 << 20),
        ];
        for (name, value, range) in ranges {
            require(range.contains(&value), name, value, || format!("in {range:?}"))?;
        }
        // A client's key is read without the white space around it, and an empty one anybody has.
        let is_key = |key: &String| !key.is_empty() && key.trim() == key;
        let keys = [("api_key", &self.api_keys), ("admin_api_key", &self.admin_api_keys)];
        for (name, keys) in keys {
            require(keys.iter().all(is_key), name, "***", || {
                "keys that are not empty, without white space around them".to_owned()
            })?;
        }
        let ttl = self.responses_store_ttl_secs;
        require(ttl > 0, "responses_store_ttl", ttl, || "at least 1 second".to_owned())?;
        self.validate_tls()?;
        let path = &self.root_path;
        let is_path = path.is_empty() || (path.starts_with('/') && !path.ends_with('/'));
        let is_plain = !path.contains(['?', '#', '{', '}', ' ', '\\']);
        require(is_path && is_plain, "root_path", path, || {
            "a path like \"/llm\", without a slash at its end".to_owned()
        })?;
        self.validate_parsers()?;
        self.limits.validate()
    }

    fn validate_parsers(&self) -> Result<(), InvalidSetting> {
        require_parser("tool_call_parser", &self.tool_call_parser, |name| {
            self.parsers.tool_parser(name).map(drop)
        })?;
        require_parser("reasoning_parser", &self.reasoning_parser, |name| {
            self.parsers.reasoning_parser(name).map(drop)
        })
    }

    fn validate_tls(&self) -> Result<(), InvalidSetting> {
        let shown = |path: &Option<PathBuf>| format!("{:?}", path.clone().unwrap_or_default());
        let has_certificate = self.ssl_certfile.is_some();
        let needs_certificate = || "absent, or ssl_certfile be given as well".to_owned();
        let (key, authorities) = (&self.ssl_keyfile, &self.ssl_ca_certs);
        let is_alone = |path: &Option<PathBuf>| path.is_some() && !has_certificate;
        require(!is_alone(key), "ssl_keyfile", shown(key), needs_certificate)?;
        require(!is_alone(authorities), "ssl_ca_certs", shown(authorities), needs_certificate)?;
        let asks = self.ssl_cert_reqs != CertReqs::None;
        let word = format!("{:?}", self.ssl_cert_reqs).to_lowercase();
        require(!asks || authorities.is_some(), "ssl_cert_reqs", word, || {
            "none, or ssl_ca_certs say whose certificates are good".to_owned()
        })
    }
}

impl LimitSettings {
    /// Refuses values that are out of range.
    ///
    /// # Errors
    /// The first such setting, with what would be accepted.
    pub fn validate(&self) -> Result<(), InvalidSetting> {
        let depth = self.max_json_depth;
        // The parser's own bound is 128.
        require((1..128).contains(&depth), "max_json_depth", depth, || "in 1..=127".to_owned())?;
        let at_least_one = [
            ("max_completion_prompts", self.max_completion_prompts),
            ("max_n_sequences", self.max_n_sequences),
            ("max_messages", self.max_messages),
        ];
        for (name, value) in at_least_one {
            require(value >= 1, name, value, || "at least 1".to_owned())?;
        }
        Ok(())
    }
}

fn require_seconds(name: &'static str, value: f64) -> Result<(), InvalidSetting> {
    let is_some_time = value > 0.0 && value <= SECONDS_MAX;
    require(is_some_time, name, value, || format!("a number of seconds in (0, {SECONDS_MAX}]"))
}

fn require_parser(
    name: &'static str,
    choice: &ParserChoice,
    find: impl Fn(&str) -> Result<(), UnknownParser>,
) -> Result<(), InvalidSetting> {
    let ParserChoice::Named(parser) = choice else { return Ok(()) };
    find(parser).map_err(|unknown| {
        let accepted = format!("auto, none or one of {}", unknown.known.join(", "));
        InvalidSetting { name, value: parser.clone(), accepted }
    })
}

fn require(
    holds: bool,
    name: &'static str,
    value: impl ToString,
    accepted: impl FnOnce() -> String,
) -> Result<(), InvalidSetting> {
    if holds {
        return Ok(());
    }
    Err(InvalidSetting { name, value: value.to_string(), accepted: accepted() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl FnOnce(&mut EngineConfig)) -> Option<&'static str> {
        let mut config = EngineConfig::new("model");
        change(&mut config);
        config.validate().err().map(|error| error.name)
    }

    #[test]
    fn the_defaults_are_valid() {
        assert_eq!(refused(|_| ()), None);
    }

    #[test]
    fn values_out_of_range_are_refused_by_name() {
        assert_eq!(refused(|c| c.max_num_seqs = 0), Some("max_num_seqs"));
        assert_eq!(refused(|c| c.threads = Some(0)), Some("threads"));
        assert_eq!(refused(|c| c.block_size = 0), Some("block_size"));
        assert_eq!(refused(|c| c.watermark = 1.0), Some("watermark"));
        assert_eq!(refused(|c| c.restart_tolerance = Some(0.0)), Some("restart_tolerance"));
        assert_eq!(refused(|c| c.gpu_memory_utilization = 0.0), Some("gpu_memory_utilization"));
        assert_eq!(refused(|c| c.gpu_memory_utilization = 1.5), Some("gpu_memory_utilization"));
        let one_block = |c: &mut EngineConfig| c.num_gpu_blocks_override = Some(1);
        assert_eq!(refused(one_block), Some("num_gpu_blocks_override"));
        let tiny = |c: &mut EngineConfig| c.max_request_memory_bytes = Some(1 << 20);
        assert_eq!(refused(tiny), Some("max_request_memory_bytes"));
        assert_eq!(refused(|c| c.hang_timeout_secs = 0.0), Some("hang_timeout_secs"));
        let no_time = |c: &mut EngineConfig| c.min_step_deadline_secs = Some(0.0);
        assert_eq!(refused(no_time), Some("min_step_deadline_secs"));
        assert_eq!(refused(|c| c.grammar_timeout_secs = -1.0), Some("grammar_timeout_secs"));
        assert_eq!(refused(|c| c.reader_timeout_secs = f64::NAN), Some("reader_timeout_secs"));
        let no_requests = |c: &mut EngineConfig| c.quota_max_open_requests = Some(0);
        assert_eq!(refused(no_requests), Some("quota_max_open_requests"));
    }

    #[test]
    fn the_servers_times_are_bounded() {
        let refused = |change: fn(&mut ServerSettings)| {
            let mut server = ServerSettings::default();
            change(&mut server);
            server.validate().err().map(|error| error.name)
        };
        assert_eq!(refused(|_| ()), None);
        assert_eq!(refused(|s| s.write_timeout_secs = 0), Some("write_timeout"));
        assert_eq!(refused(|s| s.request_timeout_secs = Some(1e9)), Some("request_timeout"));
        assert_eq!(refused(|s| s.keep_alive_timeout_secs = 0), Some("timeout_keep_alive"));
        let endless = |s: &mut ServerSettings| s.sse_keep_alive_interval_secs = u64::MAX;
        assert_eq!(refused(endless), Some("sse_keep_alive_interval"));
    }

    #[test]
    fn what_the_door_is_told_must_go_together() {
        let refused = |change: fn(&mut ServerSettings)| {
            let mut server = ServerSettings::default();
            change(&mut server);
            server.validate().err().map(|error| error.name)
        };
        assert_eq!(refused(|s| s.ssl_keyfile = Some("k".into())), Some("ssl_keyfile"));
        assert_eq!(refused(|s| s.ssl_ca_certs = Some("c".into())), Some("ssl_ca_certs"));
        assert_eq!(refused(|s| s.ssl_cert_reqs = CertReqs::Required), Some("ssl_cert_reqs"));
        assert_eq!(refused(|s| s.max_connections = 0), Some("max_connections"));
        assert_eq!(refused(|s| s.h11_max_header_count = 0), Some("h11_max_header_count"));
        for path in ["llm", "/llm/", "/", "/a?b", "/{a}"] {
            let server = ServerSettings { root_path: path.to_owned(), ..Default::default() };
            assert_eq!(server.validate().unwrap_err().name, "root_path", "{path}");
        }
        for key in ["", " ", "a ", "\ta"] {
            let api_keys = vec!["fine".to_owned(), key.to_owned()];
            let server = ServerSettings { api_keys, ..Default::default() };
            let error = server.validate().unwrap_err();
            assert_eq!((error.name, error.value.as_str()), ("api_key", "***"), "{key:?}");
            let admin_api_keys = vec![key.to_owned()];
            let server = ServerSettings { admin_api_keys, ..Default::default() };
            assert_eq!(server.validate().unwrap_err().name, "admin_api_key", "{key:?}");
        }
        assert_eq!(refused(|s| s.api_keys = vec!["a b".to_owned()]), None);
        assert_eq!(refused(|s| s.root_path = "/a/b".to_owned()), None);
        assert_eq!(refused(|s| s.limits.max_json_depth = 128), Some("max_json_depth"));
    }

    #[test]
    fn parsers_are_known_by_name() {
        let named = |name: &str| ParserChoice::Named(name.to_owned());
        let mut server =
            ServerSettings { tool_call_parser: named("hermes"), ..ServerSettings::default() };
        assert_eq!(server.validate(), Ok(()));
        server.reasoning_parser = named("hermes");
        let error = server.validate().unwrap_err();
        assert_eq!((error.name, error.value.as_str()), ("reasoning_parser", "hermes"));
        assert!(error.accepted.starts_with("auto, none or one of deepseek_r1, "), "{error}");
        let parser = server.parsers.reasoning_parser("qwen3").unwrap();
        server.parsers.register_reasoning_parser("hermes", move |start| parser(start));
        assert_eq!(server.validate(), Ok(()));
    }

    #[test]
    fn a_budget_below_the_batch_is_refused() {
        assert_eq!(refused(|c| c.max_num_batched_tokens = 255), Some("max_num_batched_tokens"));
    }

    #[test]
    fn without_chunked_prefill_the_budget_must_hold_the_longest_prompt() {
        let with = |chunked| {
            move |c: &mut EngineConfig| {
                c.max_model_len = Some(4096);
                c.enable_chunked_prefill = chunked;
            }
        };
        assert_eq!(refused(with(true)), None);
        assert_eq!(refused(with(false)), Some("max_num_batched_tokens"));
    }
}
