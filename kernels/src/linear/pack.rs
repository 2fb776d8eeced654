//! The CPU's layout of a weight matrix, the same for every instruction set.
//!
//! Outputs are cut in panels of [`PANEL`]. A panel holds all its inputs in order, so a product with
//! one row reads the weight once from front to back. The layout of f32 is `[panel][in][PANEL]`. The
//! layout of bf16 is `[panel][in / 2][PANEL][2]`. There, pairs of neighbouring inputs lie side by
//! side, as `vdpbf16ps` and AMX's tiles read them. The number of inputs is rounded up to whole
//! tiles. Missing outputs and inputs are zeros.

use super::fill::{fill_bf16, fill_f32, stacked_rows};
use crate::aligned::{AlignedBuf, WeightBuf};
use crate::{KernelError, WeightDtype, WeightView};

/// Number of outputs in a panel.
pub(crate) const PANEL: usize = 32;

/// Number of inputs that are summed from zero before their sum is added to the result. With 128, a
/// panel's block takes at most half of L1 (16 KiB in f32), and the rounding error of the sum is
/// bounded. It must be even, because bf16 inputs lie in pairs.
pub(crate) const K_BLOCK: usize = 128;

/// The number of inputs of a bf16 panel is a multiple of this: the inputs of a tile.
const BF16_INPUTS_MULTIPLE: usize = 32;

/// The packed elements.
#[derive(Debug)]
pub(crate) enum PackedWeight {
    /// `[panel][in][PANEL]`
    F32(WeightBuf<f32>),
    /// `[panel][in / 2][PANEL][2]`, bfloat16 bits
    Bf16(WeightBuf<u16>),
}

impl PackedWeight {
    /// Packs row-major parts stacked along the outputs. The caller checks lengths.
    pub(crate) fn new(
        parts: &[WeightView<'_>],
        in_features: usize,
        dtype: WeightDtype,
    ) -> Result<Self, KernelError> {
        const WHAT: &str = "linear weight";
        let rows = stacked_rows(parts, in_features);
        let panels = rows.len().div_ceil(PANEL);
        Ok(match dtype {
            WeightDtype::F32 => {
                let panel_len = panel_len_f32(in_features);
                let mut data = AlignedBuf::zeroed(panels * panel_len, WHAT)?;
                fill_f32(&mut data, panel_len, &rows);
                Self::F32(data.into())
            }
            WeightDtype::F16 => return Err(KernelError::not_on_cpu(WHAT, dtype.name())),
            WeightDtype::Bf16 => {
                let panel_len = panel_len_bf16(in_features);
                let mut data = AlignedBuf::zeroed(panels * panel_len, WHAT)?;
                fill_bf16(&mut data, panel_len, &rows);
                Self::Bf16(data.into())
            }
        })
    }

    /// Copies output row `o`, widened to f32, to `row`, `[in_features]`.
    ///
    /// # Panics
    /// If there is no such row.
    pub(crate) fn copy_row(&self, o: usize, row: &mut [f32]) {
        let (panel, column) = (o / PANEL, o % PANEL);
        match self {
            Self::F32(data) => {
                let len = panel_len_f32(row.len());
                let steps = data[panel * len..][..len].as_chunks::<PANEL>().0;
                for (x, step) in row.iter_mut().zip(steps) {
                    *x = step[column];
                }
            }
            Self::Bf16(data) => {
                let len = panel_len_bf16(row.len());
                let pairs: &[[u16; 2]] = data[panel * len..][..len].as_chunks().0;
                for (x, step) in row.chunks_mut(2).zip(pairs.as_chunks::<PANEL>().0) {
                    for (x, bits) in x.iter_mut().zip(step[column]) {
                        *x = f32::from_bits(u32::from(bits) << 16);
                    }
                }
            }
        }
    }
}

/// Returns the number of elements of one f32 panel.
pub(crate) fn panel_len_f32(in_features: usize) -> usize {
    in_features * PANEL
}

/// Returns the number of elements of one bf16 panel.
pub(crate) fn panel_len_bf16(in_features: usize) -> usize {
    in_features.next_multiple_of(BF16_INPUTS_MULTIPLE) * PANEL
}
