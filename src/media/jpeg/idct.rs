//! The inverse cosine transform of a block, in integers: libjpeg's `jidctint` (the algorithm of
//! Loeffler, Ligtenberg and Moschytz). Each direction has 13 bits behind the point, and two of them
//! stay between the directions.

use super::frame::SIDE;

/// Bits behind the point of the factors.
const BITS: u32 = 13;
/// Bits behind the point between the directions.
const KEPT: u32 = 2;

/// Returns the sums of eight coefficients, with [`BITS`] bits behind the point.
fn eight(c: [i64; SIDE]) -> [i64; SIDE] {
    let even = (c[2] + c[6]) * 4_433;
    let (low, high) = (even - c[6] * 15_137, even + c[2] * 6_270);
    let (sum, difference) = (short(c[0] + c[4]) << BITS, short(c[0] - c[4]) << BITS);
    let evens = [sum + high, difference + low, difference - low, sum - high];
    let (outer, inner) = (c[7] + c[1], c[5] + c[3]);
    let (third, fourth) = (short(c[7] + c[3]), short(c[5] + c[1]));
    let all = (third + fourth) * 9_633;
    let (outer, inner) = (outer * -7_373, inner * -20_995);
    let (third, fourth) = (all - third * 16_069, all - fourth * 3_196);
    let odds = [
        c[1] * 12_299 + outer + fourth,
        c[3] * 25_172 + inner + third,
        c[5] * 16_819 + inner + fourth,
        c[7] * 2_446 + outer + third,
    ];
    std::array::from_fn(|at| match at < 4 {
        true => evens[at] + odds[at],
        false => evens[7 - at] - odds[7 - at],
    })
}

/// Returns a sum with 16 bits, as in vector registers. It has more only in files that no picture
/// was made into.
fn short(sum: i64) -> i64 {
    i64::from(sum as i16)
}

/// Returns a number without its last `bits` bits, rounded.
fn rounded(number: i64, bits: u32) -> i64 {
    (number + (1 << (bits - 1))) >> bits
}

/// Returns the samples of a block with these coefficients and factors.
pub(super) fn samples(coefficients: &[i16; 64], factors: &[u16; 64]) -> [[u8; SIDE]; SIDE] {
    let coefficient =
        |place: usize| short(i64::from(coefficients[place]) * i64::from(factors[place]));
    let is_flat = coefficients[SIDE..].iter().all(|value| *value == 0);
    let mut columns = [[0; SIDE]; SIDE];
    for (x, column) in columns.iter_mut().enumerate() {
        let down: [i64; SIDE] = std::array::from_fn(|y| coefficient(y * SIDE + x));
        *column = match is_flat {
            true => [short(down[0] << KEPT); SIDE],
            false => eight(down)
                .map(|value| rounded(value, BITS - KEPT).clamp(i16::MIN.into(), i16::MAX.into())),
        };
    }
    std::array::from_fn(|y| {
        let across = eight(columns.map(|column| column[y]));
        across.map(|value| (rounded(value, BITS + KEPT + 3) + 128).clamp(0, 255) as u8)
    })
}
