//! A cursor over the header of a GGUF file. Every read is checked against the end of the file, and
//! nothing is allocated for a length that exceeds the bytes left.

/// Reads little-endian values one after another.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    /// Returns the number of bytes read so far.
    pub(super) fn position(&self) -> usize {
        self.position
    }

    /// Returns the number of bytes left.
    pub(super) fn remaining(&self) -> usize {
        self.bytes.len() - self.position
    }

    /// Returns the next `length` bytes.
    pub(super) fn take(&mut self, length: u64) -> Result<&'a [u8], String> {
        let rest = &self.bytes[self.position..];
        let taken = usize::try_from(length).ok().and_then(|length| rest.get(..length));
        let taken = taken.ok_or_else(|| {
            let (position, size) = (self.position, self.bytes.len());
            format!("truncated: {length} bytes wanted at byte {position} of {size}")
        })?;
        self.position += taken.len();
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N as u64)?);
        Ok(array)
    }

    pub(super) fn u8(&mut self) -> Result<u8, String> {
        Ok(self.array::<1>()?[0])
    }

    pub(super) fn u16(&mut self) -> Result<u16, String> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, String> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, String> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads eight bytes of length, then UTF-8.
    pub(super) fn text(&mut self) -> Result<&'a str, String> {
        let (start, length) = (self.position, self.u64()?);
        let bytes = self.take(length)?;
        std::str::from_utf8(bytes).map_err(|_| format!("the string at byte {start} is not UTF-8"))
    }

    /// Reads a number of things that take at least `bytes_each`. That many must fit the rest.
    pub(super) fn count(&mut self, what: &str, bytes_each: usize) -> Result<usize, String> {
        let count = self.u64()?;
        let most = self.remaining() / bytes_each.max(1);
        let fits = usize::try_from(count).ok().filter(|&count| count <= most);
        fits.ok_or_else(|| {
            format!("truncated: {count} {what} do not fit the {} bytes left", self.remaining())
        })
    }
}
