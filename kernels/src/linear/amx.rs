//! The bf16 product on AMX. Every number of rows takes this path, so that a row's sums have one
//! order. Inputs are added in order, as the tile instruction adds them.

use super::cpu::panels_per_piece;
use super::output::Output;
use crate::simd::amx::{ActivationTile, Amx, TILE_INPUTS, TILE_ROWS, Tiles, TotalTile, WeightTile};
use crate::simd::bf16_bits;
use crate::threads::for_each_piece;
use crate::workspace::Scratch;

/// Tiles of inputs whose weights stay in L1 while the rows pass over them: 32 KiB.
const BLOCK: usize = 16;

/// Panels that share a pass over many rows. The pass's block of activations then stays in L2.
const PANELS: usize = 4;

/// Computes `x Wᵀ` for row-major x `[rows, inputs]` and weights packed as bf16.
pub(super) fn product(amx: Amx, x: &[f32], inputs: usize, weights: &[u16], output: &Output<'_>) {
    let rows = x.len() / inputs;
    let steps = inputs.div_ceil(TILE_INPUTS);
    let weights: &[WeightTile] = bytemuck::cast_slice(weights);
    let tiles = activation_tiles(x, inputs, steps);
    let per_piece = panels_per_piece(steps * size_of::<WeightTile>()).max(match rows {
        0..=TILE_ROWS => 1,
        _ => PANELS,
    });
    let panels = output.panels();
    for_each_piece(panels.div_ceil(per_piece), x.len() * output.outputs, |piece| {
        let panels = piece * per_piece..panels.min((piece + 1) * per_piece);
        let weights = &weights[panels.start * steps..panels.end * steps];
        let totals = panel_totals(&amx.tiles(), &tiles, weights, steps);
        let row_tiles = rows.div_ceil(TILE_ROWS);
        for (totals, panel) in totals.chunks_exact(row_tiles.max(1)).zip(panels) {
            output.write(panel, 0, &totals.as_flattened()[..rows]);
        }
    });
}

/// Returns the rows rounded to bf16, as `[row tile][step]`; missing rows and inputs are 0.
fn activation_tiles(x: &[f32], inputs: usize, steps: usize) -> Scratch<ActivationTile> {
    let rows = x.len() / inputs;
    let mut tiles = Scratch::<ActivationTile>::zeroed(rows.div_ceil(TILE_ROWS) * steps);
    for (r, row) in x.chunks_exact(inputs).enumerate() {
        let tiles = &mut tiles[r / TILE_ROWS * steps..][..steps];
        for (tile, x) in tiles.iter_mut().zip(row.chunks(TILE_INPUTS)) {
            for (bits, x) in tile[r % TILE_ROWS].iter_mut().zip(x) {
                *bits = bf16_bits(*x);
            }
        }
    }
    tiles
}

/// Returns the totals of some panels, as `[panel][row tile]`.
fn panel_totals(
    tiles: &Tiles,
    x: &[ActivationTile],
    weights: &[WeightTile],
    steps: usize,
) -> Scratch<TotalTile> {
    let row_tiles = x.len() / steps;
    let panels = weights.len() / steps;
    let mut totals = Scratch::<TotalTile>::zeroed(panels * row_tiles);
    // A pass over few rows keeps its totals in tiles to the end. The sums are the same.
    let block = if row_tiles <= 2 { steps } else { BLOCK };
    for first in (0..steps).step_by(block) {
        let inputs = first..steps.min(first + block);
        for (panel, totals) in
            weights.chunks_exact(steps).zip(totals.chunks_exact_mut(row_tiles.max(1)))
        {
            for (pair, totals) in totals.chunks_mut(2).enumerate() {
                let rows = |t: usize| {
                    &x[(2 * pair + t).min(row_tiles - 1) * steps..][..steps][inputs.clone()]
                };
                tiles.multiply([rows(0), rows(1)], &panel[inputs.clone()], totals);
            }
        }
    }
    totals
}
