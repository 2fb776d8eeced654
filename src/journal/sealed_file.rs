//! A file that is encrypted while it is written.

use std::io::{Result, Write};

use super::{
    keys::Keys,
    sealed::{Sealer, sealed_len},
};

/// A file that is encrypted while it is written. The bytes of one call become one record, or
/// several if they are many.
#[derive(Debug)]
pub(crate) struct SealedFile<W> {
    file: W,
    sealer: Sealer,
    /// The bytes before the first record, until they are written.
    header: Vec<u8>,
}

impl<W: Write> SealedFile<W> {
    /// Begins an empty file.
    ///
    /// # Errors
    /// The system's error if it gives no random numbers.
    pub(crate) fn begin(file: W, keys: &Keys) -> Result<Self> {
        let (sealer, header) = Sealer::begin(keys)?;
        Ok(Self { file, sealer, header })
    }
}

/// Returns the most bytes that a file needs for a call with `len` bytes.
pub(crate) fn bytes_of(len: usize) -> usize {
    sealed_len([len])
}

impl<W: Write> Write for SealedFile<W> {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        let mut sealed = std::mem::take(&mut self.header);
        self.sealer.seal(bytes, &mut sealed)?;
        self.file.write_all(&sealed)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;
    use crate::journal::open;

    #[test]
    fn a_file_that_is_cut_off_has_its_whole_records() {
        let keys = Keys::new(&[9; 32], &[]);
        let mut file = SealedFile::begin(Vec::new(), &keys).unwrap();
        file.write_all(b"the first").unwrap();
        file.write_all(b", the second").unwrap();
        let bytes = file.file;
        assert!(bytes.len() <= bytes_of(9) + bytes_of(12));
        let read = |bytes: &[u8]| {
            open(Cow::Borrowed(bytes), Some(&keys), "key").map(Cow::into_owned).unwrap()
        };
        assert_eq!(read(&bytes), b"the first, the second");
        let cut = read(&bytes[..bytes.len() - 1]);
        assert!(cut.starts_with(b"the first") && !cut.ends_with(b"the second"));
    }
}
