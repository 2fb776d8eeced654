//! What all protocols that generate share: sampling parameters, choices, log-probabilities, usage.

pub(in crate::server) mod answer;
pub(in crate::server) mod choices;
pub(in crate::server) mod chunks;
pub(in crate::server) mod logprobs;
pub(in crate::server) mod media;
pub(in crate::server) mod open_requests;
pub(in crate::server) mod request_log;
pub(in crate::server) mod request_metrics;
pub(in crate::server) mod sampling;
pub(in crate::server) mod structured_outputs;
pub(in crate::server) mod token_names;
pub(in crate::server) mod unsupported;
pub(in crate::server) mod usage;
