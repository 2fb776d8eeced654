//! The configuration: one TOML file, and the environment and flags, which override it.
//!
//! Each section is a table. A row declares a setting once, with its type, default, check, flag and
//! description (`table`). [`layer`] reads the sources. [`resolve`] merges them and validates the
//! result, with each value's [`Origin`]. A Rust caller needs only an [`EngineConfig`].

mod check;
mod choice;
mod ec_transfer;
mod engine;
mod error;
mod json_object;
mod key;
mod kv_memory;
pub mod layer;
mod limits;
mod log;
mod lora;
mod media;
mod model;
mod origin;
mod parser_choice;
mod pooling;
pub(crate) mod quantity;
mod request_memory;
pub mod resolve;
mod secret;
mod server;
mod setting;
mod speculative;
mod table;
mod validate;

use serde::Serialize;

pub use choice::{
    ActivationQuantization, CertReqs, Device, Dtype, FileMode, GenerationConfigSource,
    JournalFaultPolicy, KvCacheDtype, LoadFormat, LogFormat, Quantization,
};
pub use ec_transfer::{EcRole, EcTransferConfig};
pub use engine::EngineConfig;
pub use error::{ConfigError, InvalidSetting, InvalidValue};
pub use json_object::JsonObject;
pub use key::Key;
pub use kv_memory::{KV_CACHE_MEMORY_SHARE, available_memory_bytes, total_memory_bytes};
pub use limits::LimitSettings;
pub use log::LogSettings;
pub use lora::LoraModule;
pub use media::{MediaLimits, MediaLoras};
pub use origin::Origin;
pub use parser_choice::ParserChoice;
pub use playhouse_actors::logic::{
    drafts::{ngram::NgramLookup, suffix::SuffixConfig},
    scheduler::request_queue::SchedulingPolicy,
};
pub use pooling::{Convert, PoolerConfig, PoolerTask, Runner, SequencePooling, TokenPooling};
pub use request_memory::REQUEST_MEMORY_SHARE;
pub use secret::Secret;
pub use server::ServerSettings;
pub use setting::{Setting, Usage, Written};
pub use speculative::{HeadMethod, SpeculativeConfig, SpeculativeMethod};

/// All settings of a program, a section for each of its parts.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Config {
    /// The model and how it runs.
    pub engine: EngineConfig,
    /// The HTTP server.
    pub server: ServerSettings,
    /// The limits of one request.
    pub limits: LimitSettings,
    /// The log.
    pub log: LogSettings,
}

impl Config {
    /// Returns the server's settings, including the limits of one request.
    #[must_use]
    pub fn server_with_limits(&self) -> ServerSettings {
        ServerSettings { limits: self.limits.clone(), ..self.server.clone() }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{resolve::Resolved, *};

    /// The file that ships with the program.
    const SHIPPED: &str = include_str!("../../configs/playhouse.toml");

    fn read(toml: &str) -> Resolved {
        Resolved::new(layer::from_toml(toml, Path::new("p.toml")).unwrap()).unwrap()
    }

    #[test]
    fn the_shipped_file_holds_the_defaults() {
        assert_eq!(read(SHIPPED).config, Config::default());
    }

    #[test]
    fn the_shipped_file_names_every_key_after_a_comment() {
        let (mut section, mut commented, mut named) = (String::new(), false, Vec::new());
        for line in SHIPPED.lines() {
            if let Some(name) = line.strip_prefix('[') {
                section = name.trim_end_matches(']').to_owned();
            } else if let Some((name, _)) = line.trim_start_matches("# ").split_once(" = ") {
                assert!(commented, "{line} has no comment");
                named.push(Key::new(&section, name));
            }
            commented = line.starts_with('#');
        }
        let (mut named, mut all) = (named, Key::all());
        named.sort();
        all.sort();
        assert_eq!(named, all);
    }

    #[test]
    fn the_shipped_files_optional_values_are_valid() {
        let uncomment = |line: &str| match line.strip_prefix("# ").filter(|l| l.contains(" = ")) {
            Some(setting) => setting.to_owned(),
            None => line.to_owned(),
        };
        // Without adapters, their optional values are rejected.
        let shipped = SHIPPED.replace("enable_lora = false", "enable_lora = true");
        let lines: Vec<_> = shipped.lines().map(uncomment).collect();
        // A value that is out of range is rejected there.
        assert_eq!(read(&lines.join("\n")).config.engine.max_model_len, Some(4096));
    }
}
