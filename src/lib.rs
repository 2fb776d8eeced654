//! Playhouse: an LLM inference and serving engine built as a supervised actor system.
//!
//! [`Engine`] is the façade: a loaded model behind running actors. See ARCHITECTURE.md for the map.
//!
//! The default features have the HTTP server (`server`) and the command line (`cli`). A program
//! that embeds an engine and needs neither sets `default-features = false`, and so builds less.

#![cfg_attr(
    not(feature = "cli"),
    allow(dead_code, unused_imports, reason = "the command line and the server use the rest")
)]

pub mod api;
pub mod chat;
#[cfg(feature = "cli")]
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
mod module_list;
pub mod parsers;
pub mod profile;
#[cfg(feature = "server")]
pub mod server;
pub mod text;
pub mod token_rules;
mod torch_file;
mod turn;
mod version;
pub mod weights;

pub use chat::{ChatRequest, Message, Tool, ToolChoice};
pub use config::EngineConfig;
pub use engine::{Engine, LoraError, StartError};
