//! The journal's folder. Segments are numbered files, of which the last one counts. A segment is
//! written under another name, synced and renamed, so each is whole from its first record on. All
//! files are readable by their owner alone, because they hold what clients said.

use std::{
    fs::{self, File, TryLockError},
    io::{Error, ErrorKind, Result, Write},
    path::{Path, PathBuf},
};

use playhouse_actors::ports::JournalDisk;

use crate::files;

const LOCK: &str = "lock";
const NEW: &str = "segment.new";
const PREFIX: &str = "segment-";

/// The folder of one journal, locked for this process.
#[derive(Debug)]
pub(crate) struct FileDisk {
    folder: PathBuf,
    /// The number of the newest segment. 0 before the first.
    number: u64,
    /// The newest segment, if this process began it.
    segment: Option<File>,
    /// Keeps the folder locked.
    _lock: File,
}

impl FileDisk {
    /// Locks the folder, which is created if it does not exist.
    ///
    /// # Errors
    /// [`ErrorKind::ResourceBusy`] if another process has it, and the system's other errors.
    pub(crate) fn open(folder: &Path) -> Result<Self> {
        create_folder(folder)?;
        let path = folder.join(LOCK);
        let lock = files::open_to_write(&path, private().create(true).truncate(false))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => {
                Error::new(ErrorKind::ResourceBusy, "another process has this journal open")
            }
            TryLockError::Error(error) => error,
        })?;
        let numbers = segments(folder)?;
        let number = numbers.into_iter().max().unwrap_or(0);
        Ok(Self { folder: folder.to_owned(), number, segment: None, _lock: lock })
    }

    fn path(&self, number: u64) -> PathBuf {
        self.folder.join(format!("{PREFIX}{number:08}"))
    }

    fn segment(&mut self) -> Result<&mut File> {
        self.segment.as_mut().ok_or_else(|| Error::other("no segment was begun"))
    }
}

impl JournalDisk for FileDisk {
    fn read(&mut self) -> Result<Option<Vec<u8>>> {
        match self.number {
            0 => Ok(None),
            number => files::read(&self.path(number)).map(Some),
        }
    }

    fn replace(&mut self, content: &[u8]) -> Result<()> {
        self.segment = None;
        let new = self.folder.join(NEW);
        // A crash may have left one.
        if let Err(error) = fs::remove_file(&new)
            && error.kind() != ErrorKind::NotFound
        {
            return Err(error);
        }
        let mut file = files::open_to_write(&new, private().create_new(true))?;
        file.write_all(content)?;
        file.sync_all()?;
        let number = self.number + 1;
        fs::rename(&new, self.path(number))?;
        self.number = number;
        sync_folder(&self.folder)?;
        for old in segments(&self.folder)?.into_iter().filter(|&old| old < number) {
            fs::remove_file(self.path(old))?;
        }
        self.segment = Some(file);
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.segment()?.write_all(bytes)
    }

    fn sync(&mut self) -> Result<()> {
        self.segment()?.sync_data()
    }

    fn set_aside(&mut self) -> Result<String> {
        let path = self.path(self.number);
        let free = (1..).map(|copy| self.folder.join(format!("aside-{:08}-{copy}", self.number)));
        let free = free.into_iter().find(|path| !path.exists()).unwrap_or_default();
        fs::hard_link(&path, &free)?;
        Ok(free.display().to_string())
    }
}

/// Returns options to write a file that its owner alone can read.
pub(crate) fn private() -> fs::OpenOptions {
    let mut options = File::options();
    options.write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Creates a folder that its owner alone can open, unless it exists.
///
/// # Errors
/// The system's error.
pub(crate) fn create_folder(folder: &Path) -> Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Makes the names in a folder durable.
fn sync_folder(folder: &Path) -> Result<()> {
    #[cfg(unix)]
    files::open_folder(folder)?.sync_all()?;
    #[cfg(not(unix))]
    let _ = folder;
    Ok(())
}

/// Returns the numbers of the segments in a folder.
fn segments(folder: &Path) -> Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        numbers.extend(number.and_then(|number| number.parse::<u64>().ok()));
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn the_newest_segment_counts_and_older_ones_are_removed() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("journal");
        let mut disk = FileDisk::open(&path).unwrap();
        assert_eq!(disk.read().unwrap(), None);
        disk.replace(b"one").unwrap();
        disk.append(b"+two").unwrap();
        disk.sync().unwrap();
        assert_eq!(disk.read().unwrap().unwrap(), b"one+two");
        let aside = disk.set_aside().unwrap();
        disk.replace(b"three").unwrap();
        assert_eq!(names(&path), ["aside-00000001-1", "lock", "segment-00000002"]);
        assert_eq!(fs::read(aside).unwrap(), b"one+two");
        drop(disk);
        fs::write(path.join(NEW), "half of a segm").unwrap();
        let mut next = FileDisk::open(&path).unwrap();
        assert_eq!(next.read().unwrap().unwrap(), b"three");
        next.replace(b"four").unwrap();
        assert_eq!(names(&path), ["aside-00000001-1", "lock", "segment-00000003"]);
    }

    #[test]
    fn one_process_has_it_open() {
        let folder = tempfile::TempDir::new().unwrap();
        let _first = FileDisk::open(folder.path()).unwrap();
        let error = FileDisk::open(folder.path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ResourceBusy);
    }

    #[cfg(unix)]
    #[test]
    fn others_on_the_machine_read_nothing() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("journal");
        let mut disk = FileDisk::open(&path).unwrap();
        disk.replace(b"secret").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o700);
        assert_eq!(
            (mode(&path.join("segment-00000001")), mode(&path.join("lock"))),
            (0o600, 0o600)
        );
    }
}
