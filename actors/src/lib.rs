//! Scheduling, KV cache and recovery logic, and the actors that run it.
//!
//! Three layers, each importing only those before it:
//!
//! - [`logic`]: pure state machines. No async, no clock, no I/O: an input value and `now` go in,
//!   effects come out as data.
//! - [`message`]: what actors say to each other, one file a receiver.
//! - [`shell`]: one thin actor a file; a message becomes a logic call, its effects become sends.
//!
//! [`fault`] breaks things on purpose (feature `chaos`), and the simulator (`sim`, feature `sim`)
//! runs all of it in simulated time.
//!
//! [`ports`] are the traits that the shells need from outside (the model, the tokenizer).

pub mod error;
pub mod fault;
pub mod logic;
pub mod message;
pub mod ports;
pub mod shell;
#[cfg(feature = "sim")]
pub mod sim;
