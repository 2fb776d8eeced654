//! The official Python clients, unmodified, against the server.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod anthropic;
#[path = "../contrived/mod.rs"]
mod contrived;
mod embeddings;
mod libraries;
mod ollama;
mod openai;
#[path = "../python/mod.rs"]
mod python;
mod responses;
#[path = "../serving/mod.rs"]
mod serving;
