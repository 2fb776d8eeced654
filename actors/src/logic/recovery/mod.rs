//! Decisions after a fault: which message was lost, which handler hangs, which request is to blame,
//! how often a child is started again, and when the engine serves again.

pub mod breaker;
pub mod hang;
pub mod message_numbers;
pub mod poison;
pub mod quarantine;
pub mod restart;
pub mod sanity;
pub mod step_time;
