//! The header of a WAV or AIFF file in the form that the decoder reads. Programs that write into a
//! pipe do not know the sizes in advance, and put other numbers there. Chunks beside the format and
//! the samples are not needed, and may be malformed. All of these files are read by libsndfile.

use std::{
    io::{Cursor, ErrorKind, Read, Result, Seek, SeekFrom},
    sync::Arc,
};

use symphonia::core::io::MediaSource;

/// Chunks before the samples that are looked at.
const CHUNKS_MAX: usize = 64;
/// Sizes from here on stand for an unknown one: no file that is served is as large.
const UNKNOWN_FROM: u32 = 0x7fff_0000;
/// The decoder's size of an unknown length.
const UNKNOWN: [u8; 4] = [0xff; 4];

/// The bytes of the head of an ID3v2 tag, and of its end.
const TAG_HEAD: usize = 10;
/// The flag of a tag with an end, in its sixth byte.
const TAG_HAS_END: u8 = 0x10;

/// A file, of which some bytes are read as others, and tags at its beginning are not read.
pub(super) struct Patched {
    file: Cursor<Arc<[u8]>>,
    /// The end of the tags.
    begin: u64,
    /// Places of the file with their bytes.
    patches: Vec<(usize, [u8; 4])>,
}

impl Patched {
    /// Returns a file with a plain header, if it is a WAV or AIFF file. Other files have their own
    /// `patches`.
    pub(super) fn new(file: Arc<[u8]>, patches: Option<Vec<(usize, [u8; 4])>>) -> Self {
        let patches = patches.or_else(|| wave(&file)).or_else(|| aiff(&file)).unwrap_or_default();
        let begin = tags_end(&file) as u64;
        let mut file = Cursor::new(file);
        file.set_position(begin);
        Self { file, begin, patches }
    }
}

/// Returns the end of the ID3v2 tags that a file begins with. They may be larger, with a picture,
/// than the part of a file that is searched for a beginning.
pub(super) fn tags_end(file: &[u8]) -> usize {
    let mut end = 0;
    while let Some([b'I', b'D', b'3', _, _, flags, size @ ..]) =
        file.get(end..).and_then(|rest| rest.first_chunk::<TAG_HEAD>())
    {
        // Seven bits of each byte.
        let len = size.iter().fold(0, |len, byte| len << 7 | usize::from(byte & 0x7f));
        let behind = if flags & TAG_HAS_END == 0 { 0 } else { TAG_HEAD };
        end = (end + TAG_HEAD + len + behind).min(file.len());
    }
    end
}

/// Returns the places of an AIFF file's header with another form. `None` for other files.
fn aiff(file: &[u8]) -> Option<Vec<(usize, [u8; 4])>> {
    let word = |at: usize| file.get(at..)?.first_chunk::<4>();
    if word(0)? != b"FORM" || !matches!(word(8)?, b"AIFF" | b"AIFC") {
        return None;
    }
    let (mut patches, mut at, mut has_format) = (Vec::new(), 12, false);
    // The notes behind the samples are not needed.
    let mut end = file.len();
    for _ in 0..CHUNKS_MAX {
        let (Some(name), Some(size)) = (word(at), word(at + 4)) else { break };
        let (begin, len) = (at + 8, u32::from_be_bytes(*size) as usize);
        at = begin.saturating_add(len + len % 2);
        match name {
            b"SSND" if len == 0 => {
                let rest = u32::try_from(file.len() - begin).ok()?;
                patches.push((begin - 4, rest.to_be_bytes()));
                break;
            }
            b"SSND" if has_format && at <= file.len() => {
                end = at;
                break;
            }
            b"SSND" => {}
            b"COMM" => has_format = true,
            _ => patches.push((begin - 8, *b"JUNK")),
        }
    }
    patches.push((4, u32::try_from(end - 8).ok()?.to_be_bytes()));
    Some(patches)
}

/// Returns the places of a WAV file's header with another form. `None` for other files.
fn wave(file: &[u8]) -> Option<Vec<(usize, [u8; 4])>> {
    let word = |at: usize| file.get(at..)?.first_chunk::<4>();
    let is_large = word(0)? == b"RF64";
    if !is_large && word(0)? != b"RIFF" || word(8)? != b"WAVE" {
        return None;
    }
    let (mut patches, mut at) = (vec![(0, *b"RIFF"), (4, UNKNOWN)], 12);
    // The size of the samples in a file of more than 4 GiB, which may also be smaller.
    let mut size_of_samples = None;
    for _ in 0..CHUNKS_MAX {
        let (Some(name), Some(size)) = (word(at), word(at + 4)) else { break };
        let len = u32::from_le_bytes(*size);
        match name {
            b"data" => {
                let rest = file.len() - at - 8;
                let is_unknown = len >= UNKNOWN_FROM && len as usize > rest;
                match size_of_samples.filter(|_| is_large) {
                    Some(size) if is_unknown => patches.push((at + 4, size)),
                    _ if is_unknown => patches.push((at + 4, UNKNOWN)),
                    _ => {}
                }
                break;
            }
            b"fmt " => {}
            _ => {
                if name == b"ds64" && word(at + 20) == Some(&[0; 4]) {
                    size_of_samples = word(at + 16).copied();
                }
                patches.push((at, *b"JUNK"));
            }
        }
        at = at.saturating_add(8 + len as usize + len as usize % 2);
    }
    Some(patches)
}

impl Read for Patched {
    fn read(&mut self, to: &mut [u8]) -> Result<usize> {
        let from = self.file.position();
        let len = self.file.read(to)?;
        for (place, bytes) in &self.patches {
            for (at, byte) in (*place as u64..).zip(bytes) {
                let index = at.checked_sub(from).and_then(|index| usize::try_from(index).ok());
                if let Some(read) = index.and_then(|index| to[..len].get_mut(index)) {
                    *read = *byte;
                }
            }
        }
        Ok(len)
    }
}

impl Seek for Patched {
    fn seek(&mut self, to: SeekFrom) -> Result<u64> {
        let to = match to {
            SeekFrom::Start(at) => SeekFrom::Start(at.saturating_add(self.begin)),
            other => other,
        };
        let at = self.file.seek(to)?;
        at.checked_sub(self.begin).ok_or_else(|| ErrorKind::InvalidInput.into())
    }
}

impl MediaSource for Patched {
    fn is_seekable(&self) -> bool {
        true
    }

    fn byte_len(&self) -> Option<u64> {
        Some(self.file.get_ref().len() as u64 - self.begin)
    }
}
