//! The pure logic against the world outside it: golden numbers measured on vLLM, and properties
//! that hold whatever happens.

// Test helpers stand outside `#[test]` functions, where clippy.toml does not see them.
#![allow(clippy::unwrap_used, clippy::panic)]

mod admission;
mod async_scheduling;
mod golden;
mod harness;
mod properties;
mod protocol;
mod tails;
