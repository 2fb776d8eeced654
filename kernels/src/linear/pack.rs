//! The CPU's layout of a weight matrix, the same for every instruction set.
//!
//! Outputs are cut in panels of [`PANEL`]; a panel holds all its inputs in order, so a product with
//! one row is one forward stream. f32: `[panel][in][PANEL]`. bf16: `[panel][in / 2][PANEL][2]`,
//! pairs of neighbouring inputs side by side, which is the operand of `vdpbf16ps` and of AMX's
//! tiles; inputs are rounded up to whole tiles. Missing outputs and inputs are zeros.

use rayon::prelude::*;

use crate::aligned::AlignedBuf;
use crate::{KernelError, WeightDtype, WeightView};

/// Outputs of a panel.
pub(crate) const PANEL: usize = 32;

/// Inputs summed from zero before they are added to the result: 128 keep a panel's block within half
/// of L1 (16 KiB in f32), and bound the rounding error of the running sum. Even.
pub(crate) const K_BLOCK: usize = 128;

/// Inputs of a bf16 panel are a multiple of this: those of a tile.
const BF16_INPUTS_MULTIPLE: usize = 32;

/// The packed elements.
#[derive(Debug)]
pub(crate) enum PackedWeight {
    /// `[panel][in][PANEL]`
    F32(AlignedBuf<f32>),
    /// `[panel][in / 2][PANEL][2]`, bfloat16 bits
    Bf16(AlignedBuf<u16>),
}

impl PackedWeight {
    /// Packs row-major parts stacked along the outputs; lengths are checked by the caller.
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
                let mut data = AlignedBuf::zeroed(panels * panel_len_f32(in_features), WHAT)?;
                fill(
                    &mut data,
                    panel_len_f32(in_features),
                    &rows,
                    in_features,
                    |part, at, k, j| (k * PANEL + j, parts[part].f32_at(at)),
                );
                Self::F32(data)
            }
            WeightDtype::Bf16 => {
                let mut data = AlignedBuf::zeroed(panels * panel_len_bf16(in_features), WHAT)?;
                fill(
                    &mut data,
                    panel_len_bf16(in_features),
                    &rows,
                    in_features,
                    |part, at, k, j| {
                        ((k / 2 * PANEL + j) * 2 + k % 2, parts[part].bf16_at(at).to_bits())
                    },
                );
                Self::Bf16(data)
            }
        })
    }
}

/// Elements of one f32 panel.
pub(crate) fn panel_len_f32(in_features: usize) -> usize {
    in_features * PANEL
}

/// Elements of one bf16 panel.
pub(crate) fn panel_len_bf16(in_features: usize) -> usize {
    in_features.next_multiple_of(BF16_INPUTS_MULTIPLE) * PANEL
}

/// For each output row: the part that holds it and where it starts there.
fn stacked_rows(parts: &[WeightView<'_>], in_features: usize) -> Vec<(usize, usize)> {
    parts
        .iter()
        .enumerate()
        .flat_map(|(i, part)| (0..part.len() / in_features).map(move |r| (i, r * in_features)))
        .collect()
}

/// Fills each panel; `place(part, index, k, j)` gives offset in the panel and value.
fn fill<T: bytemuck::Pod + Send>(
    data: &mut [T],
    panel_len: usize,
    rows: &[(usize, usize)],
    in_features: usize,
    place: impl Fn(usize, usize, usize, usize) -> (usize, T) + Sync,
) {
    data.par_chunks_mut(panel_len).zip(rows.par_chunks(PANEL)).for_each(|(panel, rows)| {
        for (j, (part, start)) in rows.iter().enumerate() {
            for k in 0..in_features {
                let (offset, value) = place(*part, start + k, k, j);
                panel[offset] = value;
            }
        }
    });
}
