//! Transposes the rows of a checkpoint to panels, in blocks that fit the processor's cache.

use rayon::prelude::*;

use super::pack::PANEL;
use crate::WeightView;

/// Number of steps of a panel that are transposed at a time: a cache line of each row.
const BLOCK: usize = 16;

/// One output row of a stack of parts.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    view: WeightView<'a>,
    start: usize,
    len: usize,
}

/// Returns the rows of `parts`, each a row-major `[out_i, in_features]`, one below the other.
pub(super) fn stacked_rows<'a>(parts: &[WeightView<'a>], in_features: usize) -> Vec<Row<'a>> {
    let rows = parts.iter().flat_map(|view| {
        (0..view.len() / in_features).map(|r| Row {
            view: *view,
            start: r * in_features,
            len: in_features,
        })
    });
    rows.collect()
}

impl Row<'_> {
    /// Writes all elements to `out`, widened exactly.
    #[cfg(feature = "gpu")]
    pub(super) fn widen_into(&self, out: &mut [f32]) {
        self.view.widen_into(self.start, out);
    }

    /// Writes the elements from `first` on to `out`, then zeros.
    fn f32s(&self, first: usize, out: &mut [f32; BLOCK]) {
        let count = self.len.saturating_sub(first).min(BLOCK);
        let at = self.start + first;
        match self.view {
            WeightView::F32(data) => out[..count].copy_from_slice(&data[at..at + count]),
            view => {
                for (i, x) in out[..count].iter_mut().enumerate() {
                    *x = view.f32_at(at + i);
                }
            }
        }
        out[count..].fill(0.0);
    }

    /// Writes the pairs of elements from pair `first` on as bfloat16 bits, the first in the low
    /// half.
    fn bf16_pairs(&self, first: usize, out: &mut [u32; BLOCK]) {
        let count = self.len.saturating_sub(2 * first).min(2 * BLOCK);
        let at = self.start + 2 * first;
        let mut bits = [0u16; 2 * BLOCK];
        match self.view {
            WeightView::Bf16(data) => {
                bits[..count].copy_from_slice(bytemuck::cast_slice(&data[at..at + count]));
            }
            view => {
                for (i, x) in bits[..count].iter_mut().enumerate() {
                    *x = view.bf16_at(at + i).to_bits();
                }
            }
        }
        for (pair, [low, high]) in out.iter_mut().zip(bits.as_chunks::<2>().0) {
            *pair = u32::from(*low) | u32::from(*high) << 16;
        }
    }
}

/// Fills panels `[panel][step][PANEL]` of f32.
pub(super) fn fill_f32(panels: &mut [f32], panel_len: usize, rows: &[Row<'_>]) {
    panels.par_chunks_mut(panel_len).zip(rows.par_chunks(PANEL)).for_each(|(panel, rows)| {
        transpose(panel, rows, 0.0, |row, first, out| row.f32s(first, out));
    });
}

/// Fills panels `[panel][step][PANEL][2]` of bfloat16 bits, aligned for their pairs.
pub(super) fn fill_bf16(panels: &mut [u16], panel_len: usize, rows: &[Row<'_>]) {
    panels.par_chunks_mut(panel_len).zip(rows.par_chunks(PANEL)).for_each(|(panel, rows)| {
        let panel: &mut [u32] = bytemuck::cast_slice_mut(panel);
        transpose(panel, rows, 0, |row, first, out| row.bf16_pairs(first, out));
    });
}

/// Writes `rows`, up to [`PANEL`] of them, as the columns of `panel`. `load` reads a block of a
/// row.
fn transpose<T: Copy>(
    panel: &mut [T],
    rows: &[Row<'_>],
    zero: T,
    load: impl Fn(&Row<'_>, usize, &mut [T; BLOCK]),
) {
    let mut tile = [[zero; BLOCK]; PANEL];
    for (block, steps) in panel.chunks_mut(BLOCK * PANEL).enumerate() {
        for (row, line) in rows.iter().zip(&mut tile) {
            load(row, block * BLOCK, line);
        }
        for (step, out) in steps.as_chunks_mut::<PANEL>().0.iter_mut().enumerate() {
            for (x, line) in out.iter_mut().zip(&tile) {
                *x = line[step];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use half::bf16;

    use super::*;
    use crate::aligned::AlignedBuf;

    /// Compares each element with the offset that the layout gives it.
    #[test]
    fn every_element_lands_where_the_layout_says() {
        for (outputs, inputs) in [(1usize, 1usize), (33, 31), (70, 64), (32, 97)] {
            let values: Vec<f32> = (0..outputs * inputs).map(|i| (i % 509) as f32 - 99.0).collect();
            let brains: Vec<bf16> = values.iter().map(|x| bf16::from_f32(*x)).collect();
            let panels = outputs.div_ceil(PANEL);
            let cut = outputs / 2 * inputs;
            let len = inputs * PANEL;
            let mut packed = vec![9.0f32; panels * len];
            let parts = [WeightView::F32(&values[..cut]), WeightView::F32(&values[cut..])];
            let rows = stacked_rows(&parts, inputs);
            fill_f32(&mut packed, len, &rows);
            let at = |o: usize, i: usize| packed[o / PANEL * len + i * PANEL + o % PANEL];
            for o in 0..outputs {
                (0..inputs).for_each(|i| assert_eq!(at(o, i), values[o * inputs + i]));
            }
            let len = inputs.next_multiple_of(32) * PANEL;
            for view in [WeightView::F32(&values), WeightView::Bf16(&brains)] {
                let mut packed = AlignedBuf::<u16>::zeroed(panels * len, "test").unwrap();
                packed.fill(9);
                fill_bf16(&mut packed, len, &stacked_rows(&[view], inputs));
                for o in 0..panels * PANEL {
                    for i in 0..inputs.next_multiple_of(32) {
                        let pair = o / PANEL * len + (i / 2 * PANEL + o % PANEL) * 2;
                        let is_there = o < outputs && i < inputs;
                        let expected = if is_there { brains[o * inputs + i].to_bits() } else { 0 };
                        assert_eq!(packed[pair + i % 2], expected, "{o} {i}");
                    }
                }
            }
        }
    }
}
