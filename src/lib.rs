//! Playhouse: an LLM inference and serving engine built as a supervised actor system.
pub mod text;
