//! Scheduling, KV cache and recovery logic, and the actors that run it.
//!
//! Each of these layers imports only those before it, except that the last three know each other's
//! files (no two files import each other, directly or through others):
//!
//! - [`logic`]: pure state machines. No async, no clock, no I/O: an input value and `now` go in,
//!   effects come out as data.
//! - [`message`]: what actors say to each other, one file a receiver.
//! - [`shell`]: one thin actor a file; a message becomes a logic call, its effects become sends.
//! - [`supervision`]: how actors are found, watched and replaced.
//! - [`system`]: the state that actors share, the supervision tree, and the calls of the owner.
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
pub mod supervision;
pub mod system;
