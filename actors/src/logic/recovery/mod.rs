//! Decisions after a fault: lost messages, hanging handlers, requests that make steps fail,
//! restarts of children, and the time when the engine serves again.

pub mod breaker;
pub mod hang;
pub mod heartbeat;
pub mod in_flight;
pub mod message_numbers;
pub mod poison;
pub mod quarantine;
pub mod restart;
pub mod sanity;
pub mod step_time;
