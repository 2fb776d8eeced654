//! The parts of HTTP that belong to no protocol: connections, keys, bodies, extractors, errors and
//! server-sent events. Protocols name these modules; no module here names a protocol.

pub(in crate::server) mod auth;
pub(super) mod body;
pub(in crate::server) mod body_copy;
pub(in crate::server) mod caller;
#[cfg(any(feature = "cli", feature = "otlp"))]
pub(crate) mod client;
pub(in crate::server) mod cors;
pub(in crate::server) mod draining;
pub(in crate::server) mod draws;
pub(in crate::server) mod error;
pub(in crate::server) mod extract;
pub(in crate::server) mod fields;
pub(in crate::server) mod keep_alive;
pub(in crate::server) mod limits;
pub(in crate::server) mod listen;
pub(in crate::server) mod parts;
pub(in crate::server) mod reload;
pub(in crate::server) mod request_id;
pub(in crate::server) mod root_path;
pub(in crate::server) mod sse;
mod unknown_fields;
