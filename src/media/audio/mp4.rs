//! The boxes of an MP4, M4A or QuickTime file (ISO 14496-12) that the decoder reads. Boxes of other
//! tracks, with videos and subtitles, and those with tags and pictures are renamed, so it passes
//! over them. It looks for each sample in the tables from their beginning, so the tables have a
//! bound.

use std::ops::Range;

/// The name of a box without content.
const FREE: [u8; 4] = *b"free";

/// Rows of tables that may be read to find all samples. An hour of AAC whose samples all have a
/// row of their own has fewer.
const ROWS_MAX: u64 = 1 << 35;

/// Rows that stand for the search of a sample in one more fragment.
const ROWS_OF_A_FRAGMENT: u64 = 16;

/// Boxes that may be renamed.
const PATCHES_MAX: usize = 1024;

/// The bytes before the content of a box, and of one whose size has 64 bits.
const HEAD: usize = 8;
const LARGE_HEAD: usize = 16;

/// Bytes of version and flags.
const VERSION: usize = 4;

/// A box.
#[derive(Debug)]
struct Part {
    name: [u8; 4],
    /// The place of its name.
    at: usize,
    content: Range<usize>,
}

/// The changes that a file needs.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Places of the file with their bytes.
    pub(super) patches: Vec<(usize, [u8; 4])>,
    /// Rows of tables that are read to find all samples.
    rows: u64,
    num_fragments: u64,
}

impl Plan {
    /// Returns the changes of a file, if it is an MP4 file.
    pub(super) fn of(file: &[u8]) -> Option<Self> {
        if !is_mp4(file) {
            return None;
        }
        let mut plan = Self::default();
        for part in parts(file, 0..file.len()) {
            match &part.name {
                b"moov" => plan.movie(file, &part.content),
                b"moof" => plan.fragment(file, &part.content),
                b"meta" | b"udta" => plan.patches.push((part.at, FREE)),
                _ => {}
            }
        }
        Some(plan)
    }

    /// Returns whether the tables are so large that a search in them takes too long.
    pub(super) fn is_too_large(&self) -> bool {
        self.rows > ROWS_MAX || self.patches.len() > PATCHES_MAX
    }

    /// Keeps the first track of sound.
    fn movie(&mut self, file: &[u8], content: &Range<usize>) {
        let mut kept = None;
        for part in parts(file, content.clone()) {
            match &part.name {
                b"trak" if kept.is_none() && is_sound(file, &part.content) => {
                    kept = Some(track_id(file, &part.content));
                    self.count_times(file, &part.content);
                }
                b"trak" | b"meta" | b"udta" => self.patches.push((part.at, FREE)),
                _ => {}
            }
        }
        // The defaults of fragments must be those of the track that is kept.
        let extends = parts(file, content.clone()).filter(|part| part.name == *b"mvex");
        for part in extends.flat_map(|extends| parts(file, extends.content)) {
            let id = word(file, part.content.start + VERSION);
            if part.name == *b"trex" && Some(id) != kept {
                self.patches.push((part.at, FREE));
            }
        }
    }

    /// Counts the rows of the tables that say when the samples of a track are heard. Each sample is
    /// found by a search from the first row on.
    fn count_times(&mut self, file: &[u8], track: &Range<usize>) {
        let tables = find(file, track, b"mdia")
            .flat_map(|media| find(file, &media, b"minf"))
            .flat_map(|info| find(file, &info, b"stbl"))
            .flat_map(|table| find(file, &table, b"stts"));
        let (mut num_rows, mut num_samples) = (0u64, 0u64);
        for table in tables {
            let rows = file.get(table).and_then(|table| table.get(VERSION + 4..));
            for row in rows.unwrap_or_default().chunks_exact(8) {
                num_rows += 1;
                num_samples += u64::from(word(row, 0).unwrap_or_default());
            }
        }
        self.rows = self.rows.saturating_add(num_rows.saturating_mul(num_samples));
    }

    /// Counts the rows of a fragment. Each of its samples is found by a search in all of them.
    /// Before it is read, all fragments without samples are searched again.
    fn fragment(&mut self, file: &[u8], content: &Range<usize>) {
        let runs = find(file, content, b"traf").flat_map(|track| find(file, &track, b"trun"));
        let count = |run: Range<usize>| word(file, run.start + VERSION).map_or(0, u64::from);
        let num_samples: u64 = runs.map(count).sum();
        let num_rows = content.len() as u64 / 4;
        let searched = self.num_fragments * ROWS_OF_A_FRAGMENT;
        self.num_fragments += 1;
        self.rows =
            self.rows.saturating_add(num_rows.saturating_mul(num_samples)).saturating_add(searched);
    }
}

/// Returns whether a file begins as an MP4 file does.
fn is_mp4(file: &[u8]) -> bool {
    file.get(4..HEAD).is_some_and(|name| name == b"ftyp")
}

/// Returns the boxes in a part of a file, in order.
fn parts(file: &[u8], within: Range<usize>) -> impl Iterator<Item = Part> {
    let (mut at, end) = (within.start, within.end.min(file.len()));
    std::iter::from_fn(move || {
        let (size, name) = (word(file, at)?, file.get(at + 4..at + HEAD)?.first_chunk::<4>()?);
        let (head, len) = match size {
            // To the end.
            0 => (HEAD, end.saturating_sub(at)),
            1 => {
                let len = file.get(at + HEAD..)?.first_chunk::<8>()?;
                (LARGE_HEAD, usize::try_from(u64::from_be_bytes(*len)).ok()?)
            }
            size => (HEAD, size as usize),
        };
        let part_end = at.checked_add(len)?.min(end);
        if at >= end || len < head || part_end < at + head {
            return None;
        }
        let part = Part { name: *name, at: at + 4, content: at + head..part_end };
        at = part_end;
        Some(part)
    })
}

/// Returns the contents of the boxes `name` in a part of a file.
fn find<'f>(
    file: &'f [u8],
    within: &Range<usize>,
    name: &'static [u8; 4],
) -> impl Iterator<Item = Range<usize>> + use<'f> {
    parts(file, within.clone()).filter(move |part| part.name == *name).map(|part| part.content)
}

/// Returns whether a track is one of sound, by its handler.
fn is_sound(file: &[u8], track: &Range<usize>) -> bool {
    const HANDLER: usize = VERSION + 4;
    let mut handlers = find(file, track, b"mdia").flat_map(|media| find(file, &media, b"hdlr"));
    let is_of_sound = |content: Range<usize>| {
        let at = content.start + HANDLER;
        file.get(at..at + 4).is_some_and(|handler| handler == b"soun")
    };
    handlers.any(is_of_sound)
}

/// Returns the id of a track.
fn track_id(file: &[u8], track: &Range<usize>) -> Option<u32> {
    let header = find(file, track, b"tkhd").next()?;
    // Times have 32 bits, or 64 in version 1.
    let times = if *file.get(header.start)? == 1 { 16 } else { 8 };
    word(file, header.start + VERSION + times)
}

fn word(file: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*file.get(at..)?.first_chunk::<4>()?))
}

#[cfg(test)]
#[path = "mp4_tests.rs"]
mod tests;
