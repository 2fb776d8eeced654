//! Results in a folder that engines share: a safetensors file for each item, in a folder for each
//! model. A file is written under another name first, so readers see it complete or not at all.
//!
//! The metadata of a file name its model and its content, and have a checksum of its numbers. A
//! file that does not match is ignored, and the item is encoded.

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use parking_lot::Mutex;
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use sha2::{Digest, Sha256};

use super::{ContentKey, EncoderConnector, StoredRows, hex};
use crate::files;

/// The version of the files.
const FORMAT: &str = "playhouse-ec-1";
/// Largest file that is read, bytes.
const FILE_BYTES_MAX: u64 = 2 << 30;
/// Most tensors of a file: the embeddings, and those for single layers.
const TENSORS_MAX: usize = 1_024;
/// The extension of the files.
const EXTENSION: &str = "safetensors";
/// The extension of files that are being written, and the longest time for one. A process that is
/// killed leaves its file behind.
const UNFINISHED: &str = "new";
const WRITE_LIMIT: Duration = Duration::from_secs(3_600);

/// Results in a folder.
#[derive(Debug)]
pub(crate) struct DiskConnector {
    root: PathBuf,
    /// The folder of this model.
    folder: PathBuf,
    /// The model, its numbers and its device.
    fingerprint: String,
    max_bytes: u64,
    /// About the size of all files: other engines write, too.
    bytes: Mutex<u64>,
}

/// A file of the folder.
struct Entry {
    modified: SystemTime,
    len: u64,
    path: PathBuf,
}

impl DiskConnector {
    /// Opens the folder `root`, and makes it if necessary. `fingerprint` names everything that a
    /// result depends on beside its item. The files of all models have up to `max_bytes`.
    ///
    /// # Errors
    /// The system's error if the folder cannot be written.
    pub(crate) fn open(root: &Path, fingerprint: &str, max_bytes: u64) -> io::Result<Self> {
        let digest = hex(&Sha256::digest(fingerprint));
        let folder = root.join(&digest[..32]);
        fs::create_dir_all(&folder)?;
        for left in entries(root, UNFINISHED) {
            if left.modified.elapsed().is_ok_and(|age| age > WRITE_LIMIT) {
                // Another engine may have removed it.
                let _ = fs::remove_file(left.path);
            }
        }
        let bytes = entries(root, EXTENSION).iter().map(|entry| entry.len).sum();
        let (root, fingerprint) = (root.to_owned(), digest);
        Ok(Self { root, folder, fingerprint, max_bytes, bytes: Mutex::new(bytes) })
    }

    fn path(&self, key: &ContentKey) -> PathBuf {
        self.folder.join(key.as_str()).with_extension(EXTENSION)
    }

    /// Returns the metadata of a file with these numbers.
    fn metadata(&self, key: &ContentKey, checksum: String) -> HashMap<String, String> {
        [
            ("format", FORMAT.to_owned()),
            ("fingerprint", self.fingerprint.clone()),
            ("key", key.as_str().to_owned()),
            ("sha256", checksum),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    /// Reads the file of an item.
    fn read(&self, key: &ContentKey) -> Result<Option<Vec<StoredRows>>, String> {
        let path = self.path(key);
        match fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.to_string()),
            Ok(found) if found.len() > FILE_BYTES_MAX => {
                return Err(format!("it has {} bytes", found.len()));
            }
            Ok(_) => {}
        }
        let file = files::read(&path).map_err(|error| error.to_string())?;
        let (_, head) = SafeTensors::read_metadata(&file).map_err(|error| error.to_string())?;
        let tensors = SafeTensors::deserialize(&file).map_err(|error| error.to_string())?;
        if tensors.len() > TENSORS_MAX {
            return Err(format!("it has {} tensors", tensors.len()));
        }
        let mut result = Vec::with_capacity(tensors.len());
        for index in 0..tensors.len() {
            let tensor = tensors.tensor(&index.to_string()).map_err(|error| error.to_string())?;
            let (&[rows, width], Dtype::F32) = (tensor.shape(), tensor.dtype()) else {
                return Err(format!("it has a tensor of the shape {:?}", tensor.shape()));
            };
            let values = tensor.data().as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
            result.push(StoredRows { rows, width, values: values.collect() });
        }
        let expected = self.metadata(key, checksum(&result));
        match head.metadata().as_ref() == Some(&expected) {
            true => Ok(Some(result)),
            false => Err("its checksum or its origin does not match".to_owned()),
        }
    }

    fn write(&self, key: &ContentKey, result: &[StoredRows]) -> Result<(), String> {
        let path = self.path(key);
        let data: Vec<Vec<u8>> = result.iter().map(StoredRows::bytes).collect();
        let views = result.iter().zip(&data).enumerate().map(|(index, (tensor, data))| {
            let shape = vec![tensor.rows, tensor.width];
            TensorView::new(Dtype::F32, shape, data).map(|view| (index.to_string(), view))
        });
        let views = views.collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?;
        let metadata = self.metadata(key, checksum(result));
        let file =
            safetensors::serialize(views, Some(metadata)).map_err(|error| error.to_string())?;
        self.make_room(file.len() as u64)?;
        files::replace(&path, &file).map_err(|error| error.to_string())
    }

    /// Removes the oldest files until `len` more bytes fit.
    fn make_room(&self, len: u64) -> Result<(), String> {
        let max_bytes = self.max_bytes;
        if len > max_bytes {
            return Err(format!("it has {len} bytes, and the folder may have {max_bytes}"));
        }
        let mut bytes = self.bytes.lock();
        if *bytes + len > max_bytes {
            let mut entries = entries(&self.root, EXTENSION);
            entries.sort_by_key(|entry| entry.modified);
            *bytes = entries.iter().map(|entry| entry.len).sum();
            for entry in entries {
                if *bytes + len <= max_bytes {
                    break;
                }
                // Another engine may have removed it.
                let _ = fs::remove_file(&entry.path);
                *bytes = bytes.saturating_sub(entry.len);
            }
        }
        *bytes += len;
        Ok(())
    }
}

impl EncoderConnector for DiskConnector {
    fn load(&self, key: &ContentKey) -> Option<Vec<StoredRows>> {
        self.read(key).unwrap_or_else(|why| {
            let path = self.path(key);
            tracing::warn!(path = %path.display(), why, "a stored result of an encoder is ignored");
            None
        })
    }

    fn save(&self, key: &ContentKey, result: &[StoredRows]) {
        if let Err(why) = self.write(key, result) {
            let path = self.path(key);
            tracing::warn!(path = %path.display(), why, "an encoder's result is not stored");
        }
    }
}

impl StoredRows {
    fn bytes(&self) -> Vec<u8> {
        self.values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }
}

/// Returns the digest of the shapes and numbers of a result.
fn checksum(result: &[StoredRows]) -> String {
    let mut digest = Sha256::new();
    for tensor in result {
        digest.update((tensor.rows as u64).to_le_bytes());
        digest.update((tensor.width as u64).to_le_bytes());
        digest.update(tensor.bytes());
    }
    hex(&digest.finalize())
}

/// Returns the files of all models with this extension. A folder that cannot be read counts as
/// empty.
fn entries(root: &Path, extension: &str) -> Vec<Entry> {
    let inside = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten();
    let files = inside(root).flat_map(|folder| inside(&folder.path()));
    let files = files.filter(|file| file.path().extension().is_some_and(|it| it == extension));
    let entry = |file: fs::DirEntry| {
        let found = file.metadata().ok()?;
        let modified = found.modified().ok()?;
        Some(Entry { modified, len: found.len(), path: file.path() })
    };
    files.filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FINGERPRINT: &str = "weights of one model";

    fn key(name: &str) -> ContentKey {
        ContentKey(hex(&Sha256::digest(name)))
    }

    fn result(rows: usize) -> Vec<StoredRows> {
        let tensor = |start: usize| {
            let values = (start..start + 3 * rows).map(|value| value as f32 / 7.0).collect();
            StoredRows { rows, width: 3, values }
        };
        vec![tensor(0), tensor(50)]
    }

    fn open(root: &Path, fingerprint: &str, max_bytes: u64) -> DiskConnector {
        DiskConnector::open(root, fingerprint, max_bytes).unwrap()
    }

    #[test]
    fn another_engine_of_the_same_model_finds_a_result() {
        let root = tempfile::tempdir().unwrap();
        open(root.path(), FINGERPRINT, 1 << 20).save(&key("a"), &result(4));
        let other = open(root.path(), FINGERPRINT, 1 << 20);
        assert_eq!(other.load(&key("a")), Some(result(4)));
        assert_eq!(other.load(&key("b")), None);
        let of_other_model = open(root.path(), "weights of another", 1 << 20);
        assert_eq!(of_other_model.load(&key("a")), None);
    }

    #[test]
    fn damaged_and_foreign_files_are_ignored() {
        let root = tempfile::tempdir().unwrap();
        let connector = open(root.path(), FINGERPRINT, 1 << 20);
        connector.save(&key("a"), &result(4));
        let path = connector.path(&key("a"));
        let good = fs::read(&path).unwrap();
        for place in 0..good.len() {
            let mut damaged = good.clone();
            damaged[place] ^= 0x10;
            fs::write(&path, &damaged).unwrap();
            let found = connector.load(&key("a"));
            // Some bytes of the header are only spaces.
            assert!(found.is_none() || found == Some(result(4)), "byte {place}");
        }
        for len in 0..good.len() {
            fs::write(&path, &good[..len]).unwrap();
            assert_eq!(connector.load(&key("a")), None, "{len} bytes");
        }
        // A file of another item or another model under this name.
        fs::write(connector.path(&key("b")), &good).unwrap();
        assert_eq!(connector.load(&key("b")), None);
        let other = open(root.path(), "weights of another", 1 << 20);
        fs::write(other.path(&key("a")), &good).unwrap();
        assert_eq!(other.load(&key("a")), None);
        connector.save(&key("a"), &result(4));
        assert_eq!(connector.load(&key("a")), Some(result(4)), "written again");
    }

    #[test]
    fn files_of_killed_processes_are_removed() {
        let root = tempfile::tempdir().unwrap();
        let connector = open(root.path(), FINGERPRINT, 1 << 20);
        let unfinished = |number: u32, age: Duration| {
            let name = format!("{}.{EXTENSION}.9-{number}.{UNFINISHED}", key("a").as_str());
            let path = connector.folder.join(name);
            fs::write(&path, "half").unwrap();
            let file = fs::File::options().append(true).open(&path).unwrap();
            file.set_modified(SystemTime::now() - age).unwrap();
            path
        };
        let left = unfinished(1, 2 * WRITE_LIMIT);
        let current = unfinished(2, Duration::ZERO);
        open(root.path(), FINGERPRINT, 1 << 20);
        assert_eq!((left.exists(), current.exists()), (false, true));
    }

    #[test]
    fn the_oldest_results_make_room() {
        let root = tempfile::tempdir().unwrap();
        let len = {
            let connector = open(root.path(), FINGERPRINT, 1 << 20);
            connector.save(&key("0"), &result(4));
            fs::metadata(connector.path(&key("0"))).unwrap().len()
        };
        let connector = open(root.path(), FINGERPRINT, 3 * len);
        for (name, age) in [("1", 20), ("2", 10), ("3", 0)] {
            connector.save(&key(name), &result(4));
            let time = SystemTime::now() - Duration::from_secs(age);
            fs::File::options()
                .append(true)
                .open(connector.path(&key(name)))
                .unwrap()
                .set_modified(time)
                .unwrap();
        }
        let found: Vec<bool> =
            ["1", "2", "3"].map(|name| connector.load(&key(name)).is_some()).into();
        assert!(found[2] && entries(root.path(), EXTENSION).len() <= 3, "{found:?}");
        connector.save(&key("large"), &result(4_000));
        assert_eq!(connector.load(&key("large")), None, "larger than the folder may be");
    }
}
