//! Addresses, signs of life and supervision of actors: how a message finds the incarnation that
//! lives, how a dead actor is replaced, and how a hanging one is found.

pub mod address;
pub mod directory;
pub mod hang_counts;
pub mod left_behind;
pub mod monitored;
pub mod progress;
pub mod pulse;
pub mod slot;
pub mod spawn;
pub mod supervisor;
pub mod term;
pub mod threads;
pub mod watchdog;
pub mod watched;
