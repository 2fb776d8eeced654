//! The journal's folder. Each engine writes in a folder of its own in it, which it has locked. Two
//! engines write at a time while one of them ends its requests: after a swap of the model, and
//! after an upgrade in the process before.
//!
//! The folder itself is locked by one process. A server that another one has started does not have
//! this lock at its start, and takes it when the other process has ended.
//!
//! An earlier format has its segments in the folder itself. These are read as those of an engine
//! that has ended.

use std::{
    collections::BTreeSet,
    fs,
    io::{Error, ErrorKind, Result},
    path::{Path, PathBuf},
};

use parking_lot::Mutex;
use playhouse_actors::system::Left;

use super::{
    disk::{self, FileDisk, Lock, Taken},
    keys::Keys,
    sealed_disk::SealedDisk,
};

const PREFIX: &str = "writer-";

/// The folder of a process's journals.
#[derive(Debug)]
pub(crate) struct JournalFolder {
    path: PathBuf,
    /// Encrypt the journals.
    keys: Option<Keys>,
    /// The lock of the folder. `None` while the process before an upgrade has it.
    lock: Mutex<Option<Lock>>,
    /// The numbers of the journals without a process that stay as they are.
    known: Mutex<BTreeSet<u64>>,
    /// The numbers of the journals that this process has begun.
    own: Mutex<BTreeSet<u64>>,
}

/// Journals without a process, the newest first, and their numbers. 0 is that of the folder itself.
type Numbered = (Vec<u64>, Vec<Left>);

impl JournalFolder {
    /// Opens the folder for a process that is alone in it. Creates it if it does not exist.
    ///
    /// # Errors
    /// [`ErrorKind::ResourceBusy`] if another process has it, and the system's other errors.
    pub(crate) fn open(path: &Path, keys: Option<Keys>) -> Result<Self> {
        let folder = Self::of(path, keys)?;
        let lock = Lock::create(path)?.ok_or_else(busy)?;
        for number in folder.numbers()? {
            let writer = folder.writer(number);
            match Lock::take(&writer)? {
                Taken::ByAnother => return Err(busy()),
                Taken::Here(lock) => FileDisk::new(writer, path.to_owned(), lock)?.remove_empty(),
                // A process died before it had one.
                Taken::Missing => drop(fs::remove_dir(writer)),
            }
        }
        *folder.lock.lock() = Some(lock);
        Ok(folder)
    }

    /// Opens the folder beside `starter`, the process that has started this one and ends. It writes
    /// a journal there, or no process does.
    ///
    /// # Errors
    /// [`ErrorKind::ResourceBusy`] if only other processes have it, and the system's other errors.
    pub(crate) fn open_beside(path: &Path, keys: Option<Keys>, starter: u32) -> Result<Self> {
        let folder = Self::of(path, keys)?;
        folder.take_lock()?;
        let is_alone = folder.lock.lock().is_some();
        let is_starters = |number: &u64| {
            let writer = folder.writer(*number);
            let is_locked = matches!(Lock::take(&writer), Ok(Taken::ByAnother));
            is_locked && disk::owner(&writer) == Some(starter)
        };
        match is_alone || folder.numbers()?.iter().any(is_starters) {
            true => Ok(folder),
            false => Err(busy()),
        }
    }

    fn of(path: &Path, keys: Option<Keys>) -> Result<Self> {
        disk::create_folder(path)?;
        let (lock, known, own) = Default::default();
        Ok(Self { path: path.to_owned(), keys, lock, known, own })
    }

    /// Takes the folder's lock, if this process does not have it and no other process does.
    ///
    /// # Errors
    /// The system's errors.
    pub(crate) fn take_lock(&self) -> Result<()> {
        let mut lock = self.lock.lock();
        if lock.is_none() {
            *lock = Lock::create(&self.path)?;
        }
        Ok(())
    }

    /// Returns its path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Begins an empty journal for an engine.
    ///
    /// # Errors
    /// The system's errors.
    pub(crate) fn begin(&self) -> Result<SealedDisk> {
        let mut number = self.numbers()?.into_iter().max().unwrap_or(0);
        loop {
            number += 1;
            match disk::create_new_folder(&self.writer(number)) {
                // Another process has begun one.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                created => {
                    created?;
                    break;
                }
            }
        }
        self.own.lock().insert(number);
        let folder = self.writer(number);
        let lock = Lock::create_in_new(&folder)?;
        disk::sync_folder(&self.path)?;
        let files = FileDisk::new(folder, self.path.clone(), lock)?;
        Ok(SealedDisk::new(files, self.keys.clone()))
    }

    /// Locks the journals without a process, and returns them. The newest is the first.
    ///
    /// # Errors
    /// The system's errors.
    pub(crate) fn left(&self) -> Result<Vec<Left>> {
        let (numbers, left) = self.left_but(&BTreeSet::new())?;
        *self.known.lock() = numbers.into_iter().collect();
        Ok(left)
    }

    /// Does the same for those that no call has returned yet. Returns their numbers, too.
    ///
    /// # Errors
    /// The system's errors.
    pub(crate) fn newly_left(&self) -> Result<Numbered> {
        let mut known = self.known.lock();
        let (numbers, left) = self.left_but(&known)?;
        known.extend(&numbers);
        Ok((numbers, left))
    }

    /// Returns whether another process writes a journal in the folder.
    ///
    /// # Errors
    /// The system's errors.
    pub(crate) fn is_shared(&self) -> Result<bool> {
        let own = self.own.lock().clone();
        for number in self.numbers()?.into_iter().filter(|number| !own.contains(number)) {
            if matches!(Lock::take(&self.writer(number))?, Taken::ByAnother) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Lets [`Self::newly_left`] return these again.
    pub(crate) fn forget(&self, numbers: &[u64]) {
        self.known.lock().retain(|number| !numbers.contains(number));
    }

    fn left_but(&self, known: &BTreeSet<u64>) -> Result<Numbered> {
        let mut candidates = self.numbers()?;
        candidates.retain(|number| !known.contains(number));
        candidates.sort_unstable_by(|one, other| other.cmp(one));
        let (mut numbers, mut left) = (Vec::new(), Vec::new());
        let mut add = |number, disk: FileDisk| {
            // A process may be about to write its first segment.
            if disk.has_segments() {
                let place = disk.folder().display().to_string();
                numbers.push(number);
                let disk = Box::new(SealedDisk::new(disk, self.keys.clone()));
                left.push(Left { disk, place });
            }
        };
        for number in candidates {
            let folder = self.writer(number);
            let Taken::Here(lock) = Lock::take(&folder)? else { continue };
            match FileDisk::new(folder, self.path.clone(), lock) {
                // Another process has just removed it.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                disk => add(number, disk?),
            }
        }
        if self.lock.lock().is_some() && !known.contains(&0) {
            add(0, FileDisk::of_folder(self.path.clone())?);
        }
        Ok((numbers, left))
    }

    fn writer(&self, number: u64) -> PathBuf {
        self.path.join(format!("{PREFIX}{number:08}"))
    }

    fn numbers(&self) -> Result<Vec<u64>> {
        disk::numbers(&self.path, PREFIX)
    }
}

fn busy() -> Error {
    Error::new(ErrorKind::ResourceBusy, "another process has this journal open")
}

#[cfg(test)]
mod tests {
    use playhouse_actors::ports::JournalDisk;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn contents(left: Vec<Left>) -> Vec<Vec<u8>> {
        left.into_iter().map(|mut left| left.disk.read().unwrap().unwrap()).collect()
    }

    #[test]
    fn one_process_has_the_folder() {
        let folder = tempfile::TempDir::new().unwrap();
        let first = JournalFolder::open(folder.path(), None).unwrap();
        let error = JournalFolder::open(folder.path(), None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ResourceBusy);
        drop(first);
        JournalFolder::open(folder.path(), None).unwrap();
    }

    #[test]
    fn a_process_that_another_one_started_has_the_folder_after_it() {
        let folder = tempfile::TempDir::new().unwrap();
        let first = JournalFolder::open(folder.path(), None).unwrap();
        let mut old = first.begin().unwrap();
        old.replace(b"old").unwrap();
        let own = std::process::id();
        let second = JournalFolder::open_beside(folder.path(), None, own).unwrap();
        let error = JournalFolder::open_beside(folder.path(), None, own + 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ResourceBusy, "another server has the folder");
        let mut new = second.begin().unwrap();
        new.replace(b"new").unwrap();
        assert!(second.left().unwrap().is_empty(), "the first one ends its requests");
        assert!(second.is_shared().unwrap());
        drop((first, old));
        assert!(!second.is_shared().unwrap());
        // A server that an operator starts now must not have it.
        let error = JournalFolder::open(folder.path(), None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ResourceBusy);
        second.take_lock().unwrap();
        let (numbers, left) = second.newly_left().unwrap();
        assert_eq!((numbers.as_slice(), contents(left)), (&[1][..], vec![b"old".to_vec()]));
        assert!(second.newly_left().unwrap().1.is_empty(), "it is known");
        second.forget(&numbers);
        assert_eq!(second.newly_left().unwrap().1.len(), 1);
        drop((second, new));
        let third = JournalFolder::open(folder.path(), None).unwrap();
        assert_eq!(contents(third.left().unwrap()), [b"new", b"old"]);
    }

    #[test]
    fn a_journal_that_was_taken_over_is_removed() {
        let folder = tempfile::TempDir::new().unwrap();
        let first = JournalFolder::open(folder.path(), None).unwrap();
        first.begin().unwrap().replace(b"one").unwrap();
        // A process may die before its first segment.
        fs::create_dir(folder.path().join("writer-00000002")).unwrap();
        drop(first.begin().unwrap());
        drop(first);
        let second = JournalFolder::open(folder.path(), None).unwrap();
        assert_eq!(names(folder.path()), ["lock", "writer-00000001"]);
        let mut own = second.begin().unwrap();
        own.replace(b"own").unwrap();
        let mut left = second.left().unwrap();
        let aside = left[0].disk.set_aside().unwrap();
        left[0].disk.remove().unwrap();
        assert_eq!(fs::read(aside).unwrap(), b"one");
        let aside = "aside-writer-00000001-00000001-1";
        assert_eq!(names(folder.path()), [aside, "lock", "writer-00000002"]);
        assert!(second.left().unwrap().is_empty());
    }

    #[test]
    fn segments_of_the_earlier_format_are_read() {
        let folder = tempfile::TempDir::new().unwrap();
        fs::write(folder.path().join("segment-00000007"), b"earlier").unwrap();
        let journals = JournalFolder::open(folder.path(), None).unwrap();
        let mut own = journals.begin().unwrap();
        own.replace(b"own").unwrap();
        let mut left = journals.left().unwrap();
        assert_eq!(left[0].disk.read().unwrap().unwrap(), b"earlier");
        left[0].disk.remove().unwrap();
        assert_eq!(names(folder.path()), ["lock", "writer-00000001"]);
    }
}
