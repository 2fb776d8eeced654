//! The file of a cache: a head of 64 bytes, the weights' sections, each on a page boundary, and an
//! index in JSON. The head gives the index's place and SHA-256. The head is written last, and the
//! file gets its name when it is complete.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use playhouse_kernels::{KernelError, LinearWeight, MappedFile, MappedRange};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::Identity;
use crate::files;

const MAGIC: &[u8; 16] = b"playhouse packed";
const HEAD_BYTES: usize = 64;
/// Sections start at multiples of this.
const ALIGNMENT: u64 = 4096;

/// The content of the file.
#[derive(Debug, Serialize, Deserialize)]
struct Index {
    identity: Identity,
    weights: BTreeMap<String, Entry>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    form: String,
    /// `[out, in]`
    shape: [usize; 2],
    /// Start and length of each section, in bytes.
    sections: Vec<(u64, u64)>,
}

/// Reasons why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unusable {
    #[error("{0}")]
    Read(#[from] io::Error),
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
    #[error("the checkpoint or its config has changed")]
    Stale,
    #[error("it has no weight `{0}` of that shape")]
    Missing(String),
    #[error("{0}")]
    Refused(#[from] KernelError),
}

impl Unusable {
    /// Returns whether the file does not exist.
    pub(super) fn is_absence(&self) -> bool {
        matches!(self, Self::Read(error) if error.kind() == io::ErrorKind::NotFound)
    }
}

/// A whole file, mapped.
#[derive(Debug)]
pub(super) struct PackedFile {
    map: Arc<MappedFile>,
    index: Index,
}

impl PackedFile {
    /// Opens `path` if a writer for `identity` completed it.
    pub(super) fn open(path: &Path, identity: &Identity) -> Result<Self, Unusable> {
        let map = Arc::new(MappedFile::open(path)?);
        let index: Index = serde_json::from_slice(index_bytes(map.bytes())?)
            .map_err(|_| Unusable::Damaged("its index cannot be read"))?;
        if index.identity != *identity {
            return Err(Unusable::Stale);
        }
        Ok(Self { map, index })
    }

    /// Returns the weight `name`, `[out, in]`, in the file's pages.
    pub(super) fn weight(&self, name: &str, shape: [usize; 2]) -> Result<LinearWeight, Unusable> {
        let entry = self.index.weights.get(name).filter(|entry| entry.shape == shape);
        let entry = entry.ok_or_else(|| Unusable::Missing(name.to_owned()))?;
        let section = |&(start, length): &(u64, u64)| {
            let range = start as usize..start.checked_add(length)? as usize;
            MappedRange::new(&self.map, range)
        };
        let sections: Option<Vec<_>> = entry.sections.iter().map(section).collect();
        let sections = sections.ok_or(Unusable::Damaged("a section is outside the file"))?;
        Ok(LinearWeight::from_sections(&entry.form, shape, sections)?)
    }
}

/// Returns the index of a file whose head and length are right.
fn index_bytes(file: &[u8]) -> Result<&[u8], Unusable> {
    let damaged = Unusable::Damaged;
    let head = file.first_chunk::<HEAD_BYTES>().ok_or(damaged("it is too short for a head"))?;
    let (magic, rest) = head.split_at(MAGIC.len());
    let (place, digest) = rest.split_at(16);
    if magic != MAGIC {
        return Err(damaged("it does not begin as such a file does"));
    }
    let [start, length] = [&place[..8], &place[8..]]
        .map(|bytes| bytes.iter().rev().fold(0u64, |number, byte| number << 8 | u64::from(*byte)));
    let end = start.checked_add(length).ok_or(damaged("its index is nowhere"))?;
    if end != file.len() as u64 {
        return Err(damaged("its length is not the one it was written with"));
    }
    let index = &file[start as usize..];
    if Sha256::digest(index).as_slice() != digest {
        return Err(damaged("its index has changed"));
    }
    Ok(index)
}

/// A file being written, beside its final path.
#[derive(Debug)]
pub(super) struct PackedWriter {
    file: BufWriter<File>,
    unfinished: Unfinished,
    position: u64,
    index: Index,
}

/// Removes the file unless it was finished.
#[derive(Debug)]
struct Unfinished(PathBuf);

impl Drop for Unfinished {
    fn drop(&mut self) {
        // After the rename, no file of this name exists.
        let _ = fs::remove_file(&self.0);
    }
}

impl PackedWriter {
    /// Begins to write the file that `path` will name.
    ///
    /// # Errors
    /// Errors of the disk, and [`io::ErrorKind::WouldBlock`] while another process writes it.
    pub(super) fn begin(path: &Path, identity: Identity) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let unfinished = path.with_extension("packed.unfinished");
        // Not truncated before it is locked. The remains of a dead process are overwritten.
        let mut options = File::options();
        options.write(true).create(true).truncate(false);
        let file = files::open_to_write(&unfinished, &mut options)?;
        file.try_lock().map_err(io::Error::from)?;
        if !is_at(&file, &unfinished)? {
            return Err(io::Error::new(io::ErrorKind::WouldBlock, "another process wrote it"));
        }
        let unfinished = Unfinished(unfinished);
        file.set_len(0)?;
        let mut file = BufWriter::new(file);
        file.write_all(&[0; HEAD_BYTES])?;
        let index = Index { identity, weights: BTreeMap::new() };
        Ok(Self { file, unfinished, position: HEAD_BYTES as u64, index })
    }

    /// Appends a weight.
    pub(super) fn add(&mut self, name: &str, weight: &LinearWeight) -> io::Result<()> {
        let Some(packed) = weight.sections() else {
            return Err(io::Error::other("a weight that is not in the host's memory"));
        };
        let mut sections = Vec::with_capacity(packed.sections.len());
        for section in packed.sections {
            let start = self.position.next_multiple_of(ALIGNMENT);
            let padding = start - self.position;
            self.file.write_all(&[0; ALIGNMENT as usize][..padding as usize])?;
            self.file.write_all(section)?;
            self.position = start + section.len() as u64;
            sections.push((start, section.len() as u64));
        }
        let shape = [weight.out_features(), weight.in_features()];
        let entry = Entry { form: packed.form, shape, sections };
        self.index.weights.insert(name.to_owned(), entry);
        Ok(())
    }

    /// Writes index and head, and puts the file at `path`.
    pub(super) fn finish(mut self, path: &Path) -> io::Result<()> {
        let index = serde_json::to_vec(&self.index)?;
        self.file.write_all(&index)?;
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(MAGIC)?;
        self.file.write_all(&self.position.to_le_bytes())?;
        self.file.write_all(&(index.len() as u64).to_le_bytes())?;
        self.file.write_all(&Sha256::digest(&index))?;
        self.file.flush()?;
        self.file.get_ref().sync_all()?;
        fs::rename(&self.unfinished.0, path)
    }
}

/// Returns whether `path` still leads to `file`.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let (ours, there) = (file.metadata()?, fs::metadata(path)?);
    Ok((ours.dev(), ours.ino()) == (there.dev(), there.ino()))
}

/// On other systems, open files are not renamed.
#[cfg(not(unix))]
fn is_at(_: &File, _: &Path) -> io::Result<bool> {
    Ok(true)
}
