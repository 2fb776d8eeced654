//! Numbers of every format, packed in 32-bit words. A kernel loads only vectors of four words, so a
//! device need not support the format.
//!
//! Four words make a chunk of `4 · per_word` neighbouring numbers. Part `h` of the chunk is its
//! numbers `4 h .. 4 h + 4`. They are the `h`th fields of the four words, counted from the lowest
//! bits. One operation on all four words therefore widens a part.

use cubecl::prelude::*;
use half::{bf16, f16};

use crate::WeightDtype;

/// Four words, loaded together.
pub(crate) type Words = Vector<u32, Const<4>>;

/// Four numbers: the widest vector that every device loads at once.
pub(crate) type Vec4 = Vector<f32, Const<4>>;

/// Four neighbouring 16-bit numbers.
pub(crate) type FourHalves = Vector<u32, Const<2>>;

/// Number of words in a chunk.
pub(crate) const CHUNK_WORDS: usize = 4;

/// The fields of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum WordFormat {
    /// One IEEE binary32.
    F32,
    /// Two IEEE binary16.
    F16,
    /// Two bfloat16.
    Bf16,
    /// Four integers, `-128..=127`.
    Int8,
    /// Four integers, `0..=255`.
    Uint8,
    /// Eight integers, `0..=15`.
    Uint4,
}

impl WordFormat {
    const ALL: [Self; 6] = [Self::F32, Self::F16, Self::Bf16, Self::Int8, Self::Uint8, Self::Uint4];

    /// Returns the format's name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Int8 => "int8",
            Self::Uint8 => "uint8",
            Self::Uint4 => "uint4",
        }
    }

    /// Returns the format of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }

    /// Returns how many numbers a word holds. A chunk has as many parts.
    pub(crate) const fn per_word(self) -> usize {
        match self {
            Self::F32 => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::Int8 | Self::Uint8 => 4,
            Self::Uint4 => 8,
        }
    }

    /// Returns how many numbers a chunk holds.
    pub(crate) const fn per_chunk(self) -> usize {
        CHUNK_WORDS * self.per_word()
    }

    /// Returns whether numbers are floats of 16 bits.
    pub(crate) const fn is_half(self) -> bool {
        matches!(self, Self::F16 | Self::Bf16)
    }

    /// Returns whether numbers are codes, which need a scale and an offset.
    pub(crate) const fn is_coded(self) -> bool {
        matches!(self, Self::Uint8 | Self::Uint4)
    }

    /// Returns the place of number `i` in a run of chunks: the index of its word, and the number of
    /// bits below it in the word.
    pub(crate) const fn place(self, i: usize) -> (usize, usize) {
        let (chunk, i) = (i / self.per_chunk(), i % self.per_chunk());
        (chunk * CHUNK_WORDS + i % CHUNK_WORDS, i / CHUNK_WORDS * (32 / self.per_word()))
    }

    /// Returns the field that encodes `x`. In a format of integers, `x` must be whole and in range.
    pub(crate) fn field(self, x: f32) -> u32 {
        match self {
            Self::F32 => x.to_bits(),
            Self::F16 => u32::from(f16::from_f32(x).to_bits()),
            Self::Bf16 => u32::from(bf16::from_f32(x).to_bits()),
            Self::Int8 => u32::from((x as i8).cast_unsigned()),
            Self::Uint8 | Self::Uint4 => x as u32,
        }
    }
}

impl From<WeightDtype> for WordFormat {
    fn from(dtype: WeightDtype) -> Self {
        match dtype {
            WeightDtype::F32 => Self::F32,
            WeightDtype::F16 => Self::F16,
            WeightDtype::Bf16 => Self::Bf16,
        }
    }
}

/// Returns part `h` of a chunk, widened exactly.
#[cube]
pub(crate) fn widen(words: Words, #[comptime] h: usize, #[comptime] format: WordFormat) -> Vec4 {
    match comptime!(format) {
        WordFormat::F32 => Vector::reinterpret(words),
        WordFormat::F16 => {
            let mut numbers = Vec4::new(0.0f32);
            #[unroll]
            for i in 0..4usize {
                numbers.insert(i, of_f16(words.extract(i) >> comptime!(16 * h as u32)));
            }
            numbers
        }
        WordFormat::Bf16 => {
            if comptime!(h == 0) {
                Vector::reinterpret(words << Words::new(16u32))
            } else {
                Vector::reinterpret(words & Words::new(0xffff_0000u32))
            }
        }
        WordFormat::Int8 => {
            let shift = comptime!(24 - 8 * h as u32);
            let signed = Vector::<i32, Const<4>>::reinterpret(words << Words::new(shift));
            Vector::cast_from(signed >> Vector::new(24i32))
        }
        WordFormat::Uint8 => {
            let shift = comptime!(8 * h as u32);
            Vector::cast_from((words >> Words::new(shift)) & Words::new(0xffu32))
        }
        WordFormat::Uint4 => {
            let shift = comptime!(4 * h as u32);
            Vector::cast_from((words >> Words::new(shift)) & Words::new(0xfu32))
        }
    }
}

/// Returns a chunk whose part `h` encodes `numbers`. Its other fields are zero. Formats of 16 bits
/// round to nearest, ties to even. In a format of integers, the numbers must be whole and in range.
#[cube]
pub(crate) fn encode(numbers: Vec4, #[comptime] h: usize, #[comptime] format: WordFormat) -> Words {
    match comptime!(format) {
        WordFormat::F32 => Words::reinterpret(numbers),
        WordFormat::F16 | WordFormat::Bf16 => {
            let mut words = Words::new(0u32);
            #[unroll]
            for i in 0..4usize {
                let number = numbers.extract(i);
                let bits = if comptime!(format == WordFormat::F16) {
                    f16_bits(number)
                } else {
                    bf16_bits(number)
                };
                words.insert(i, bits << comptime!(16 * h as u32));
            }
            words
        }
        _ => {
            let (bits, mask) =
                comptime!(if format == WordFormat::Uint4 { (4, 15u32) } else { (8, 255u32) });
            let codes = Words::reinterpret(Vector::<i32, Const<4>>::cast_from(numbers));
            (codes & Words::new(mask)) << Words::new(comptime!(bits * h as u32))
        }
    }
}

/// Returns the numbers as four neighbours of 16 bits, rounded to nearest, ties to even.
#[cube]
pub(crate) fn halves(numbers: Vec4, #[comptime] format: WordFormat) -> FourHalves {
    let mut words = FourHalves::new(0u32);
    #[unroll]
    for i in 0..2usize {
        let (low, high) = (numbers.extract(2 * i), numbers.extract(2 * i + 1));
        let pair = if comptime!(format == WordFormat::F16) {
            f16_bits(low) | (f16_bits(high) << 16u32)
        } else {
            bf16_bits(low) | (bf16_bits(high) << 16u32)
        };
        words.insert(i, pair);
    }
    words
}

/// Returns the bfloat16 nearest to `x`, ties to even. A NaN stays a NaN.
#[cube]
fn bf16_bits(x: f32) -> u32 {
    let bits = u32::reinterpret(x);
    let is_nan = (bits & 0x7fff_ffffu32) > 0x7f80_0000u32;
    let rounded = (bits + 0x7fffu32 + ((bits >> 16u32) & 1u32)) >> 16u32;
    select(is_nan, (bits >> 16u32) | 0x40u32, rounded)
}

/// Returns the exact value of the IEEE binary16 in the lower 16 bits. The function computes in
/// integers as far as possible, because a device may have no f16, and may flush small floats to
/// zero.
#[cube]
fn of_f16(bits: u32) -> f32 {
    let magnitude = bits & 0x7fffu32;
    // The exponent grows by 112, or by 224 for infinities and NaN.
    let rebias = select(magnitude < 0x7c00u32, 0x3800_0000u32, 0x7000_0000u32);
    let normal = f32::reinterpret((magnitude << 13u32) + rebias);
    let subnormal = f32::cast_from(magnitude) * comptime!(2.0f32.powi(-24));
    let size = select(magnitude < 0x400u32, subnormal, normal);
    f32::reinterpret(u32::reinterpret(size) | ((bits & 0x8000u32) << 16u32))
}

/// Returns the IEEE binary16 nearest to `x`, ties to even. A NaN stays a NaN. A number that is too
/// large becomes infinite.
#[cube]
fn f16_bits(x: f32) -> u32 {
    let bits = u32::reinterpret(x);
    let magnitude = bits & 0x7fff_ffffu32;
    let normal = (magnitude + 0xfffu32 + ((magnitude >> 13u32) & 1u32) - 0x3800_0000u32) >> 13u32;
    // In an f32 between 0.5 and 1, the last place is 2⁻²⁴: the smallest binary16. The sum is
    // therefore rounded to it.
    let sum = f32::reinterpret(magnitude) + 0.5f32;
    let subnormal = u32::reinterpret(sum) - 0x3f00_0000u32;
    let finite = select(magnitude < 0x3880_0000u32, subnormal, normal);
    let large = select(magnitude > 0x7f80_0000u32, 0x7e00u32, 0x7c00u32);
    let size = select(magnitude < 0x477f_f000u32, finite, large);
    size | ((bits >> 16u32) & 0x8000u32)
}
