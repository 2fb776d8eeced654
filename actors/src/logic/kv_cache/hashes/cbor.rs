//! The part of canonical CBOR (RFC 8949 §4.2) that block hashes need: integers, byte and text
//! strings, arrays, null. Every head has the shortest form, so equal values give equal bytes.

const UNSIGNED: u8 = 0 << 5;
const NEGATIVE: u8 = 1 << 5;
const BYTES: u8 = 2 << 5;
const TEXT: u8 = 3 << 5;
const ARRAY: u8 = 4 << 5;
const NULL: u8 = 0xf6;

/// A growing CBOR document.
#[derive(Debug, Default)]
pub(super) struct Cbor {
    bytes: Vec<u8>,
}

impl Cbor {
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self { bytes: Vec::with_capacity(capacity) }
    }

    pub(super) fn unsigned(&mut self, value: u64) {
        self.head(UNSIGNED, value);
    }

    pub(super) fn integer(&mut self, value: i64) {
        match u64::try_from(value) {
            Ok(value) => self.head(UNSIGNED, value),
            // A negative number n is written as -1 - n, which is its bitwise complement.
            Err(_) => self.head(NEGATIVE, !value as u64),
        }
    }

    pub(super) fn bytes(&mut self, value: &[u8]) {
        self.head(BYTES, value.len() as u64);
        self.bytes.extend_from_slice(value);
    }

    pub(super) fn text(&mut self, value: &str) {
        self.head(TEXT, value.len() as u64);
        self.bytes.extend_from_slice(value.as_bytes());
    }

    /// Begins an array. The next `len` items are its elements.
    pub(super) fn array(&mut self, len: usize) {
        self.head(ARRAY, len as u64);
    }

    pub(super) fn null(&mut self) {
        self.bytes.push(NULL);
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn head(&mut self, major: u8, value: u64) {
        let be = value.to_be_bytes();
        match value {
            0..24 => self.bytes.push(major | be[7]),
            24..0x100 => self.bytes.extend([major | 24, be[7]]),
            0x100..0x1_0000 => self.bytes.extend([major | 25, be[6], be[7]]),
            0x1_0000..0x1_0000_0000 => {
                self.bytes.push(major | 26);
                self.bytes.extend_from_slice(&be[4..]);
            }
            _ => {
                self.bytes.push(major | 27);
                self.bytes.extend_from_slice(&be);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn integer(value: i64) -> Vec<u8> {
        let mut cbor = Cbor::default();
        cbor.integer(value);
        cbor.bytes
    }

    /// Checks examples of RFC 8949, appendix A.
    #[test]
    fn integers_take_the_shortest_form() {
        assert_eq!(integer(0), [0x00]);
        assert_eq!(integer(23), [0x17]);
        assert_eq!(integer(24), [0x18, 0x18]);
        assert_eq!(integer(1000), [0x19, 0x03, 0xe8]);
        assert_eq!(integer(1_000_000), [0x1a, 0x00, 0x0f, 0x42, 0x40]);
        assert_eq!(
            integer(1_000_000_000_000),
            [0x1b, 0x00, 0x00, 0x00, 0xe8, 0xd4, 0xa5, 0x10, 0x00]
        );
        assert_eq!(integer(-1), [0x20]);
        assert_eq!(integer(-100), [0x38, 0x63]);
        assert_eq!(integer(-1000), [0x39, 0x03, 0xe7]);
    }

    #[test]
    fn strings_and_arrays_carry_their_length() {
        let mut cbor = Cbor::default();
        cbor.array(3);
        cbor.text("IETF");
        cbor.bytes(&[1, 2, 3, 4]);
        cbor.null();
        let expected = [0x83, 0x64, 0x49, 0x45, 0x54, 0x46, 0x44, 1, 2, 3, 4, 0xf6];
        assert_eq!(cbor.as_bytes(), expected);
    }
}
