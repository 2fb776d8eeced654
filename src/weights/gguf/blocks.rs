//! The block formats of ggml as [`QuantizedMatrix`].
//!
//! Layouts are those of ggml-common.h, meanings those of `gguf.quants`. A block decodes to the same
//! f32, except for the sign of a zero: f16 scales times small integers are exact in f32.
//!
//! | type | block | bytes | element |
//! |---|---|---|---|
//! | Q8_0 | 32 | d f16, q i8 × 32 | `d · q` |
//! | Q4_0 | 32 | d f16, q u4 × 32 (low halves first) | `d · (q - 8)` |
//! | Q4_K | 256 | d, dmin f16, (scale, min) u6 × 8, q u4 × 256 | `d · scale · q - dmin · min`, in eighths |
//! | Q6_K | 256 | low 4 bits, high 2 bits, scale i8 × 16, d f16 | `d · scale · (q - 32)`, in sixteenths |

use half::f16;
use playhouse_kernels::{Codes, KernelError, Offsets, QuantizedMatrix};
use rayon::prelude::*;

use super::rotary_rows::RowOrder;

/// One block format.
#[derive(Debug)]
pub(in crate::weights) struct BlockFormat {
    block_elements: usize,
    block_bytes: usize,
    /// Number of neighbouring elements that share a scale.
    group_size: usize,
    /// Bits of a code: 4, unsigned, or 8, signed.
    bits: usize,
    offsets: OffsetKind,
    decode: fn(&[u8], &mut Groups<'_>),
}

/// The value of a code of 0.
#[derive(Debug, PartialEq)]
enum OffsetKind {
    /// Zero.
    None,
    /// The negative of this many scales, in every group.
    ZeroPoint(i8),
    /// A number for each group.
    Values,
}

/// The destination of a decoded block. `offsets` is empty if the format has none.
struct Groups<'a> {
    codes: &'a mut [u8],
    scales: &'a mut [f32],
    offsets: &'a mut [f32],
}

const Q8_0: BlockFormat = BlockFormat {
    block_elements: 32,
    block_bytes: 34,
    group_size: 32,
    bits: 8,
    offsets: OffsetKind::None,
    decode: |block, groups| {
        groups.scales[0] = half(block, 0);
        groups.codes.copy_from_slice(&block[2..]);
    },
};

const Q4_0: BlockFormat = BlockFormat {
    block_elements: 32,
    block_bytes: 18,
    group_size: 32,
    bits: 4,
    offsets: OffsetKind::ZeroPoint(8),
    decode: |block, groups| {
        groups.scales[0] = half(block, 0);
        let (low, high) = groups.codes.split_at_mut(8);
        split_nibbles(&block[2..], low, high);
    },
};

const Q4_K: BlockFormat = BlockFormat {
    block_elements: 256,
    block_bytes: 144,
    group_size: 32,
    bits: 4,
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
    block_elements: 256,
    block_bytes: 210,
    group_size: 16,
    bits: 8,
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

impl BlockFormat {
    /// Returns the format that ggml calls `name`, if the engine reads it.
    pub(in crate::weights) fn from_name(name: &str) -> Option<&'static Self> {
        match name {
            "Q8_0" => Some(&Q8_0),
            "Q4_0" => Some(&Q4_0),
            "Q4_K" => Some(&Q4_K),
            "Q6_K" => Some(&Q6_K),
            _ => None,
        }
    }

    /// Decodes `bytes`, the blocks of a matrix `[out, in]`. The caller has compared its size with
    /// the shape.
    pub(in crate::weights) fn decode(
        &self,
        bytes: &[u8],
        [out, inputs]: [usize; 2],
        order: Option<RowOrder>,
    ) -> Result<QuantizedMatrix, KernelError> {
        let (row_blocks, row_groups) = (inputs / self.block_elements, inputs / self.group_size);
        let (row_bytes, row_codes) = (row_blocks * self.block_bytes, inputs * self.bits / 8);
        let mut codes = vec![0; out * row_codes];
        let mut scales = vec![0.0; out * row_groups];
        let row_offsets = if self.offsets == OffsetKind::Values { row_groups } else { 0 };
        let mut offsets = vec![0.0; out * row_offsets];
        let rows = codes.par_chunks_mut(row_codes).zip(scales.par_chunks_mut(row_groups));
        // Without offsets, each row gets an empty slice.
        let offset_rows = offsets_by_row(&mut offsets, row_offsets, out);
        rows.zip(offset_rows).enumerate().for_each(|(row, ((codes, scales), offsets))| {
            let stored_row = order.map_or(row, |order| order.stored_row(row));
            let blocks = &bytes[stored_row * row_bytes..(stored_row + 1) * row_bytes];
            self.decode_row(blocks, Groups { codes, scales, offsets });
        });
        let codes = match self.bits {
            4 => Codes::U4(codes),
            _ => Codes::I8(codes.into_iter().map(u8::cast_signed).collect()),
        };
        let offsets = match self.offsets {
            OffsetKind::None => Offsets::None,
            OffsetKind::ZeroPoint(zero_point) => {
                Offsets::ZeroPoints(vec![zero_point; scales.len()])
            }
            OffsetKind::Values => Offsets::Values(offsets),
        };
        QuantizedMatrix::new([out, inputs], self.group_size, codes, scales, offsets, None)
    }

    fn decode_row(&self, blocks: &[u8], row: Groups<'_>) {
        let block_codes = self.block_elements * self.bits / 8;
        let block_groups = self.block_elements / self.group_size;
        for (i, block) in blocks.chunks_exact(self.block_bytes).enumerate() {
            let groups = i * block_groups..(i + 1) * block_groups;
            let has_values = self.offsets == OffsetKind::Values;
            let offsets = if has_values { groups.clone() } else { 0..0 };
            (self.decode)(
                block,
                &mut Groups {
                    codes: &mut row.codes[i * block_codes..(i + 1) * block_codes],
                    scales: &mut row.scales[groups],
                    offsets: &mut row.offsets[offsets],
                },
            );
        }
    }
}

/// Returns the offsets of each of `rows` rows, `row_len` a row, which may be 0.
fn offsets_by_row(
    offsets: &mut [f32],
    row_len: usize,
    rows: usize,
) -> impl IndexedParallelIterator<Item = &mut [f32]> {
    let mut rest = offsets;
    let mut slices = Vec::with_capacity(rows);
    for _ in 0..rows {
        let (row, others) = std::mem::take(&mut rest).split_at_mut(row_len);
        slices.push(row);
        rest = others;
    }
    slices.into_par_iter()
}

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
