//! Settings as they travel to an engine process and into recordings: a JSON object of sections.

use serde_json::{Value as Json, json};
use toml::Value;

use crate::config::{
    Config, ConfigError, EngineConfig, Key, LogSettings, Origin, Setting, layer::Entry,
    resolve::Resolved,
};

/// Returns the settings of the model and of the log.
pub(crate) fn encode(config: &EngineConfig, log: &LogSettings) -> Vec<u8> {
    json!({ "engine": config, "log": log }).to_string().into_bytes()
}

/// Returns the configuration that the front has sent.
///
/// # Errors
/// [`ConfigError`] if a value is invalid. The front has checked them all.
pub(crate) fn decode(settings: &[u8]) -> Result<Config, ConfigError> {
    Ok(Resolved::new(entries(settings))?.config)
}

/// Returns the settings in bytes that [`encode`] wrote. Settings that this program does not know
/// are left out.
pub(crate) fn entries(settings: &[u8]) -> Vec<Entry> {
    let sections: Json = serde_json::from_slice(settings).unwrap_or_default();
    let entry = |setting: &'static Setting| {
        let value = to_toml(&sections[setting.section][setting.name])?;
        let key = Key::new(setting.section, setting.name);
        Some(Entry { key, value, origin: Origin::Default })
    };
    Setting::all().filter_map(entry).collect()
}

/// Returns a value of JSON in TOML. Integers are smaller there, so larger ones are texts. There is
/// no null, so fields with it are left out.
fn to_toml(value: &Json) -> Option<Value> {
    match value {
        Json::Null => None,
        Json::Number(number) if number.is_u64() && !number.is_i64() => {
            Some(Value::String(number.to_string()))
        }
        Json::Array(items) => Some(Value::Array(items.iter().filter_map(to_toml).collect())),
        Json::Object(fields) => {
            let field = |(name, value): (&String, &Json)| Some((name.clone(), to_toml(value)?));
            Some(Value::Table(fields.iter().filter_map(field).collect()))
        }
        other => Value::try_from(other).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Dtype, LogFormat, LoraModule, PoolerConfig};

    #[test]
    fn settings_arrive_as_they_were_sent() {
        let pooler: PoolerConfig =
            serde_json::from_value(json!({"pooling_type": "MEAN", "dimensions": 4})).unwrap();
        let module = |name: &str, base: Option<&str>| LoraModule {
            name: name.to_owned(),
            path: format!("folder of {name}"),
            base_model_name: base.map(str::to_owned),
        };
        let config = EngineConfig {
            seed: u64::MAX,
            dtype: Dtype::Bfloat16,
            max_model_len: Some(77),
            served_model_name: vec!["one".to_owned(), "two".to_owned()],
            kv_cache_memory_bytes: Some(5 << 30),
            restart_tolerance: Some(2.5),
            async_scheduling: Some(true),
            quota_max_open_requests: Some(9),
            pooler_config: Some(pooler),
            enable_lora: true,
            lora_modules: vec![module("a", None), module("b", Some("one"))],
            ..EngineConfig::new("a folder")
        };
        let log = LogSettings {
            level: "debug".to_owned(),
            format: LogFormat::Json,
            ..LogSettings::default()
        };
        let read = decode(&encode(&config, &log)).unwrap();
        assert_eq!(read.engine, config);
        assert_eq!(read.log, log);
        let defaults = EngineConfig::default();
        assert_eq!(decode(&encode(&defaults, &LogSettings::default())).unwrap().engine, defaults);
    }
}
