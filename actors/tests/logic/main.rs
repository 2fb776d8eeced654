//! Tests of the pure logic: golden numbers measured on vLLM, and properties that always hold.

// Test helpers are outside `#[test]` functions, where clippy.toml has no effect.
#![allow(clippy::unwrap_used, clippy::panic)]

mod admission;
mod async_scheduling;
mod full_cache;
mod garbage;
mod golden;
mod harness;
mod properties;
mod protocol;
mod tails;
