//! The journal's files, and the facts about a process that its journal records.

mod disk;
mod fingerprint;
mod folder;

pub(crate) use disk::{create_folder, private};
pub(crate) use fingerprint::{fingerprint, model_hash};
pub(crate) use folder::JournalFolder;
