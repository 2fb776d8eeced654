//! The files of one journal. Segments are numbered files, of which the last one counts. A segment
//! is written under another name, synced and renamed, so each is whole from its first record on.
//! All files are readable by their owner alone, because they hold what clients said.

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

/// The lock of a folder, with the id of its process in it. The system releases it when the process
/// ends.
#[derive(Debug)]
pub(super) struct Lock(File);

/// The outcome of an attempt to lock a folder.
pub(super) enum Taken {
    Here(Lock),
    ByAnother,
    /// There is no such folder, or it has no lock yet.
    Missing,
}

impl Lock {
    /// Locks a folder that may be locked.
    ///
    /// # Errors
    /// The system's errors.
    pub(super) fn take(folder: &Path) -> Result<Taken> {
        let file = match files::open_to_write(&folder.join(LOCK), &mut private()) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Taken::Missing),
            opened => opened?,
        };
        Ok(Self::of(file)?.map_or(Taken::ByAnother, Taken::Here))
    }

    /// Locks a folder, which may be new. Returns `None` if another engine or process has it.
    ///
    /// # Errors
    /// The system's errors.
    pub(super) fn create(folder: &Path) -> Result<Option<Self>> {
        let lock = Self::of(Self::file(folder)?)?;
        lock.map(Self::noted).transpose()
    }

    /// Locks a folder that this process has just made. Another process that looks for journals may
    /// have locked it for a moment.
    ///
    /// # Errors
    /// The system's errors.
    pub(super) fn create_in_new(folder: &Path) -> Result<Self> {
        let file = Self::file(folder)?;
        file.lock()?;
        Self(file).noted()
    }

    fn file(folder: &Path) -> Result<File> {
        files::open_to_write(&folder.join(LOCK), private().create(true).truncate(false))
    }

    /// Notes the id of this process.
    fn noted(mut self) -> Result<Self> {
        self.0.set_len(0)?;
        self.0.write_all(std::process::id().to_string().as_bytes())?;
        Ok(self)
    }

    fn of(file: File) -> Result<Option<Self>> {
        match file.try_lock() {
            Ok(()) => Ok(Some(Self(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

/// The files of one journal, locked for its engine.
#[derive(Debug)]
pub(crate) struct FileDisk {
    folder: PathBuf,
    /// The folder for copies, which stay when the journal is removed.
    asides: PathBuf,
    /// The number of the newest segment. 0 before the first.
    number: u64,
    /// The newest segment, if this process began it.
    segment: Option<File>,
    /// Keeps the folder locked. `None` for the folder of all journals, which has a lock anyway.
    lock: Option<Lock>,
}

impl FileDisk {
    /// Opens the journal in a locked folder.
    ///
    /// # Errors
    /// The system's errors.
    pub(super) fn new(folder: PathBuf, asides: PathBuf, lock: Lock) -> Result<Self> {
        let number = newest(&folder)?;
        Ok(Self { folder, asides, number, segment: None, lock: Some(lock) })
    }

    /// Opens the journal of the earlier format in the folder of all journals.
    ///
    /// # Errors
    /// The system's errors.
    pub(super) fn of_folder(folder: PathBuf) -> Result<Self> {
        let (number, asides) = (newest(&folder)?, folder.clone());
        Ok(Self { folder, asides, number, segment: None, lock: None })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn has_segments(&self) -> bool {
        self.number > 0
    }

    /// Removes the folder of a journal without segments.
    pub(super) fn remove_empty(mut self) {
        if !self.has_segments() {
            // An empty folder is no harm.
            let _ = self.remove();
        }
    }

    fn path(&self, number: u64) -> PathBuf {
        self.folder.join(format!("{PREFIX}{number:08}"))
    }

    fn segment(&mut self) -> Result<&mut File> {
        self.segment.as_mut().ok_or_else(|| Error::other("no segment was begun"))
    }

    /// Makes a folder anew that was removed while it was in use. The lock in it was removed, too.
    fn restore(&mut self) -> Result<()> {
        if self.lock.is_none() || self.folder.join(LOCK).try_exists()? {
            return Ok(());
        }
        create_folder(&self.folder)?;
        let busy = || Error::new(ErrorKind::ResourceBusy, "another process has taken the folder");
        self.lock = Some(Lock::create(&self.folder)?.ok_or_else(busy)?);
        self.folder.parent().map_or(Ok(()), sync_folder)
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
        self.restore()?;
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
        self.segment()?.sync_data()?;
        // A file that was removed takes all bytes, and no process can read them later.
        match self.path(self.number).try_exists()? {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::NotFound, "the journal's file was removed")),
        }
    }

    fn set_aside(&mut self) -> Result<String> {
        let path = self.path(self.number);
        let writer = match self.folder == self.asides {
            true => String::new(),
            false => {
                self.folder.file_name().unwrap_or_default().to_string_lossy().into_owned() + "-"
            }
        };
        let name = format!("aside-{writer}{:08}", self.number);
        let free = (1..).map(|copy| self.asides.join(format!("{name}-{copy}")));
        let free = free.into_iter().find(|path| !path.exists()).unwrap_or_default();
        fs::hard_link(&path, &free)?;
        Ok(free.display().to_string())
    }

    fn remove(&mut self) -> Result<()> {
        self.segment = None;
        for number in segments(&self.folder)? {
            fs::remove_file(self.path(number))?;
        }
        self.number = 0;
        // A crash may have left one.
        let _ = fs::remove_file(self.folder.join(NEW));
        sync_folder(&self.folder)?;
        if self.lock.is_some() {
            // A folder without segments counts as nothing.
            let _ = fs::remove_file(self.folder.join(LOCK));
            let _ = fs::remove_dir(&self.folder);
        }
        Ok(())
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

/// Creates a folder that its owner alone can read, unless it exists.
pub(crate) fn create_folder(folder: &Path) -> Result<()> {
    folder_builder().recursive(true).create(folder)
}

/// Does the same for a folder that must not exist.
pub(super) fn create_new_folder(folder: &Path) -> Result<()> {
    folder_builder().create(folder)
}

fn folder_builder() -> fs::DirBuilder {
    #[cfg_attr(not(unix), allow(unused_mut, reason = "there are no modes"))]
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
}

/// Makes the names in a folder durable.
pub(super) fn sync_folder(folder: &Path) -> Result<()> {
    #[cfg(unix)]
    files::open_folder(folder)?.sync_all()?;
    #[cfg(not(unix))]
    let _ = folder;
    Ok(())
}

/// Returns the process that has locked a folder. `None` if it has not noted that yet.
pub(super) fn owner(folder: &Path) -> Option<u32> {
    files::read_to_string(&folder.join(LOCK)).ok()?.parse().ok()
}

/// Returns the number of the newest segment in a folder. 0 if there is none.
fn newest(folder: &Path) -> Result<u64> {
    Ok(segments(folder)?.into_iter().max().unwrap_or(0))
}

/// Returns the numbers of the segments in a folder.
fn segments(folder: &Path) -> Result<Vec<u64>> {
    numbers(folder, PREFIX)
}

/// Returns the numbers after this prefix in the names of a folder's files.
pub(super) fn numbers(folder: &Path, prefix: &str) -> Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(prefix));
        numbers.extend(number.and_then(|number| number.parse::<u64>().ok()));
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(folder: &Path) -> FileDisk {
        create_folder(folder).unwrap();
        let lock = Lock::create(folder).unwrap().unwrap();
        FileDisk::new(folder.to_owned(), folder.to_owned(), lock).unwrap()
    }

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
        let mut disk = open(&path);
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
        let mut next = open(&path);
        assert_eq!(next.read().unwrap().unwrap(), b"three");
        next.replace(b"four").unwrap();
        assert_eq!(names(&path), ["aside-00000001-1", "lock", "segment-00000003"]);
        assert!(matches!(Lock::take(&path).unwrap(), Taken::ByAnother));
        assert!(Lock::create(&path).unwrap().is_none());
        assert!(matches!(Lock::take(folder.path()).unwrap(), Taken::Missing));
    }

    #[test]
    fn a_folder_that_is_removed_is_noticed_and_made_anew() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("journal");
        let mut disk = open(&path);
        disk.replace(b"one").unwrap();
        for lost in [&path, &path.join("segment-00000002"), &path.join(LOCK)] {
            match lost.is_dir() {
                true => fs::remove_dir_all(lost).unwrap(),
                false => fs::remove_file(lost).unwrap(),
            }
            disk.append(b"+two").unwrap();
            assert_eq!(disk.sync().is_err(), !lost.ends_with(LOCK), "{}", lost.display());
            disk.replace(b"all").unwrap();
            disk.sync().unwrap();
            assert!(matches!(Lock::take(&path).unwrap(), Taken::ByAnother));
        }
        assert_eq!(names(&path), ["lock", "segment-00000004"]);
        drop(disk);
        assert_eq!(open(&path).read().unwrap().unwrap(), b"all");
    }

    #[test]
    fn a_new_folder_is_locked_though_another_process_looks_at_it() {
        let folder = tempfile::TempDir::new().unwrap();
        let looks = Lock::create(folder.path()).unwrap().unwrap();
        let path = folder.path().to_owned();
        let (sender, begun) = std::sync::mpsc::sync_channel(1);
        let begins = std::thread::spawn(move || {
            sender.send(()).unwrap();
            Lock::create_in_new(&path)
        });
        begun.recv().unwrap();
        drop(looks);
        let lock = begins.join().unwrap().unwrap();
        assert!(matches!(Lock::take(folder.path()).unwrap(), Taken::ByAnother));
        drop(lock);
        assert!(matches!(Lock::take(folder.path()).unwrap(), Taken::Here(_)));
    }

    #[cfg(unix)]
    #[test]
    fn others_on_the_machine_read_nothing() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("journal");
        let mut disk = open(&path);
        disk.replace(b"secret").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o700);
        assert_eq!(
            (mode(&path.join("segment-00000001")), mode(&path.join("lock"))),
            (0o600, 0o600)
        );
    }
}
