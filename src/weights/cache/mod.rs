//! Packed weights kept on disk. The next start maps them and packs nothing, and processes that
//! serve the same model share their pages.
//!
//! There is one file for each checkpoint, format of the weights, and layout of this machine. A file
//! that is stale or damaged is written again. If the disk cannot take it, the only consequence is a
//! warning.

mod file;
mod identity;

use std::fmt::Display;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use playhouse_kernels::LinearWeight;
use serde_json::{Map, Value};

use self::file::{PackedFile, PackedWriter};
pub(crate) use self::identity::{Identity, READER_VERSION};
use super::Checkpoint;

/// The cache of one model while it loads.
#[derive(Debug)]
pub(crate) struct WeightsCache {
    path: PathBuf,
    state: State,
}

#[derive(Debug)]
enum State {
    Read(PackedFile),
    Write(PackedWriter),
    /// The cache is not used: nothing can be written, or the file is complete.
    Off,
}

impl WeightsCache {
    /// Returns the cache in `folder` for the weights of `checkpoint`, arranged by `config`, as
    /// `format`. If the file is absent or does not fit, the weights packed now are written to it.
    pub(crate) fn open(
        folder: &Path,
        checkpoint: &Checkpoint,
        config: &Map<String, Value>,
        format: &str,
    ) -> Self {
        let identity = match Identity::of(checkpoint, config, format) {
            Ok(identity) => identity,
            Err(error) => {
                warn(folder, "not used", &error);
                return Self { path: folder.to_owned(), state: State::Off };
            }
        };
        let path = folder.join(identity.file_name());
        let state = match PackedFile::open(&path, &identity) {
            Ok(packed) => {
                tracing::info!(path = %path.display(), "weights come packed from the cache");
                State::Read(packed)
            }
            Err(error) => {
                if !error.is_absence() {
                    warn(&path, "made anew", &error);
                }
                begin(&path, identity)
            }
        };
        Self { path, state }
    }

    /// Returns whether weights come from the cache.
    pub(crate) fn is_read(&self) -> bool {
        matches!(self.state, State::Read(_))
    }

    /// Returns the weight that was kept as `name`. `None` if it must be packed.
    pub(crate) fn get(&mut self, name: &str, shape: [usize; 2]) -> Option<LinearWeight> {
        let State::Read(packed) = &self.state else { return None };
        match packed.weight(name, shape) {
            Ok(weight) => Some(weight),
            Err(error) => {
                // The next start writes the file again.
                warn(&self.path, "removed", &error);
                let _ = fs::remove_file(&self.path);
                self.state = State::Off;
                None
            }
        }
    }

    /// Keeps a newly packed weight if a file is being written.
    pub(crate) fn keep(&mut self, name: &str, weight: &LinearWeight) {
        let State::Write(writer) = &mut self.state else { return };
        if let Err(error) = writer.add(name, weight) {
            self.give_up(&error);
        }
    }

    /// Completes the file after all weights were packed. From now on, starts find it.
    pub(crate) fn finish(mut self) {
        if let State::Write(writer) = std::mem::replace(&mut self.state, State::Off) {
            match writer.finish(&self.path) {
                Ok(()) => tracing::info!(path = %self.path.display(), "packed weights were kept"),
                Err(error) => self.give_up(&error),
            }
        }
    }

    fn give_up(&mut self, error: &io::Error) {
        warn(&self.path, "not written", error);
        self.state = State::Off;
    }
}

fn begin(path: &Path, identity: Identity) -> State {
    match PackedWriter::begin(path, identity) {
        Ok(writer) => State::Write(writer),
        Err(error) => {
            warn(path, "not written", &error);
            State::Off
        }
    }
}

fn warn(path: &Path, outcome: &str, reason: &impl Display) {
    tracing::warn!(path = %path.display(), %reason, "the cache of packed weights is {outcome}");
}
