//! Entropy-coded data: bits, and symbols of Huffman codes.

/// Bits that are looked up at once.
const QUICK: usize = 9;

/// The symbols of a Huffman code.
pub(super) struct Huffman {
    /// The length and the symbol of each code of at most [`QUICK`] bits, by its first bits. The
    /// length is zero for longer codes.
    quick: Vec<(u8, u8)>,
    /// For each length, the number behind its last code, and its distance to the symbol's place.
    long: [(i32, i32); 17],
    symbols: Vec<u8>,
}

impl Huffman {
    /// Returns the code with `counts` codes of each length from one bit on. `None` if there are
    /// more codes than bits allow.
    pub(super) fn new(counts: &[u8; 16], symbols: &[u8]) -> Option<Self> {
        let mut quick = vec![(0, 0); 1 << QUICK];
        let mut long = [(0, 0); 17];
        let (mut code, mut place) = (0_i32, 0_usize);
        for ((len, count), of_len) in (1..).zip(counts).zip(&mut long[1..]) {
            let (first, count) = (code, usize::from(*count));
            for symbol in symbols.get(place..place + count)? {
                if len <= QUICK {
                    let shift = QUICK - len;
                    let from = (code as usize) << shift;
                    quick.get_mut(from..from + (1 << shift))?.fill((len as u8, *symbol));
                }
                code += 1;
            }
            // The code of ones alone is not used.
            if code > (1 << len) {
                return None;
            }
            *of_len = (code, place as i32 - first);
            place += count;
            code <<= 1;
        }
        Some(Self { quick, long, symbols: symbols.to_vec() })
    }

    /// Returns the symbol at the beginning of 16 bits, and the length of its code.
    fn symbol(&self, bits: u16) -> Option<(u8, u32)> {
        let (len, symbol) = self.quick[usize::from(bits) >> (16 - QUICK)];
        if len > 0 {
            return Some((symbol, u32::from(len)));
        }
        for (len, (end, distance)) in self.long.iter().enumerate().skip(QUICK + 1) {
            let code = i32::from(bits >> (16 - len));
            if code < *end {
                let symbol = self.symbols.get(usize::try_from(code + *distance).ok()?)?;
                return Some((*symbol, len as u32));
            }
        }
        None
    }
}

/// The data of a scan, up to its next marker.
pub(super) struct Bits<'a> {
    file: &'a [u8],
    at: usize,
    /// The next bits, from the highest on.
    buffer: u64,
    /// The number of bits in the buffer. All others are zero.
    count: u32,
}

impl<'a> Bits<'a> {
    /// Returns the data from the byte `at` of a file on.
    pub(super) fn new(file: &'a [u8], at: usize) -> Self {
        Self { file, at, buffer: 0, count: 0 }
    }

    /// Returns the place of the first byte that is not in the buffer.
    pub(super) fn place(&self) -> usize {
        self.at
    }

    /// Reads bytes into the buffer, as far as they belong to the data.
    fn fill(&mut self) {
        while self.count <= 56 {
            let byte = match self.file.get(self.at..) {
                Some([0xff, 0x00, ..]) => {
                    self.at += 2;
                    0xff
                }
                // A marker, or the end.
                Some([0xff, ..]) | Some([]) | None => return,
                Some([byte, ..]) => {
                    self.at += 1;
                    *byte
                }
            };
            self.buffer |= u64::from(byte) << (56 - self.count);
            self.count += 8;
        }
    }

    fn skip(&mut self, len: u32) -> Option<()> {
        self.count = self.count.checked_sub(len)?;
        self.buffer <<= len;
        Some(())
    }

    /// Returns the next symbol. `None` if there is none of this code.
    pub(super) fn symbol(&mut self, code: &Huffman) -> Option<u8> {
        if self.count < 16 {
            self.fill();
        }
        let (symbol, len) = code.symbol((self.buffer >> 48) as u16)?;
        self.skip(len)?;
        Some(symbol)
    }

    /// Returns the next `len` bits, at most 16. `None` if there are fewer.
    pub(super) fn take(&mut self, len: u32) -> Option<i32> {
        if len == 0 {
            return Some(0);
        }
        if self.count < len {
            self.fill();
        }
        let value = (self.buffer >> (64 - len)) as i32;
        self.skip(len)?;
        Some(value)
    }

    /// Returns the next bit.
    pub(super) fn bit(&mut self) -> Option<bool> {
        self.take(1).map(|bit| bit == 1)
    }

    /// Returns the number that `len` bits stand for. A first bit of zero means that it is negative.
    pub(super) fn number(&mut self, len: u32) -> Option<i32> {
        let value = self.take(len)?;
        let is_negative = len > 0 && value < 1 << (len - 1);
        Some(if is_negative { value - (1 << len) + 1 } else { value })
    }

    /// Moves behind the restart with the number `index`, which must follow.
    pub(super) fn restart(&mut self, index: usize) -> Option<()> {
        // Less than a byte is left of the data before a marker.
        if self.count >= 8 {
            return None;
        }
        while self.file.get(self.at..)?.starts_with(&[0xff, 0xff]) {
            self.at += 1;
        }
        match self.file.get(self.at..)? {
            [0xff, marker, ..] if usize::from(*marker) == 0xd0 + index % 8 => {
                *self = Self::new(self.file, self.at + 2);
                Some(())
            }
            _ => None,
        }
    }
}
