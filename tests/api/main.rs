//! The routes of the server, asked over HTTP by a client without a library.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod chat;
mod completions;
#[path = "../contrived/mod.rs"]
mod contrived;
mod embeds;
mod http;
mod images;
mod late_chunking;
mod pooling;
mod pooling_http;
mod realtime;
mod responses;
#[path = "../serving/mod.rs"]
mod serving;
mod speech;
mod texts;
mod token_rules;
mod tools;
mod traces;
mod transcription;
