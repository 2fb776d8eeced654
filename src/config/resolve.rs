//! Merging the sources: defaults < file < environment < flags.

use std::collections::BTreeMap;

use toml::Value;

use super::{
    Config, Setting,
    error::{ConfigError, InvalidSetting, InvalidValue},
    key::Key,
    layer::Entry,
    origin::Origin,
};
use crate::parsers::Registry;

/// A validated configuration with the source of each value.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// The merged configuration.
    pub config: Config,
    origins: BTreeMap<Key, Origin>,
}

impl Resolved {
    /// Applies `entries` to the defaults, later ones over earlier ones, and validates the result.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] names the first invalid value and its source.
    pub fn new(entries: impl IntoIterator<Item = Entry>) -> Result<Self, ConfigError> {
        let (mut config, mut origins) = (Config::default(), BTreeMap::new());
        for Entry { key, value, origin } in entries {
            read(&mut config, &key, value, &origin)?;
            origins.insert(key, origin);
        }
        let resolved = Self { config, origins };
        let Config { engine, server, limits, log } = &resolved.config;
        engine.validate().map_err(|invalid| resolved.refused("engine", invalid))?;
        server.validate().map_err(|invalid| resolved.refused("server", invalid))?;
        server.validate_chaos(engine).map_err(|invalid| resolved.refused("engine", invalid))?;
        limits.validate().map_err(|invalid| resolved.refused("limits", invalid))?;
        log.validate().map_err(|invalid| resolved.refused("log", invalid))?;
        Ok(resolved)
    }

    /// Rejects names of parsers that `parsers` does not have, before a model is loaded. A program
    /// with parsers of its own passes those that its engine will have.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] names the setting, its source, and the registered names.
    pub fn validate_parsers(&self, parsers: &Registry) -> Result<(), ConfigError> {
        let checked = self.config.server.validate_parsers(parsers);
        Ok(checked.map_err(|invalid| self.refused("server", invalid))?)
    }

    /// Returns an error about an invalid setting, with its source.
    fn refused(&self, section: &str, invalid: InvalidSetting) -> InvalidValue {
        let key = Key::new(section, invalid.name);
        let origin = self.origin(&key);
        let reason = format!("must be {}", invalid.accepted);
        InvalidValue { key, value: invalid.value, origin, reason }
    }

    /// Returns the source of the value of `key`.
    #[must_use]
    pub fn origin(&self, key: &Key) -> Origin {
        self.origins.get(key).cloned().unwrap_or(Origin::Default)
    }

    /// Returns all settings in the order of the file, with their values (secrets masked) and
    /// origins.
    #[must_use]
    pub fn settings(&self) -> Vec<(&'static Setting, serde_json::Value, Origin)> {
        let with_value = |setting: &'static Setting| {
            let mut value = (setting.get)(&self.config);
            if setting.is_secret() {
                value.as_array_mut().into_iter().flatten().for_each(|one| *one = "***".into());
            }
            (setting, value, self.origin(&setting.key()))
        };
        Setting::all().map(with_value).collect()
    }
}

/// Reads a value into the configuration. Rejects a value that its key does not accept.
fn read(config: &mut Config, key: &Key, value: Value, origin: &Origin) -> Result<(), ConfigError> {
    let refused = |value: String, reason: &str| {
        let (key, origin, reason) = (key.clone(), origin.clone(), reason.to_owned());
        ConfigError::from(InvalidValue { key, value, origin, reason })
    };
    let Some(setting) = Setting::find(&key.section, &key.name) else {
        return Err(refused(value.to_string(), "there is no such setting"));
    };
    let shown = if setting.is_secret() { "***".to_owned() } else { value.to_string() };
    (setting.set)(config, value).map_err(|error| refused(shown, error.message()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, value: impl Into<Value>, origin: Origin) -> Entry {
        Entry { key: Key::new("engine", name), value: value.into(), origin }
    }

    fn flag(name: &str, value: &str) -> Entry {
        entry(name, value, Origin::Flag(Key::new("engine", name).flag()))
    }

    #[test]
    fn later_layers_win_and_the_winner_is_remembered() {
        let file = Origin::File { path: "p.toml".into(), line: 2 };
        let variable = Origin::Environment("PLAYHOUSE_MAX_NUM_SEQS".into());
        let resolved = Resolved::new([
            entry("max_num_seqs", 8, file.clone()),
            entry("seed", 5, file.clone()),
            entry("max_num_seqs", "9", variable.clone()),
        ])
        .unwrap();
        assert_eq!(resolved.config.engine.max_num_seqs, 9);
        assert_eq!(resolved.config.engine.seed, 5);
        assert_eq!(resolved.origin(&Key::new("engine", "max_num_seqs")), variable);
        assert_eq!(resolved.origin(&Key::new("engine", "seed")), file);
        assert_eq!(resolved.origin(&Key::new("engine", "dtype")), Origin::Default);
    }

    #[test]
    fn text_is_read_as_what_the_key_takes() {
        let entries = [
            flag("max_model_len", "25.6k"),
            flag("kv_cache_memory_bytes", "4GiB"),
            flag("enable_prefix_caching", "false"),
            flag("watermark", "0.25"),
            flag("served_model_name", "a,b"),
            flag("dtype", "bfloat16"),
            flag("scheduling_policy", "priority"),
            flag("quota_tokens_per_minute", "10k"),
            flag("quota_max_open_requests", "0"),
            flag("hang_timeout_secs", "0.5"),
            flag("max_logprobs", "-1"),
        ];
        let engine = Resolved::new(entries).unwrap().config.engine;
        assert_eq!(engine.max_model_len, Some(25_600));
        assert_eq!(engine.kv_cache_memory_bytes, Some(4 << 30));
        assert!(!engine.enable_prefix_caching);
        assert_eq!(engine.watermark, 0.25);
        assert_eq!(engine.quota_tokens_per_minute, Some(10_000));
        assert_eq!(engine.quota_max_open_requests, None, "0 is no quota");
        assert_eq!(engine.hang_timeout_secs, 0.5);
        assert_eq!(engine.max_logprobs, usize::MAX, "-1 is no limit");
        assert_eq!(engine.served_model_name, ["a", "b"]);
    }

    #[test]
    fn an_invalid_value_names_key_value_source_and_what_is_accepted() {
        let cases = [
            (
                flag("max_num_seqs", "many"),
                "engine.max_num_seqs = \"many\" (from flag --max-num-seqs): expected a whole \
                 number that is not negative",
            ),
            (
                flag("dtype", "float16"),
                "engine.dtype = float16 (from flag --dtype): must be auto, float32 or bfloat16 on \
                 the processor",
            ),
            (
                flag("kv_cache_dtype", "fp8_e4m3"),
                "engine.kv_cache_dtype = \"fp8_e4m3\" (from flag --kv-cache-dtype): fp8_e4m3 is not \
                 supported on this device; expected auto, float32, float16, bfloat16 or \
                 int8_per_token_head (int8)",
            ),
            (
                flag("device", "metal"),
                if cfg!(feature = "wgpu") {
                    "engine.device = \"metal\" (from flag --device): this build has no metal \
                     support; expected auto, cpu, wgpu or wgpu:N"
                } else {
                    "engine.device = \"metal\" (from flag --device): this build has no metal \
                     support; expected auto or cpu"
                },
            ),
            (
                flag("max_num_seqs", "0"),
                "engine.max_num_seqs = 0 (from flag --max-num-seqs): must be at least 1",
            ),
            (
                Entry {
                    key: Key::new("server", "write_timeout_secs"),
                    ..flag("write_timeout_secs", "0")
                },
                "server.write_timeout_secs = 0 (from flag --write-timeout-secs): must be a number \
                 of seconds in (0, 86400]",
            ),
        ];
        for (entry, expected) in cases {
            assert_eq!(Resolved::new([entry]).unwrap_err().to_string(), expected);
        }
        for (name, value) in [
            ("max_model_len", Value::from(-1)),
            ("max_logprobs", Value::from(-2)),
            ("max_model_len", Value::from(1.5)),
            ("watermark", Value::from(-0.5)),
            ("watermark", Value::from("wet")),
            ("enable_prefix_caching", Value::from("maybe")),
            ("served_model_name", Value::from(1)),
        ] {
            let error = Resolved::new([entry(name, value, Origin::Default)]).unwrap_err();
            assert!(error.to_string().contains("expected"), "{error}");
        }
    }

    #[test]
    fn secrets_are_never_shown() {
        for name in ["api_key", "admin_api_key"] {
            let key = Key::new("server", name);
            let origin = Origin::Environment(key.variable());
            let entry = Entry { key: key.clone(), value: Value::from("sk-1,sk-2"), origin };
            let resolved = Resolved::new([entry]).unwrap();
            let server = &resolved.config.server;
            let given = if name == "api_key" { &server.api_keys } else { &server.admin_api_keys };
            assert_eq!(*given, ["sk-1", "sk-2"]);
            let (_, shown, _) =
                resolved.settings().into_iter().find(|(s, ..)| s.key() == key).unwrap();
            assert_eq!(shown, serde_json::json!(["***", "***"]));
        }
    }

    #[test]
    fn an_empty_variable_opens_no_server() {
        let key = Key::new("server", "api_key");
        for empty in ["", " ", ","] {
            let origin = Origin::Environment("PLAYHOUSE_API_KEY".into());
            let entry = Entry { key: key.clone(), value: Value::from(empty), origin };
            let expected = "server.api_key = *** (from environment PLAYHOUSE_API_KEY): it is \
                            empty; leave it out if none is needed";
            assert_eq!(Resolved::new([entry]).unwrap_err().to_string(), expected);
        }
        let none = Value::Array(Vec::new());
        let entry = Entry { key, value: none, origin: Origin::Default };
        assert!(Resolved::new([entry]).unwrap().config.server.api_keys.is_empty());
    }
}
