//! Playhouse: an LLM inference and serving engine built as a supervised actor system.
//!
//! [`Engine`] is the façade: a loaded model behind running actors. See ARCHITECTURE.md for the map.

pub mod api;
pub mod cli;
pub mod config;
pub mod engine;
mod executor;
mod files;
mod gguf;
mod grammar;
pub mod hub;
mod journal;
mod media;
pub mod model;
mod model_files;
pub mod parsers;
pub mod profile;
pub mod server;
pub mod text;
pub mod token_rules;
mod version;
pub mod weights;

pub use config::EngineConfig;
pub use engine::{Engine, LoraError, StartError};
