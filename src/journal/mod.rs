//! The journal's files, and the facts about a process that its journal records.

mod disk;
mod fingerprint;

pub(crate) use disk::{FileDisk, create_folder, private};
pub(crate) use fingerprint::fingerprint;
