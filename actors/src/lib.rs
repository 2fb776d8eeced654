//! Scheduling, KV cache and recovery logic, and the actors that run it.
pub mod logic;
pub mod ports;
