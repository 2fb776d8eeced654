//! The server's health: probes, metrics, and the watch on the runtime's threads.

mod encoder_metrics;
pub(in crate::server) mod frozen;
pub(crate) mod heartbeat;
pub(in crate::server) mod http_metrics;
mod metric_help;
pub(in crate::server) mod metrics;
pub(in crate::server) mod probes;
pub(in crate::server) mod pulse;
mod timed;

pub use self::metric_help::describe_metrics;
pub(in crate::server) use self::timed::Timed;
