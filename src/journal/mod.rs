//! The journal's files, the encryption of files, and the facts about a process that its journal
//! records.

mod disk;
mod fingerprint;
mod folder;
mod keys;
mod sealed;
mod sealed_disk;
mod sealed_file;

pub(crate) use disk::{create_folder, private};
pub(crate) use fingerprint::{fingerprint, model_hash};
pub(crate) use folder::JournalFolder;
pub(crate) use keys::Keys;
#[cfg(any(test, feature = "cli"))]
pub(crate) use sealed::open;
pub(crate) use sealed_file::{SealedFile, bytes_of};
