//! The packets of a WebM or Matroska file (RFC 9559) with Opus, as browsers record them.
//!
//! A file is a tree of elements. Those that hold blocks are entered, and all others are passed
//! over. So it does not matter that a recording does not say where its parts end.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use playhouse_actors::ports::MediaError;
use symphonia::core::{
    packet::Packet,
    units::{Duration, Timestamp},
};

use super::{invalid, opus};

/// The first bytes of a file: the id of the element `EBML`.
pub(super) const MAGIC: &[u8] = &[0x1a, 0x45, 0xdf, 0xa3];

/// The number that packets have as their track.
pub(super) const TRACK: u32 = 0;

/// The ids of elements.
const SEGMENT: u32 = 0x1853_8067;
const TRACKS: u32 = 0x1654_ae6b;
const TRACK_ENTRY: u32 = 0xae;
const TRACK_NUMBER: u32 = 0xd7;
const TRACK_TYPE: u32 = 0x83;
const CODEC_ID: u32 = 0x86;
const CODEC_PRIVATE: u32 = 0x63a2;
const CONTENT_ENCODINGS: u32 = 0x6d80;
const CLUSTER: u32 = 0x1f43_b675;
const BLOCK_GROUP: u32 = 0xa0;
const BLOCK: u32 = 0xa1;
const SIMPLE_BLOCK: u32 = 0xa3;
const DISCARD_PADDING: u32 = 0x75a2;

/// The type of tracks of sound.
const SOUND: u64 = 2;

/// The only codec that is decoded.
const OPUS: &[u8] = b"A_OPUS";

/// The bytes of a codec's name that are shown.
const NAME_MAX: usize = 64;

/// The elements in an element whose elements are listed. A file of 25 MiB could have 13 million
/// empty ones, which take 24 bytes each.
const CHILDREN_MAX: usize = 1 << 12;

/// The first track of sound in a file.
pub(super) struct WebM {
    file: Arc<[u8]>,
    /// The end of the blocks.
    end: usize,
    number: u64,
    /// The head of the stream.
    head: Range<usize>,
    at: usize,
    packets: VecDeque<Packet>,
    /// Frames of all packets, without those behind the sound.
    num_frames: u64,
}

/// An element whose bytes are in the file.
struct Element {
    id: u32,
    content: Range<usize>,
    /// Whether it says where it ends.
    has_size: bool,
}

impl WebM {
    /// Opens the file, which begins at `begin`.
    ///
    /// # Errors
    /// [`MediaError`] if the file is broken or truncated, or its sound is not Opus.
    pub(super) fn open(file: Arc<[u8]>, begin: usize) -> Result<Self, MediaError> {
        let (mut at, mut end) = (begin, file.len());
        let mut track = None;
        while at < end && track.is_none() {
            let element = element(&file, at, end)?;
            at = match element.id {
                SEGMENT => {
                    end = element.content.end;
                    element.content.start
                }
                TRACKS => {
                    track = sound_of(&file, &element)?;
                    element.content.end
                }
                CLUSTER => break,
                _ => passed_over(&element)?,
            };
        }
        let (number, head) = track.ok_or_else(|| invalid("the file has no sound"))?;
        let packets = VecDeque::new();
        let mut this = Self { file, end, number, head, at, packets, num_frames: 0 };
        let mut num_frames = 0;
        while let Some(packet) = this.next_packet()? {
            num_frames += packet.dur.get();
        }
        (this.at, this.num_frames) = (at, num_frames);
        Ok(this)
    }

    /// Returns the head of the Opus stream.
    pub(super) fn head(&self) -> &[u8] {
        self.file.get(self.head.clone()).unwrap_or_default()
    }

    /// Returns the frames of all packets, with those before the sound.
    pub(super) fn num_frames(&self) -> u64 {
        self.num_frames
    }

    /// Returns the next packet of the track, or nothing behind the last.
    ///
    /// # Errors
    /// [`MediaError`] if the file is broken or truncated.
    pub(super) fn next_packet(&mut self) -> Result<Option<Packet>, MediaError> {
        while self.packets.is_empty() && self.at < self.end {
            let element = element(&self.file, self.at, self.end)?;
            self.at = match element.id {
                CLUSTER => element.content.start,
                SIMPLE_BLOCK => {
                    self.push(&element.content, 0)?;
                    passed_over(&element)?
                }
                BLOCK_GROUP => {
                    self.push_group(&element)?;
                    passed_over(&element)?
                }
                _ => passed_over(&element)?,
            };
        }
        Ok(self.packets.pop_front())
    }

    /// Adds the packets of a block and what is said about it.
    fn push_group(&mut self, group: &Element) -> Result<(), MediaError> {
        let (mut block, mut behind) = (None, 0);
        for child in children(&self.file, group)? {
            match child.id {
                BLOCK => block = Some(child.content),
                DISCARD_PADDING => behind = signed(&self.file[child.content]),
                _ => {}
            }
        }
        match block {
            Some(block) => self.push(&block, behind),
            None => Ok(()),
        }
    }

    /// Adds the packets of a block. The last `behind` nanoseconds of it are not of the sound.
    fn push(&mut self, block: &Range<usize>, behind: i64) -> Result<(), MediaError> {
        const NANOSECONDS: u64 = 1_000_000_000;
        let content = self.file.get(block.clone()).unwrap_or_default();
        let (number, rest) = integer(content).ok_or_else(broken)?;
        if number != self.number {
            return Ok(());
        }
        // Behind a time of two bytes.
        let [_, _, flags, rest @ ..] = rest else { return Err(broken()) };
        let data = laced(rest, flags >> 1 & 3).ok_or_else(broken)?;
        let num_packets = data.len();
        let behind = u64::try_from(behind).unwrap_or(0).min(NANOSECONDS);
        let behind = (behind * u64::from(opus::RATE) + NANOSECONDS / 2) / NANOSECONDS;
        for (index, data) in data.into_iter().enumerate() {
            let frames = opus::num_frames(data);
            let frames = frames.ok_or_else(|| invalid("a packet of Opus is broken"))? as u64;
            let behind = if index + 1 == num_packets { behind.min(frames) } else { 0 };
            let duration = Duration::new(frames - behind);
            let mut packet = Packet::new(TRACK, Timestamp::ZERO, duration, data);
            packet.trim_end = Duration::new(behind);
            self.packets.push_back(packet);
        }
        Ok(())
    }
}

/// Returns the number of the first track of sound and the place of its codec's head.
fn sound_of(file: &[u8], tracks: &Element) -> Result<Option<(u64, Range<usize>)>, MediaError> {
    for entry in children(file, tracks)?.into_iter().filter(|child| child.id == TRACK_ENTRY) {
        let fields = children(file, &entry)?;
        let field = |id: u32| fields.iter().find(|field| field.id == id);
        let bytes = |id: u32| field(id).map(|field| &file[field.content.clone()]);
        if bytes(TRACK_TYPE).map(unsigned) != Some(SOUND) {
            continue;
        }
        let name = bytes(CODEC_ID).unwrap_or_default();
        if !name.starts_with(OPUS) {
            let name = String::from_utf8_lossy(&name[..name.len().min(NAME_MAX)]);
            let why = format!("its sound in WebM or Matroska is {name}; Opus is decoded");
            return Err(invalid(why));
        }
        if field(CONTENT_ENCODINGS).is_some() {
            return Err(invalid("its sound in WebM or Matroska is compressed or encrypted"));
        }
        let number = bytes(TRACK_NUMBER).map(unsigned).ok_or_else(broken)?;
        let head = field(CODEC_PRIVATE).ok_or_else(broken)?;
        return Ok(Some((number, head.content.clone())));
    }
    Ok(None)
}

/// Returns the element at a place of a file, whose parent ends at `end`.
fn element(file: &[u8], at: usize, end: usize) -> Result<Element, MediaError> {
    const ID_BYTES_MAX: usize = 4;
    let rest = file.get(at..end).unwrap_or_default();
    let len = rest.first().map_or(0, |first| first.leading_zeros() as usize + 1);
    if len > ID_BYTES_MAX {
        return Err(broken());
    }
    let id = rest.get(..len).ok_or_else(truncated)?;
    let id = id.iter().fold(0, |id, byte| id << 8 | u32::from(*byte));
    let behind = &rest[len..];
    let (size, content) = integer(behind).ok_or_else(truncated)?;
    let size_bytes = behind.len() - content.len();
    // All bits are set.
    let has_size = size != (1 << (7 * size_bytes)) - 1;
    let start = end - content.len();
    let content = match usize::try_from(size) {
        _ if !has_size => start..end,
        Ok(size) if size <= content.len() => start..start + size,
        _ => return Err(truncated()),
    };
    Ok(Element { id, content, has_size })
}

/// Returns the elements in an element.
fn children(file: &[u8], parent: &Element) -> Result<Vec<Element>, MediaError> {
    let (mut at, end) = (parent.content.start, passed_over(parent)?);
    let mut children = Vec::new();
    while at < end {
        if children.len() == CHILDREN_MAX {
            return Err(broken());
        }
        let child = element(file, at, end)?;
        at = passed_over(&child)?;
        children.push(child);
    }
    Ok(children)
}

/// Returns the end of an element. Those that are not entered say where they end.
fn passed_over(element: &Element) -> Result<usize, MediaError> {
    match element.has_size {
        true => Ok(element.content.end),
        false => Err(broken()),
    }
}

/// Returns an integer of variable length without its marker, and the bytes behind it.
fn integer(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let first = *bytes.first()?;
    let len = first.leading_zeros() as usize + 1;
    let (integer, rest) = bytes.split_at_checked(len)?;
    let marked = integer
        .iter()
        .try_fold(0u64, |value, byte| Some(value.checked_mul(1 << 8)? | u64::from(*byte)))?;
    // Eight bytes at most.
    (len <= 8).then(|| (marked & ((1 << (7 * len)) - 1), rest))
}

/// Returns the content of an element that is a number.
fn unsigned(content: &[u8]) -> u64 {
    content.iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// Returns the content of an element that is a number with a sign.
fn signed(content: &[u8]) -> i64 {
    let bits = 8 * content.len().min(8) as u32;
    match bits {
        0 => 0,
        bits => (unsigned(content) << (64 - bits)) as i64 >> (64 - bits),
    }
}

/// Returns the packets of a block's content, by its kind of lacing. `None` if it is broken.
fn laced(content: &[u8], kind: u8) -> Option<Vec<&[u8]>> {
    const XIPH: u8 = 1;
    const EQUAL: u8 = 2;
    if kind == 0 {
        return Some(vec![content]);
    }
    let (others, mut rest) = content.split_first()?;
    let others = usize::from(*others);
    let mut sizes: Vec<usize> = Vec::with_capacity(others);
    match kind {
        XIPH => {
            for _ in 0..others {
                let whole = rest.iter().take_while(|byte| **byte == 255).count();
                let last = usize::from(*rest.get(whole)?);
                sizes.push(255 * whole + last);
                rest = &rest[whole + 1..];
            }
        }
        EQUAL if rest.len().is_multiple_of(others + 1) => {
            sizes.resize(others, rest.len() / (others + 1));
        }
        EQUAL => return None,
        // The first size, and then the differences.
        _ => {
            for index in 0..others {
                let before = rest.len();
                let (value, behind) = integer(rest)?;
                let bits = 7 * (before - behind.len()) as u32;
                let value = i64::try_from(value).ok()?;
                let size = match index.checked_sub(1) {
                    None => value,
                    Some(last) => {
                        let last = i64::try_from(*sizes.get(last)?).ok()?;
                        last.checked_add(value - ((1 << (bits - 1)) - 1))?
                    }
                };
                sizes.push(usize::try_from(size).ok()?);
                rest = behind;
            }
        }
    }
    let mut packets = Vec::with_capacity(others + 1);
    for size in sizes {
        let (packet, behind) = rest.split_at_checked(size)?;
        packets.push(packet);
        rest = behind;
    }
    packets.push(rest);
    Some(packets)
}

fn broken() -> MediaError {
    invalid("the file in WebM or Matroska is broken")
}

fn truncated() -> MediaError {
    invalid("the file is truncated")
}

#[cfg(test)]
#[path = "webm_tests.rs"]
mod tests;
