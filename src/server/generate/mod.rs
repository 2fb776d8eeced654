//! The parts that all generating protocols share.
//!
//! A protocol implements [`handler::Protocol`] for its request's body. [`handler::generate`] is the
//! handler of all of them: it submits the requests and hands the [`choices`] to the protocol's
//! [`handler::Answer`]. A [`run::Run`] turns choices into events.

pub(in crate::server) mod answer;
pub(in crate::server) mod choices;
pub(in crate::server) mod choices_answer;
pub(in crate::server) mod chunks;
pub(in crate::server) mod handler;
pub(in crate::server) mod logprobs;
pub(in crate::server) mod open_requests;
mod replay;
pub(in crate::server) mod request_log;
pub(in crate::server) mod request_metrics;
pub(in crate::server) mod run;
pub(in crate::server) mod sampling;
pub(in crate::server) mod structured_outputs;
pub(in crate::server) mod token_names;
pub(in crate::server) mod unsupported;
pub(in crate::server) mod usage;
