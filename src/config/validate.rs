//! Checks of several settings together. `check` has the checks of one value by itself.

use std::{net::IpAddr, path::PathBuf};

use super::{
    ActivationQuantization, CertReqs, Device, Dtype, EngineConfig, KvCacheDtype, LoadFormat,
    ParserChoice, ServerSettings, error::InvalidSetting,
};
use crate::parsers::{Registry, UnknownParser};

impl EngineConfig {
    /// Rejects values that are out of range or contradict each other, as far as this is known
    /// without the model.
    ///
    /// # Errors
    /// The first rejected setting, with the accepted values.
    pub fn validate(&self) -> Result<(), InvalidSetting> {
        self.check_each()?;
        self.validate_dtypes()?;
        self.validate_adapters()?;
        let (budget, seqs) = (self.max_num_batched_tokens, self.max_num_seqs);
        require(budget >= seqs, "max_num_batched_tokens", budget, || {
            format!("at least max_num_seqs ({seqs}), or running requests would have to take turns")
        })?;
        match self.max_model_len {
            Some(max_model_len) => self.validate_for(max_model_len),
            None => Ok(()),
        }
    }

    /// Rejects values that contradict the model's context length, once it is known.
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
        let of_drafter = self.speculative_config.as_ref().and_then(|config| config.max_model_len);
        let length = of_drafter.unwrap_or(1);
        require(length <= max_model_len, "speculative_config", length, || {
            format!("a max_model_len of the drafter of at most the model's ({max_model_len})")
        })?;
        let threshold = self.long_prefill_token_threshold;
        require(threshold <= max_model_len, "long_prefill_token_threshold", threshold, || {
            format!("at most max_model_len ({max_model_len})")
        })
    }

    /// Rejects a token budget that is smaller than the longest prompt of a model that computes
    /// prompts whole. The default budget grows to that length.
    ///
    /// # Errors
    /// As [`EngineConfig::validate`].
    pub fn validate_for_whole_prompts(&self, max_model_len: usize) -> Result<(), InvalidSetting> {
        let budget = self.whole_prompt_budget(max_model_len);
        require(budget >= max_model_len, "max_num_batched_tokens", budget, || {
            format!(
                "at least max_model_len ({max_model_len}), because attention to both sides computes \
                 prompts whole"
            )
        })
    }

    /// Returns the token budget of a model that computes prompts whole.
    #[must_use]
    pub fn whole_prompt_budget(&self, max_model_len: usize) -> usize {
        let default = Self::new(&self.model).max_num_batched_tokens;
        match self.max_num_batched_tokens {
            budget if budget == default => budget.max(max_model_len),
            budget => budget,
        }
    }

    fn validate_adapters(&self) -> Result<(), InvalidSetting> {
        let (max_loras, most) = (self.max_loras, self.max_cpu_loras);
        require(
            most.is_none_or(|most| most >= max_loras),
            "max_cpu_loras",
            most.unwrap_or(0),
            || format!("at least max_loras ({max_loras})"),
        )?;
        let unused = [
            ("lora_modules", !self.lora_modules.is_empty()),
            ("lora_resolver_dir", self.lora_resolver_dir.is_some()),
            ("default_mm_loras", self.default_mm_loras.is_some()),
        ];
        for (name, is_set) in unused {
            require(self.enable_lora || !is_set, name, "set", || {
                "no value where enable_lora is false".to_owned()
            })?;
        }
        let names = self.served_names();
        let bases = self.lora_modules.iter().filter_map(|module| module.base_model_name.as_ref());
        for base in bases {
            require(names.contains(base), "lora_modules", base, || {
                format!("base_model_name one of {}", names.join(", "))
            })?;
        }
        Ok(())
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
            "auto where there is a weights_cache: generated weights are not kept".to_owned()
        })
    }
}

impl ServerSettings {
    /// Rejects values that are out of range or contradict each other.
    ///
    /// # Errors
    /// The first rejected setting, with the accepted values.
    pub fn validate(&self) -> Result<(), InvalidSetting> {
        self.check_each()?;
        self.validate_tls()?;
        self.limits.validate()
    }

    /// Rejects names of parsers that `parsers` does not have. A server checks them against its
    /// engine's parsers, the command line against those of this crate before the model is loaded.
    ///
    /// # Errors
    /// The first rejected setting, with the names that there are.
    pub fn validate_parsers(&self, parsers: &Registry) -> Result<(), InvalidSetting> {
        require_parser("tool_call_parser", &self.tool_call_parser, |name| {
            parsers.tool_parser(name).map(drop)
        })?;
        require_parser("reasoning_parser", &self.reasoning_parser, |name| {
            parsers.reasoning_parser(name).map(drop)
        })
    }

    /// Rejects faults on purpose where other machines reach the server.
    ///
    /// # Errors
    /// [`InvalidSetting`] for `allow_chaos`.
    pub fn validate_chaos(&self, engine: &EngineConfig) -> Result<(), InvalidSetting> {
        let host = &self.host;
        require(!engine.allow_chaos || self.is_local(), "allow_chaos", true, || {
            format!("false where other machines reach the server (host {host:?})")
        })
    }

    /// Returns whether only this machine reaches the server.
    #[must_use]
    pub fn is_local(&self) -> bool {
        let address = self.host.trim_start_matches('[').trim_end_matches(']');
        let is_loopback = |address: IpAddr| address.is_loopback();
        self.uds.is_some() || self.host == "localhost" || address.parse().is_ok_and(is_loopback)
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
    fn faults_on_purpose_are_for_servers_of_this_machine() {
        let engine = EngineConfig { allow_chaos: true, ..EngineConfig::new("model") };
        let refused = |host: &str, uds: Option<&str>| {
            let host = host.to_owned();
            let uds = uds.map(PathBuf::from);
            let server = ServerSettings { host, uds, ..ServerSettings::default() };
            server.validate_chaos(&engine).err().map(|error| error.name)
        };
        for host in ["127.0.0.1", "127.8.0.1", "::1", "[::1]", "localhost"] {
            assert_eq!(refused(host, None), None, "{host}");
        }
        for host in ["0.0.0.0", "::", "192.168.1.4", "playhouse.example"] {
            assert_eq!(refused(host, None), Some("allow_chaos"), "{host}");
        }
        assert_eq!(refused("0.0.0.0", Some("/run/playhouse.sock")), None);
    }

    #[test]
    fn the_servers_times_are_bounded() {
        let refused = |change: fn(&mut ServerSettings)| {
            let mut server = ServerSettings::default();
            change(&mut server);
            server.validate().err().map(|error| error.name)
        };
        assert_eq!(refused(|_| ()), None);
        assert_eq!(refused(|s| s.write_timeout_secs = 0), Some("write_timeout_secs"));
        assert_eq!(refused(|s| s.request_timeout_secs = Some(1e9)), Some("request_timeout_secs"));
        assert_eq!(refused(|s| s.keep_alive_timeout_secs = 0), Some("timeout_keep_alive"));
        let endless = |s: &mut ServerSettings| s.sse_keep_alive_interval_secs = u64::MAX;
        assert_eq!(refused(endless), Some("sse_keep_alive_interval"));
    }

    #[test]
    fn server_settings_must_agree() {
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
        let collector = |s: &mut ServerSettings| {
            s.otlp_traces_endpoint = Some("127.0.0.1:4317".to_owned());
        };
        assert_eq!(refused(collector), Some("otlp_traces_endpoint"));
    }

    #[test]
    fn parsers_are_known_by_name() {
        let named = |name: &str| ParserChoice::Named(name.to_owned());
        let (mut parsers, mut server) = (Registry::default(), ServerSettings::default());
        server.tool_call_parser = named("hermes");
        assert_eq!(server.validate_parsers(&parsers), Ok(()));
        server.reasoning_parser = named("hermes");
        let error = server.validate_parsers(&parsers).unwrap_err();
        assert_eq!((error.name, error.value.as_str()), ("reasoning_parser", "hermes"));
        assert!(error.accepted.starts_with("auto, none or one of deepseek_r1, "), "{error}");
        let parser = parsers.reasoning_parser("qwen3").unwrap();
        parsers.register_reasoning_parser("hermes", move |start| parser(start));
        assert_eq!(server.validate_parsers(&parsers), Ok(()));
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
