//! JPEG files, with the pixels of libjpeg-turbo to the bit: PIL decodes with it, in its default
//! form (`JDCT_ISLOW`, fancy upsampling). The decoders of other crates round otherwise.
//!
//! Sequential and progressive files with Huffman codes and 8 bits are read. For all others, and for
//! damaged ones, there is no picture here, and the caller asks another decoder.

mod bits;
mod color;
mod frame;
mod idct;
mod scan;

use bits::{Bits, Huffman};
use color::Space;
use frame::Frame;
use scan::{Member, Scan};

/// The most scans of a file. A progressive one has about ten, and each may visit all blocks.
const SCANS_MAX: usize = 64;
/// Tables of a kind.
const TABLES: usize = 4;
/// The place of a coefficient in its block, by its place in the file.
const ZIGZAG: [usize; 64] = [
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20,
    13, 6, 7, 14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59,
    52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
];

/// A decoded picture.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Picture {
    pub(super) width: u32,
    pub(super) height: u32,
    /// `[height, width, 3]`.
    pub(super) rgb: Vec<u8>,
}

/// The facts about a picture before it is decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// Its width and its height.
    pub(super) size: (u32, u32),
    /// The memory that [`decoded`] takes, with the pixels.
    pub(super) working_bytes: usize,
}

/// Returns the pixels of a file. `None` if this decoder does not read it.
pub(super) fn decoded(file: &[u8]) -> Option<Picture> {
    let mut reader = Reader::new(file)?;
    while reader.step(true)? {}
    let space = reader.space()?;
    let mut frame = reader.frame?;
    frame.finish()?;
    let [width, height] = frame.size;
    let rgb = color::rgb(&frame, space)?;
    Some(Picture { width: width as u32, height: height as u32, rgb })
}

/// Returns the header of a file. `None` if this decoder does not read the file.
pub(super) fn header(file: &[u8]) -> Option<Header> {
    let mut reader = Reader::new(file)?;
    while reader.frame.is_none() {
        if !reader.step(false)? {
            return None;
        }
    }
    let frame = reader.frame?;
    let [width, height] = frame.size.map(|side| side as u32);
    Some(Header { size: (width, height), working_bytes: frame.num_bytes() })
}

/// Reads the segments of a file in order.
struct Reader<'a> {
    file: &'a [u8],
    at: usize,
    quantization: [Option<[u16; 64]>; TABLES],
    dc: [Option<Huffman>; TABLES],
    ac: [Option<Huffman>; TABLES],
    /// Units between two restarts; zero if there is none.
    restart: usize,
    is_jfif: bool,
    /// The transform of Adobe's segment.
    adobe: Option<u8>,
    frame: Option<Frame>,
    num_scans: usize,
}

impl<'a> Reader<'a> {
    fn new(file: &'a [u8]) -> Option<Self> {
        file.starts_with(&[0xff, 0xd8]).then(|| Self {
            file,
            at: 2,
            quantization: [None; TABLES],
            dc: Default::default(),
            ac: Default::default(),
            restart: 0,
            is_jfif: false,
            adobe: None,
            frame: None,
            num_scans: 0,
        })
    }

    /// Reads a segment. Returns whether another one follows. A frame gets memory if `allocates`.
    fn step(&mut self, allocates: bool) -> Option<bool> {
        let marker = self.marker()?;
        match marker {
            0xd9 => return Some(false),
            // Markers without content.
            0x01 | 0xd0..=0xd7 => return Some(true),
            // Lossless, hierarchical and arithmetic files, and a height behind the first scan.
            0xc3 | 0xc5..=0xcf | 0xdc => return None,
            _ => {}
        }
        let body = self.segment()?;
        match marker {
            0xc0..=0xc2 if self.frame.is_none() => {
                self.frame = Some(Frame::read(body, marker == 0xc2, allocates)?);
            }
            0xc0..=0xc2 => return None,
            0xc4 => self.huffman(body)?,
            0xda => self.scan(body)?,
            0xdb => self.quantization(body)?,
            0xdd => self.restart = usize::from(u16::from_be_bytes(body.try_into().ok()?)),
            0xe0 => self.is_jfif |= body.len() >= 12 && body.starts_with(b"JFIF\0"),
            0xee if body.len() >= 12 && body.starts_with(b"Adobe") => self.adobe = Some(body[11]),
            _ => {}
        }
        Some(true)
    }

    /// Returns the next marker, and moves behind it.
    fn marker(&mut self) -> Option<u8> {
        loop {
            let [mark, kind] = *self.file.get(self.at..)?.first_chunk::<2>()?;
            match (mark, kind) {
                (0xff, 0xff) => self.at += 1,
                (0xff, 1..) => {
                    self.at += 2;
                    return Some(kind);
                }
                _ => self.at += 1,
            }
        }
    }

    /// Returns the content of a segment, and moves behind it.
    fn segment(&mut self) -> Option<&'a [u8]> {
        let len = usize::from(u16::from_be_bytes(*self.file.get(self.at..)?.first_chunk::<2>()?));
        let body = self.file.get(self.at + 2..self.at + len)?;
        self.at += len;
        Some(body)
    }

    fn quantization(&mut self, mut body: &[u8]) -> Option<()> {
        while let [kind, values @ ..] = body {
            let table = self.quantization.get_mut(usize::from(kind & 15))?;
            let is_wide = match kind >> 4 {
                0 => false,
                1 => true,
                _ => return None,
            };
            let mut factors = [0; 64];
            let len = if is_wide { 128 } else { 64 };
            let of_table = values.get(..len)?;
            for (index, place) in ZIGZAG.into_iter().enumerate() {
                factors[place] = match is_wide {
                    true => u16::from_be_bytes([of_table[2 * index], of_table[2 * index + 1]]),
                    false => u16::from(of_table[index]),
                };
            }
            *table = Some(factors);
            body = &values[len..];
        }
        Some(())
    }

    fn huffman(&mut self, mut body: &[u8]) -> Option<()> {
        while let [kind, rest @ ..] = body {
            let counts = rest.first_chunk::<16>()?;
            let len: usize = counts.iter().map(|count| usize::from(*count)).sum();
            let symbols = rest.get(16..16 + len)?;
            let tables = match kind >> 4 {
                0 => &mut self.dc,
                1 => &mut self.ac,
                _ => return None,
            };
            *tables.get_mut(usize::from(kind & 15))? = Some(Huffman::new(counts, symbols)?);
            body = &rest[16 + len..];
        }
        Some(())
    }

    /// Reads a scan with its entropy-coded data.
    fn scan(&mut self, body: &[u8]) -> Option<()> {
        self.num_scans += 1;
        if self.num_scans > SCANS_MAX {
            return None;
        }
        let frame = self.frame.as_mut()?;
        let (count, rest) = body.split_first()?;
        let (members, rest) = rest.split_at_checked(2 * usize::from(*count))?;
        let [first, last, bits] = *rest.first_chunk::<3>()?;
        let member = |[id, tables]: &[u8; 2]| {
            let component = frame.components.iter().position(|component| component.id == *id)?;
            let dc = self.dc.get(usize::from(tables >> 4))?.as_ref();
            Some(Member { component, dc, ac: self.ac.get(usize::from(tables & 15))?.as_ref() })
        };
        let members: Option<Vec<Member<'_>>> =
            members.as_chunks::<2>().0.iter().map(member).collect();
        let scan = Scan {
            members: members?,
            first: usize::from(first),
            last: usize::from(last),
            high: bits >> 4,
            low: bits & 15,
            restart: self.restart,
        };
        scan.check(frame)?;
        for member in &scan.members {
            let component = &mut frame.components[member.component];
            if component.quantization.is_none() {
                // Later tables are for other components.
                component.quantization = self.quantization[component.table];
                component.quantization?;
            }
        }
        let mut data = Bits::new(self.file, self.at);
        scan.decode(frame, &mut data)?;
        self.at = data.place();
        Some(())
    }

    /// Returns the colours of the file's components.
    fn space(&self) -> Option<Space> {
        let components = &self.frame.as_ref()?.components;
        let ids: Vec<u8> = components.iter().map(|component| component.id).collect();
        Some(match (&*ids, self.adobe) {
            ([_], _) => Space::Grey,
            ([_, _, _], _) if self.is_jfif => Space::YCbCr,
            ([_, _, _], Some(0)) => Space::Rgb,
            ([_, _, _], Some(_)) => Space::YCbCr,
            (b"RGB", None) => Space::Rgb,
            ([_, _, _], None) => Space::YCbCr,
            ([_, _, _, _], None | Some(0)) => Space::Cmyk,
            ([_, _, _, _], Some(_)) => Space::Ycck,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests;
