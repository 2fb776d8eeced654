//! The layout of each block format, as data and a decoder.
//!
//! | type | block | bytes | element |
//! |---|---|---|---|
//! | Q8_0 | 32 | d f16, q i8 × 32 | `d · q` |
//! | Q4_0 | 32 | d f16, q u4 × 32 (low halves first) | `d · (q - 8)` |
//! | Q4_1 | 32 | d, m f16, q u4 × 32 | `d · q + m` |
//! | Q5_0 | 32 | d f16, high bits, low 4 bits | `d · (q - 16)` |
//! | Q5_1 | 32 | d, m f16, high bits, low 4 bits | `d · q + m` |
//! | Q2_K | 256 | (scale, min) u4 × 16, q u2 × 256, d, dmin f16 | `d · scale · q - dmin · min` |
//! | Q3_K | 256 | high bits, low 2 bits, scale u6 × 16, d f16 | `d · (scale - 32) · (q - 4)` |
//! | Q4_K | 256 | d, dmin f16, (scale, min) u6 × 8, q u4 × 256 | `d · scale · q - dmin · min` |
//! | Q5_K | 256 | as Q4_K, with high bits before q | `d · scale · q - dmin · min` |
//! | Q6_K | 256 | low 4 bits, high 2 bits, scale i8 × 16, d f16 | `d · scale · (q - 32)` |
//! | IQ4_NL | 32 | d f16, q u4 × 32 | `d · value[q]` |
//! | IQ4_XS | 256 | d f16, scale u6 × 8, q u4 × 256 | `d · (scale - 32) · value[q]` |
//! | MXFP4 | 32 | exponent u8, q E2M1 × 32 (low halves first) | `2^(exponent - 127) · q` |
//!
//! The groups of Q2_K, Q3_K and Q6_K have 16 elements, and all others 32.

use half::f16;

use super::blocks::{BlockFormat, CodeKind, OffsetKind};
use crate::weights::quantized::e8m0;

/// Every format that is read.
pub(super) const FORMATS: &[BlockFormat] =
    &[Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, MXFP4];

/// The values of IQ4's codes (`kvalues_iq4nl` of ggml).
const IQ4_VALUES: [i8; 16] =
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

const Q8_0: BlockFormat = BlockFormat {
    name: "Q8_0",
    block_elements: 32,
    block_bytes: 34,
    group_size: 32,
    codes: CodeKind::I8,
    offsets: OffsetKind::None,
    decode: |block, groups| {
        groups.scales[0] = half(block, 0);
        groups.codes.copy_from_slice(&block[2..]);
    },
};

const Q4_0: BlockFormat = BlockFormat {
    name: "Q4_0",
    block_elements: 32,
    block_bytes: 18,
    group_size: 32,
    codes: CodeKind::U4,
    offsets: OffsetKind::ZeroPoint(8),
    decode: |block, groups| {
        groups.scales[0] = half(block, 0);
        let (low, high) = groups.codes.split_at_mut(8);
        split_nibbles(&block[2..], low, high);
    },
};

const Q4_K: BlockFormat = BlockFormat {
    name: "Q4_K",
    block_elements: 256,
    block_bytes: 144,
    group_size: 32,
    codes: CodeKind::U4,
    offsets: OffsetKind::Values,
    decode: |block, groups| {
        let (d, dmin) = (half(block, 0), half(block, 2));
        for j in 0..8 {
            let (scale, min) = six_bit_pair(&block[4..16], j);
            groups.scales[j] = d * f32::from(scale);
            groups.offsets[j] = -(dmin * f32::from(min));
        }
        for (q, codes) in block[16..].chunks(32).zip(groups.codes.chunks_mut(32)) {
            let (low, high) = codes.split_at_mut(16);
            split_nibbles(q, low, high);
        }
    },
};

const Q6_K: BlockFormat = BlockFormat {
    name: "Q6_K",
    block_elements: 256,
    block_bytes: 210,
    group_size: 16,
    codes: CodeKind::I8,
    offsets: OffsetKind::None,
    decode: |block, groups| {
        let d = half(block, 208);
        for (scale, &stored) in groups.scales.iter_mut().zip(&block[192..208]) {
            *scale = d * f32::from(stored.cast_signed());
        }
        let (low, high) = (&block[..128], &block[128..192]);
        for (i, code) in groups.codes.iter_mut().enumerate() {
            // Halves of 128, each of four quarters of 32 that share their bytes of high bits.
            let (part, quarter, l) = (i / 128, i % 128 / 32, i % 32);
            let low = low[64 * part + 32 * (quarter % 2) + l] >> (4 * (quarter / 2)) & 0x0F;
            let high = high[32 * part + l] >> (2 * quarter) & 3;
            *code = (low | high << 4).wrapping_sub(32);
        }
    },
};

const Q4_1: BlockFormat = BlockFormat {
    name: "Q4_1",
    block_elements: 32,
    block_bytes: 20,
    group_size: 32,
    codes: CodeKind::U4,
    offsets: OffsetKind::Values,
    decode: |block, groups| {
        groups.scales[0] = half(block, 0);
        groups.offsets[0] = half(block, 2);
        let (low, high) = groups.codes.split_at_mut(8);
        split_nibbles(&block[4..], low, high);
    },
};

const Q5_0: BlockFormat = BlockFormat {
    name: "Q5_0",
    block_elements: 32,
    block_bytes: 22,
    group_size: 32,
    codes: CodeKind::I8,
    offsets: OffsetKind::None,
    decode: |block, groups| {
        groups.scales[0] = half(block, 0);
        five_bits(&block[2..6], &block[6..], groups.codes);
        groups.codes.iter_mut().for_each(|code| *code = code.wrapping_sub(16));
    },
};

const Q5_1: BlockFormat = BlockFormat {
    name: "Q5_1",
    block_elements: 32,
    block_bytes: 24,
    group_size: 32,
    codes: CodeKind::I8,
    offsets: OffsetKind::Values,
    decode: |block, groups| {
        groups.scales[0] = half(block, 0);
        groups.offsets[0] = half(block, 2);
        five_bits(&block[4..8], &block[8..], groups.codes);
    },
};

const Q2_K: BlockFormat = BlockFormat {
    name: "Q2_K",
    block_elements: 256,
    block_bytes: 84,
    group_size: 16,
    codes: CodeKind::I8,
    offsets: OffsetKind::Values,
    decode: |block, groups| {
        let (d, dmin) = (half(block, 80), half(block, 82));
        for (j, packed) in block[..16].iter().enumerate() {
            groups.scales[j] = d * f32::from(packed & 0x0F);
            groups.offsets[j] = -(dmin * f32::from(packed >> 4));
        }
        for (i, code) in groups.codes.iter_mut().enumerate() {
            *code = two_bits(&block[16..80], i);
        }
    },
};

const Q3_K: BlockFormat = BlockFormat {
    name: "Q3_K",
    block_elements: 256,
    block_bytes: 110,
    group_size: 16,
    codes: CodeKind::I8,
    offsets: OffsetKind::None,
    decode: |block, groups| {
        let (d, packed) = (half(block, 108), &block[96..108]);
        for (j, scale) in groups.scales.iter_mut().enumerate() {
            let low = packed[j % 8] >> (4 * (j / 8)) & 0x0F;
            let high = packed[8 + j % 4] >> (2 * (j / 4)) & 3;
            *scale = d * (f32::from(low | high << 4) - 32.0);
        }
        for (i, code) in groups.codes.iter_mut().enumerate() {
            // A high bit of 0 means less 4.
            let high = block[i % 32] >> (i / 32) & 1;
            *code = (two_bits(&block[32..96], i) | high << 2).wrapping_sub(4);
        }
    },
};

const Q5_K: BlockFormat = BlockFormat {
    name: "Q5_K",
    block_elements: 256,
    block_bytes: 176,
    group_size: 32,
    codes: CodeKind::I8,
    offsets: OffsetKind::Values,
    decode: |block, groups| {
        let (d, dmin) = (half(block, 0), half(block, 2));
        for j in 0..8 {
            let (scale, min) = six_bit_pair(&block[4..16], j);
            groups.scales[j] = d * f32::from(scale);
            groups.offsets[j] = -(dmin * f32::from(min));
        }
        for (i, code) in groups.codes.iter_mut().enumerate() {
            let (group, l) = (i / 32, i % 32);
            let low = block[48 + 32 * (group / 2) + l] >> (4 * (group % 2)) & 0x0F;
            *code = low | (block[16 + l] >> group & 1) << 4;
        }
    },
};

const IQ4_NL: BlockFormat = BlockFormat {
    name: "IQ4_NL",
    block_elements: 32,
    block_bytes: 18,
    group_size: 32,
    codes: CodeKind::I8,
    offsets: OffsetKind::None,
    decode: |block, groups| {
        groups.scales[0] = half(block, 0);
        iq4_values(&block[2..], groups.codes);
    },
};

const IQ4_XS: BlockFormat = BlockFormat {
    name: "IQ4_XS",
    block_elements: 256,
    block_bytes: 136,
    group_size: 32,
    codes: CodeKind::I8,
    offsets: OffsetKind::None,
    decode: |block, groups| {
        let (d, high) = (half(block, 0), u16::from_le_bytes([block[2], block[3]]));
        for (j, scale) in groups.scales.iter_mut().enumerate() {
            let low = block[4 + j / 2] >> (4 * (j % 2)) & 0x0F;
            let high = (high >> (2 * j) & 3) as u8;
            *scale = d * (f32::from(low | high << 4) - 32.0);
        }
        for (stored, codes) in block[8..].chunks_exact(16).zip(groups.codes.chunks_exact_mut(32)) {
            iq4_values(stored, codes);
        }
    },
};

const MXFP4: BlockFormat = BlockFormat {
    name: "MXFP4",
    block_elements: 32,
    block_bytes: 17,
    group_size: 32,
    codes: CodeKind::E2M1,
    offsets: OffsetKind::None,
    decode: |block, groups| {
        groups.scales[0] = e8m0(block[0]);
        let (low, high) = groups.codes.split_at_mut(8);
        split_nibbles(&block[1..], low, high);
    },
};

fn half(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// Splits bytes of two codes. The lower codes belong to the first half of a run and the higher ones
/// to the second. Each half becomes bytes of two neighbouring codes.
fn split_nibbles(stored: &[u8], low: &mut [u8], high: &mut [u8]) {
    for ((pair, low), high) in stored.chunks_exact(2).zip(low).zip(high) {
        *low = pair[0] & 0x0F | pair[1] << 4;
        *high = pair[0] >> 4 | pair[1] & 0xF0;
    }
}

/// Returns scale and minimum `j` of eight, six bits each, from twelve bytes (`get_scale_min_k4`).
fn six_bit_pair(packed: &[u8], j: usize) -> (u8, u8) {
    if j < 4 {
        (packed[j] & 63, packed[j + 4] & 63)
    } else {
        let scale = packed[j + 4] & 0x0F | packed[j - 4] >> 6 << 4;
        (scale, packed[j + 4] >> 4 | packed[j] >> 6 << 4)
    }
}

/// Returns code `i` of 256 codes of two bits: 32 codes for each bit pair of 32 bytes.
fn two_bits(stored: &[u8], i: usize) -> u8 {
    stored[i / 128 * 32 + i % 32] >> (2 * (i % 128 / 32)) & 3
}

/// Writes 32 codes of five bits, whose high bits are apart.
fn five_bits(high: &[u8], low: &[u8], codes: &mut [u8]) {
    for (i, code) in codes.iter_mut().enumerate() {
        let low = low[i % 16] >> (4 * (i / 16)) & 0x0F;
        *code = low | (high[i / 8] >> (i % 8) & 1) << 4;
    }
}

/// Writes the values of 32 codes of IQ4.
fn iq4_values(stored: &[u8], codes: &mut [u8]) {
    for (i, code) in codes.iter_mut().enumerate() {
        let index = stored[i % 16] >> (4 * (i / 16)) & 0x0F;
        *code = IQ4_VALUES[usize::from(index)].cast_unsigned();
    }
}
