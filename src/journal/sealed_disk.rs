//! The files of a journal, encrypted if there are keys.

use std::{
    borrow::Cow,
    io::{Error, Result},
};

use playhouse_actors::ports::JournalDisk;

use super::{
    disk::FileDisk,
    keys::Keys,
    sealed::{Sealer, open},
};

/// The setting that names the file of keys.
const SETTING: &str = "journal_key_file";

/// The files of one journal, encrypted if there are keys.
#[derive(Debug)]
pub(crate) struct SealedDisk<D = FileDisk> {
    files: D,
    keys: Option<Keys>,
    /// Encrypts the segment that this process writes.
    sealer: Option<Sealer>,
}

impl<D: JournalDisk> SealedDisk<D> {
    pub(super) fn new(files: D, keys: Option<Keys>) -> Self {
        Self { files, keys, sealer: None }
    }
}

impl<D: JournalDisk> JournalDisk for SealedDisk<D> {
    fn read(&mut self) -> Result<Option<Vec<u8>>> {
        let Some(content) = self.files.read()? else { return Ok(None) };
        open(Cow::Owned(content), self.keys.as_ref(), SETTING).map(|read| Some(read.into_owned()))
    }

    fn replace(&mut self, content: &[u8]) -> Result<()> {
        let Some(keys) = &self.keys else { return self.files.replace(content) };
        let (mut sealer, mut segment) = Sealer::begin(keys)?;
        sealer.seal(content, &mut segment)?;
        self.sealer = Some(sealer);
        self.files.replace(&segment)
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        match (&self.keys, &mut self.sealer) {
            (None, _) => self.files.append(bytes),
            (Some(_), Some(sealer)) => {
                let mut sealed = Vec::new();
                sealer.seal(bytes, &mut sealed)?;
                self.files.append(&sealed)
            }
            (Some(_), None) => Err(Error::other("the journal has no segment yet")),
        }
    }

    fn sync(&mut self) -> Result<()> {
        self.files.sync()
    }

    fn set_aside(&mut self) -> Result<String> {
        self.files.set_aside()
    }

    fn remove(&mut self) -> Result<()> {
        self.files.remove()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk in memory with one segment.
    #[derive(Debug, Default)]
    struct Memory(Option<Vec<u8>>);

    impl JournalDisk for Memory {
        fn read(&mut self) -> Result<Option<Vec<u8>>> {
            Ok(self.0.clone())
        }

        fn replace(&mut self, content: &[u8]) -> Result<()> {
            self.0 = Some(content.to_vec());
            Ok(())
        }

        fn append(&mut self, bytes: &[u8]) -> Result<()> {
            self.0.as_mut().unwrap().extend(bytes);
            Ok(())
        }

        fn sync(&mut self) -> Result<()> {
            Ok(())
        }

        fn set_aside(&mut self) -> Result<String> {
            Ok("aside".to_owned())
        }

        fn remove(&mut self) -> Result<()> {
            self.0 = None;
            Ok(())
        }
    }

    /// Writes two segments, the second with two records.
    fn written(keys: Option<Keys>) -> SealedDisk<Memory> {
        let mut disk = SealedDisk::new(Memory::default(), keys);
        for first in ["before", "the secret"] {
            disk.replace(first.as_bytes()).unwrap();
            disk.append(b" and more").unwrap();
        }
        disk
    }

    #[test]
    fn a_segment_is_encrypted_if_there_is_a_key() {
        let mut plain = written(None);
        assert_eq!(plain.files.0.as_deref().unwrap(), b"the secret and more");
        assert_eq!(plain.read().unwrap().unwrap(), b"the secret and more");
        let mut sealed = written(Some(Keys::new(&[7; 32], &[])));
        assert!(!sealed.files.0.as_deref().unwrap().windows(4).any(|bytes| bytes == b"more"));
        assert_eq!(sealed.read().unwrap().unwrap(), b"the secret and more");
    }
}
