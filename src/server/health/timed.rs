//! Metrics of work that goes on for a while: how much of it is in flight, and how long it takes.

use metrics::{Gauge, Histogram, counter, gauge, histogram};
use tokio::time::Instant;

/// Work in flight. Its end is recorded when it is dropped.
pub(in crate::server) struct Timed {
    in_flight: Gauge,
    duration: Histogram,
    begun: Instant,
}

impl Timed {
    /// Begins an operation of the sleep mode, under vLLM's name of it.
    pub(in crate::server) fn sleep_mode(operation: &'static str) -> Self {
        Self::begin(
            gauge!("playhouse:sleep_mode_operations_in_flight", "operation" => operation),
            histogram!("playhouse:sleep_mode_operation_duration_seconds", "operation" => operation),
        )
    }

    /// Begins a connection of a WebSocket.
    pub(in crate::server) fn web_socket() -> Self {
        counter!("playhouse:websocket_connections_total").increment(1);
        Self::begin(
            gauge!("playhouse:websocket_connections_active"),
            histogram!("playhouse:websocket_connection_duration_seconds"),
        )
    }

    fn begin(in_flight: Gauge, duration: Histogram) -> Self {
        in_flight.increment(1.0);
        Self { in_flight, duration, begun: Instant::now() }
    }
}

impl Drop for Timed {
    fn drop(&mut self) {
        self.in_flight.decrement(1.0);
        self.duration.record(self.begun.elapsed().as_secs_f64());
    }
}
