//! The journal's files, and the facts about a process that its journal records.

mod disk;
mod fingerprint;
mod folder;
mod key;
mod sealed;

pub(crate) use disk::{create_folder, private};
pub(crate) use fingerprint::{fingerprint, model_hash};
pub(crate) use folder::JournalFolder;
pub(crate) use key::JournalKey;
