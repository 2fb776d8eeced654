//! The journal's files, and the facts about a process that its journal records.

mod disk;
mod fingerprint;

pub(crate) use disk::FileDisk;
pub(crate) use fingerprint::{fingerprint, model_hash};
