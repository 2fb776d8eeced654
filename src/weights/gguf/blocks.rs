//! The block formats of ggml as [`QuantizedMatrix`].
//!
//! Layouts are those of ggml-common.h, meanings those of `gguf.quants`. A block decodes to the same
//! f32, except for the sign of a zero: f16 scales times small integers are exact in f32.
//!
use playhouse_kernels::{Codes, KernelError, Offsets, QuantizedMatrix};
use rayon::prelude::*;

use super::formats::FORMATS;

/// One block format.
#[derive(Debug)]
pub(in crate::weights) struct BlockFormat {
    /// As ggml spells it.
    pub(super) name: &'static str,
    pub(super) block_elements: usize,
    pub(super) block_bytes: usize,
    /// Number of neighbouring elements that share a scale.
    pub(super) group_size: usize,
    pub(super) codes: CodeKind,
    pub(super) offsets: OffsetKind,
    pub(super) decode: fn(&[u8], &mut Groups<'_>),
}

/// The codes that a block decodes to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum CodeKind {
    /// Unsigned integers of four bits.
    U4,
    /// Signed integers of eight bits.
    I8,
    /// Floats of four bits.
    E2M1,
}

impl CodeKind {
    fn bits(self) -> usize {
        match self {
            Self::U4 | Self::E2M1 => 4,
            Self::I8 => 8,
        }
    }
}

/// The value of a code of 0.
#[derive(Debug, PartialEq)]
pub(super) enum OffsetKind {
    /// Zero.
    None,
    /// The negative of this many scales, in every group.
    ZeroPoint(i8),
    /// A number for each group.
    Values,
}

/// The destination of a decoded block. `offsets` is empty if the format has none.
pub(super) struct Groups<'a> {
    pub(super) codes: &'a mut [u8],
    pub(super) scales: &'a mut [f32],
    pub(super) offsets: &'a mut [f32],
}

impl BlockFormat {
    /// Returns the format that ggml calls `name`, if the engine reads it.
    pub(in crate::weights) fn from_name(name: &str) -> Option<&'static Self> {
        FORMATS.iter().find(|format| format.name == name)
    }

    /// Decodes `bytes`, the blocks of a matrix `[out, in]`. The caller has compared its size with
    /// the shape.
    pub(in crate::weights) fn decode(
        &self,
        bytes: &[u8],
        [out, inputs]: [usize; 2],
    ) -> Result<QuantizedMatrix, KernelError> {
        let (row_blocks, row_groups) = (inputs / self.block_elements, inputs / self.group_size);
        let (row_bytes, row_codes) =
            (row_blocks * self.block_bytes, inputs * self.codes.bits() / 8);
        let mut codes = vec![0; out * row_codes];
        let mut scales = vec![0.0; out * row_groups];
        let row_offsets = if self.offsets == OffsetKind::Values { row_groups } else { 0 };
        let mut offsets = vec![0.0; out * row_offsets];
        let rows = codes.par_chunks_mut(row_codes).zip(scales.par_chunks_mut(row_groups));
        // Without offsets, each row gets an empty slice.
        let offset_rows = offsets_by_row(&mut offsets, row_offsets, out);
        rows.zip(offset_rows).enumerate().for_each(|(row, ((codes, scales), offsets))| {
            let blocks = &bytes[row * row_bytes..(row + 1) * row_bytes];
            self.decode_row(blocks, Groups { codes, scales, offsets });
        });
        let codes = match self.codes {
            CodeKind::U4 => Codes::U4(codes),
            CodeKind::I8 => Codes::I8(codes.into_iter().map(u8::cast_signed).collect()),
            CodeKind::E2M1 => Codes::E2M1(codes),
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
        let block_codes = self.block_elements * self.codes.bits() / 8;
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
