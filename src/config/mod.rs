//! The configuration: one TOML file, the environment and flags over it.
//!
//! [`layer`] holds exactly what each source says, [`resolve`] what it means once laid over each
//! other and validated, with each value's [`Origin`]. A Rust caller needs none of that: it fills
//! in an [`EngineConfig`].

mod choice;
mod engine;
mod error;
mod key;
mod kv_memory;
pub mod layer;
mod log;
mod origin;
pub(crate) mod quantity;
pub mod resolve;
mod server;
mod validate;

use serde::{Deserialize, Serialize};

pub use choice::{Device, Dtype, GenerationConfigSource, KvCacheDtype, SchedulingPolicy};
pub use engine::EngineConfig;
pub use error::{ConfigError, InvalidSetting};
pub use key::Key;
pub use kv_memory::{KV_CACHE_MEMORY_SHARE, available_memory_bytes, total_memory_bytes};
pub use log::LogSettings;
pub use origin::Origin;
pub use server::ServerSettings;

/// All that a program can be told, one section a part.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The model and how it is run.
    pub engine: EngineConfig,
    /// The HTTP server.
    pub server: ServerSettings,
    /// The log.
    pub log: LogSettings,
}
