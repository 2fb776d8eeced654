//! Floats of four bits, `E2M1` of the OCP Microscaling formats: 0, 0.5, 1, 1.5, 2, 3, 4 and 6, and
//! their negatives. The highest bit of a code is the sign.
//!
//! Twice such a number is an integer within `±12`. So a weight is a matrix of integers from 0 to 24
//! whose zero is 12, and half of each scale. Codes keep four bits in memory. They become integers
//! in registers.

use super::isa::CodeVector;

/// The integer that stands for zero.
pub(super) const ZERO: u8 = 12;

/// The part of a scale that belongs to one step of an integer.
pub(super) const STEP: f32 = 0.5;

/// The integer of each code.
pub(super) const INTEGERS: [u8; 16] = [12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0];

/// Returns the integers of the low and the high halves of bytes.
#[inline(always)]
pub(super) fn integers(pairs: &CodeVector) -> [CodeVector; 2] {
    let mut halves = [*pairs; 2];
    for code in &mut halves[0] {
        *code = integer(*code & 15);
    }
    for code in &mut halves[1] {
        *code = integer(*code >> 4);
    }
    halves
}

/// Returns the integer of a code, without a table, so that loops vectorise.
#[inline(always)]
fn integer(code: u8) -> u8 {
    let magnitude = code & 7;
    let twice = magnitude + magnitude.saturating_sub(4) + 2 * magnitude.saturating_sub(6);
    let sign = 0u8.wrapping_sub(code >> 3);
    ZERO.wrapping_add((twice ^ sign).wrapping_sub(sign))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantized::E2M1_VALUES;

    #[test]
    fn integers_stand_for_the_numbers_of_the_format() {
        for (code, value) in (0..16u8).zip(E2M1_VALUES) {
            let integer = integer(code);
            assert_eq!(integer, INTEGERS[usize::from(code)]);
            assert_eq!((f32::from(integer) - f32::from(ZERO)) * STEP, value, "code {code}");
        }
        let [low, high] = integers(&[0x2f; 64]);
        assert_eq!((low, high), ([0; 64], [14; 64]));
    }
}
