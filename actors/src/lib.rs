//! Scheduling, KV cache and recovery logic, and the actors that run it.
//!
//! Each layer imports only those before it. The last three layers also import each other's files,
//! but no two files import each other, directly or through others:
//!
//! - [`logic`]: pure state machines. No async, no clock, no I/O: an input value and `now` go in,
//!   effects come out as data.
//! - [`message`]: the messages between actors, one file for each receiver.
//! - [`shell`]: the actors, one thin file each. A message becomes a logic call, and its effects
//!   become sends.
//! - [`link`]: the link between the front and an engine process: its frames, and how they travel.
//! - [`supervision`]: the code that finds, watches and replaces actors.
//! - [`system`]: the state that actors share, the supervision tree, and the calls of the owner.
//!
//! [`codec`] frames values for the journal and for links between processes.
//!
//! [`fault`] makes planned faults on demand. The simulator (`sim`, feature `sim`) runs
//! everything in simulated time.
//!
//! [`ports`] are the traits that the shells need from outside (the model, the tokenizer).

pub mod codec;
pub mod error;
pub mod fault;
pub mod link;
pub mod logic;
pub mod message;
pub mod ports;
pub mod shell;
#[cfg(feature = "sim")]
pub mod sim;
pub mod supervision;
pub mod system;
