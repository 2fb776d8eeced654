//! The product of few rows. A cube makes a panel of results for a tile of rows. It has one unit for
//! each chunk of a panel and each slice of the inputs. Each slice sums blocks of inputs of its own.
//! After a round the blocks are added in their order.

use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::pack::{factor_at, output_at};
use super::product::{ProductLayout, layout};
use super::{CubeWeight, K_BLOCK, PANEL};
use crate::WeightVector;
use crate::activation::cube::silu_gated;
use crate::cube::{Rows, Vec4, WordFormat, Words, buffer, widen, words_buffer};

/// Most slices of the inputs at a time, each a block: the loads in flight.
const SLICES_MAX: usize = 32;

/// Most units of a cube: the number that every device takes.
const UNITS_MAX: usize = 256;

/// Most rows of a tile.
pub(super) const TILE_MAX: usize = 8;

/// Returns the units of a cube. A narrower format has longer chunks and gets fewer units, so that
/// it needs no more shared memory.
pub(super) const fn units(format: WordFormat) -> usize {
    let units = SLICES_MAX * PANEL / format.per_chunk();
    if units < UNITS_MAX { units } else { UNITS_MAX }
}

/// Writes `x Wᵀ + b`. With `swiglu` the first half of the outputs gates the second instead.
pub(super) fn launch(
    x: &Rows,
    weight: &CubeWeight,
    bias: Option<&WeightVector>,
    y: &CubeTensor,
    swiglu: bool,
) {
    let tile = x.rows.next_power_of_two().min(TILE_MAX);
    let panels = if swiglu { weight.panels() / 2 } else { weight.panels() };
    let cubes = CubeCount::Static(panels as u32, x.rows.div_ceil(tile) as u32, 1);
    // SAFETY: the caller checked rows, inputs and outputs against the buffers.
    unsafe {
        skinny_kernel::launch_unchecked(
            x.client(),
            cubes,
            CubeDim::new_1d(units(weight.format) as u32),
            x.lanes,
            x.arg(),
            words_buffer(&weight.words),
            weight.factors().into(),
            bias.map(|bias| words_buffer(bias.cube())).into(),
            buffer(y),
            layout(x, weight),
            x.rows,
            tile,
            swiglu,
        );
    }
}

#[cube(launch_unchecked)]
fn skinny_kernel<N: Size>(
    x: &[Vector<f32, N>],
    weight: &[Words],
    factors: ComptimeOption<&[Vec4]>,
    bias: ComptimeOption<&[f32]>,
    y: &mut [f32],
    layout: ProductLayout,
    rows: usize,
    #[comptime] tile: usize,
    #[comptime] swiglu: bool,
) {
    let format = comptime!(layout.format);
    let outputs = layout.outputs;
    let first_row = CUBE_POS_Y as usize * tile;
    let panel = CUBE_POS_X as usize;
    let unit = UNIT_POS as usize;
    let mut sums = Shared::<[f32]>::new_slice(comptime!(units(format) * format.per_chunk()));
    let mut x_at = Array::<usize>::new(tile);
    #[unroll]
    for r in 0..tile {
        // Rows of a last tile beyond the end repeat the last row.
        x_at[r] = min(first_row + r, rows - 1) * layout.x_stride;
    }
    let mut results = panel_sums::<N>(x, weight, factors, &mut sums, &layout, &x_at, panel, tile);
    let mut width = outputs;
    if swiglu {
        width = outputs / 2;
        let up = panel + width / PANEL;
        let ups = panel_sums::<N>(x, weight, factors, &mut sums, &layout, &x_at, up, tile);
        #[unroll]
        for r in 0..tile {
            let gate = Vector::<f32, Const<1>>::new(results[r]);
            results[r] = silu_gated(gate, Vector::new(ups[r])).extract(0usize);
        }
    }
    let output = panel * PANEL + output_at(unit, format);
    if unit < PANEL && output < width {
        let bias: ComptimeOption<f32> = bias.map(|bias| bias[output]);
        let bias = bias.unwrap_or_else(|| 0.0f32.runtime());
        #[unroll]
        for r in 0..tile {
            if first_row + r < rows {
                y[(first_row + r) * width + output] = results[r] + bias;
            }
        }
    }
}

/// Returns the products of a tile of rows with a panel. The rows begin at vectors `x_at` of x. Unit
/// `o < PANEL` gets those of the output at place `o`.
#[cube]
pub(super) fn panel_sums<N: Size>(
    x: &[Vector<f32, N>],
    weight: &[Words],
    factors: ComptimeOption<&[Vec4]>,
    sums: &mut Shared<[f32]>,
    layout: &ProductLayout,
    x_at: &Array<usize>,
    panel: usize,
    #[comptime] tile: usize,
) -> Array<f32> {
    let format = comptime!(layout.format);
    let chunks = comptime!(PANEL / format.per_chunk());
    let parts = comptime!(format.per_word());
    let slices = comptime!(units(format) / chunks);
    let unit = UNIT_POS as usize;
    let (chunk, slice) = (unit % chunks, unit / chunks);
    let blocks = layout.inputs.div_ceil(K_BLOCK);
    let mut totals = Array::<f32>::new(tile);
    #[unroll]
    for r in 0..tile {
        totals[r] = 0.0f32;
    }
    for round in 0..blocks.div_ceil(slices) {
        let first_block = round * slices;
        let block = first_block + slice;
        let acc = block_sums::<N>(x, weight, factors, layout, x_at, panel, chunk, block, tile);
        #[unroll]
        for r in 0..tile {
            #[unroll]
            for h in 0..parts {
                #[unroll]
                for lane in 0..4usize {
                    sums[(unit * parts + h) * 4 + lane] = acc[r * parts + h].extract(lane);
                }
            }
            sync_cube();
            if unit < PANEL {
                let mut total = totals[r];
                let in_round = min(slices, blocks - first_block);
                let mut s = 0usize;
                while s < in_round {
                    total += sums[s * PANEL + unit];
                    s += 1;
                }
                totals[r] = total;
            }
            sync_cube();
        }
    }
    totals
}

/// Returns the products of a tile of rows with a chunk of a panel, over one block of inputs. They
/// are in order of row and part of the chunk.
#[cube]
fn block_sums<N: Size>(
    x: &[Vector<f32, N>],
    weight: &[Words],
    factors: ComptimeOption<&[Vec4]>,
    layout: &ProductLayout,
    x_at: &Array<usize>,
    panel: usize,
    chunk: usize,
    block: usize,
    #[comptime] tile: usize,
) -> Array<Vec4> {
    let format = comptime!(layout.format);
    let chunks = comptime!(PANEL / format.per_chunk());
    let parts = comptime!(format.per_word());
    let inputs = layout.inputs;
    let mut acc = Array::<Vec4>::new(comptime!(tile * parts));
    #[unroll]
    for i in 0..comptime!(tile * parts) {
        acc[i] = Vector::new(0.0f32);
    }
    // Both count vectors of x.
    let begin = block * comptime!(K_BLOCK) / N::value();
    let end = min(begin + comptime!(K_BLOCK) / N::value(), inputs / N::value());
    let mut at = begin;
    let mut scales = Array::<Vec4>::new(parts);
    let mut offsets = Array::<Vec4>::new(parts);
    // The group of no input.
    let mut group = inputs;
    while at < end {
        if comptime!(format.is_coded()) {
            let of_input = at * N::value() / layout.group_size;
            if of_input != group {
                group = of_input;
                let scale = factor_at(panel, group, inputs, layout.group_size) + chunk * parts;
                #[unroll]
                for h in 0..parts {
                    scales[h] = factors.unwrap()[scale + h];
                    offsets[h] = factors.unwrap()[scale + h + comptime!(PANEL / 4)];
                }
            }
        }
        let from = (panel * inputs + at * N::value()) * chunks + chunk;
        let mut values = Array::<Vector<f32, N>>::new(tile);
        #[unroll]
        for r in 0..tile {
            values[r] = x[x_at[r] + at];
        }
        #[unroll]
        for i in 0..N::value() {
            let words = weight[from + i * chunks];
            #[unroll]
            for h in 0..parts {
                let mut w = widen(words, h, format);
                if comptime!(format.is_coded()) {
                    w = fma(w, scales[h], offsets[h]);
                }
                #[unroll]
                for r in 0..tile {
                    let input = Vec4::new(values[r].extract(i));
                    acc[r * parts + h] = fma(input, w, acc[r * parts + h]);
                }
            }
        }
        at += 1;
    }
    acc
}
