//! The product of few rows. A cube makes some chunks of a panel for a tile of rows, from all
//! inputs. It has one unit for each chunk and block of inputs. When all blocks are summed, they are
//! added in their order.
//!
//! A step of few rows waits for memory, so its loads must be in flight together: those of a unit
//! are issued before the first is used, and small weights are cut in more cubes.

use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::cut::Cut;
use super::pack::{factor_at, output_at};
use super::product::{ProductLayout, layout};
use super::{CubeWeight, PANEL};
use crate::WeightVector;
use crate::activation::cube::silu_gated;
use crate::cube::{Rows, Vec4, WordFormat, Words, buffer, widen, words_buffer};

/// Most rows of a tile.
pub(super) const TILE_MAX: usize = 8;

/// Most sums of a unit, in vectors: with more, and what else it needs, registers would not do.
const SUMS_MAX: usize = 16;

/// Returns the most rows of a tile. A chunk of a narrow format has more outputs, so fewer rows
/// have room.
pub(super) const fn tile_max(format: WordFormat) -> usize {
    let rows = SUMS_MAX / format.per_word();
    if rows < TILE_MAX { rows } else { TILE_MAX }
}

/// Returns the chunks of a weight that a unit loads before it uses the first.
const fn loads(format: WordFormat, tile: usize) -> usize {
    if tile * format.per_word() < SUMS_MAX { 8 } else { 4 }
}

/// Writes `x Wᵀ + b`. With `swiglu` the first half of the outputs gates the second instead.
pub(super) fn launch(
    x: &Rows,
    weight: &CubeWeight,
    bias: Option<&WeightVector>,
    y: &CubeTensor,
    swiglu: bool,
) {
    let tile = x.rows.next_power_of_two().min(tile_max(weight.format));
    let tiles = x.rows.div_ceil(tile);
    let of_cube = if swiglu { 2 } else { 1 };
    let panels = weight.panels() / of_cube;
    let cut = Cut::new(weight, tiles * panels, of_cube);
    // Neighbouring cubes share their weights, so only one of them reads these from memory.
    let columns = (panels * cut.cubes_of_panel(weight.format)) as u32;
    let cubes = CubeCount::Static(tiles as u32, columns, 1);
    // SAFETY: the caller checked rows, inputs and outputs against the buffers.
    unsafe {
        skinny_kernel::launch_unchecked(
            x.client(),
            cubes,
            CubeDim::new_1d(cut.units() as u32),
            x.lanes,
            x.arg(),
            words_buffer(&weight.words),
            weight.factors().into(),
            bias.map(|bias| words_buffer(bias.cube())).into(),
            buffer(y),
            layout(x, weight),
            x.rows,
            tile,
            cut,
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
    #[comptime] cut: Cut,
) {
    let first = CUBE_POS_X as usize * tile;
    let mut x_at = Array::<usize>::new(tile);
    #[unroll]
    for r in 0..tile {
        // Rows of a last tile beyond the end repeat the last row.
        x_at[r] = min(first + r, rows - 1) * layout.x_stride;
    }
    let vectors = comptime!(cut.shared_vectors(layout.format, tile));
    let mut sums = Shared::<[Vec4]>::new_slice(vectors);
    let column = CUBE_POS_Y as usize;
    let count = rows - first;
    let matrix = 0usize.runtime();
    multiply_few::<N>(
        x, weight, factors, bias, y, &mut sums, &layout, &x_at, first, count, matrix, column, tile,
        cut,
    );
}

/// Writes the products of a tile's first `count` rows with a part of a matrix. The rows begin at
/// vectors `x_at` of x, and their results at row `first` of y. `column` counts the cubes of all
/// panels.
#[cube]
pub(super) fn multiply_few<N: Size>(
    x: &[Vector<f32, N>],
    weight: &[Words],
    factors: ComptimeOption<&[Vec4]>,
    bias: ComptimeOption<&[f32]>,
    y: &mut [f32],
    sums: &mut Shared<[Vec4]>,
    layout: &ProductLayout,
    x_at: &Array<usize>,
    first: usize,
    count: usize,
    matrix: usize,
    column: usize,
    #[comptime] tile: usize,
    #[comptime] cut: Cut,
) {
    let format = comptime!(layout.format);
    let cubes_of_panel = comptime!(cut.cubes_of_panel(format));
    let parts = comptime!(format.per_word());
    // Vectors of a row's results in one panel, and of all its sums in shared memory.
    let of_panel = comptime!(cut.chunks * parts);
    let of_row = comptime!(cut.vectors(format));
    let rows_at_once = comptime!(cut.rows_at_once(format, tile));
    let outputs = layout.outputs;
    let width = outputs / comptime!(cut.panels);
    let (chunks, slices) = comptime!((cut.chunks, cut.slices));
    let (panel, first_chunk) = (column / cubes_of_panel, column % cubes_of_panel * chunks);

    let unit = UNIT_POS as usize;
    let (chunk, slice) = (unit % chunks, unit / chunks);
    let of_pair = slice / slices;
    let from = matrix * outputs.div_ceil(PANEL) + panel + of_pair * (width / PANEL);
    let acc = block_sums::<N>(
        x,
        weight,
        factors,
        layout,
        x_at,
        from,
        first_chunk + chunk,
        slice % slices,
        tile,
    );
    let blocks = layout.inputs.div_ceil(layout.block);
    #[unroll]
    for pass in 0..comptime!(tile / rows_at_once) {
        #[unroll]
        for r in 0..rows_at_once {
            #[unroll]
            for h in 0..parts {
                let sum = acc[comptime!(pass * rows_at_once + r) * parts + h];
                sums[r * of_row + unit * parts + h] = sum;
            }
        }
        sync_cube();
        let mut at = unit;
        while at < comptime!(rows_at_once * of_panel) {
            let (r, vector) = (at / of_panel, at % of_panel);
            let row = pass * rows_at_once + r;
            let mut result = sum_of_blocks(sums, r * of_row + vector, of_panel, blocks);
            if comptime!(cut.panels == 2) {
                let at_second = r * of_row + slices * of_panel + vector;
                let second = sum_of_blocks(sums, at_second, of_panel, blocks);
                result = silu_gated(result, second);
            }
            if row < count {
                #[unroll]
                for lane in 0..4usize {
                    let place = (first_chunk * parts + vector) * 4 + lane;
                    let output = panel * PANEL + output_at(place, format);
                    if output < width {
                        let bias: ComptimeOption<f32> =
                            bias.map(|bias| bias[matrix * outputs + output]);
                        let bias = bias.unwrap_or_else(|| 0.0f32.runtime());
                        y[(first + row) * width + output] = result.extract(lane) + bias;
                    }
                }
            }
            at += comptime!(cut.units());
        }
        sync_cube();
    }
}

/// Adds the sums of all blocks in their order, from zero. They begin at `first`, `stride` apart.
#[cube]
fn sum_of_blocks(
    sums: &mut Shared<[Vec4]>,
    first: usize,
    #[comptime] stride: usize,
    blocks: usize,
) -> Vec4 {
    let mut total = Vec4::new(0.0f32);
    let mut block = 0usize;
    // Loads that are in flight together.
    while block + 8 <= blocks {
        let mut values = Array::<Vec4>::new(8usize);
        #[unroll]
        for i in 0..8usize {
            values[i] = sums[first + (block + i) * stride];
        }
        #[unroll]
        for i in 0..8usize {
            total += values[i];
        }
        block += 8;
    }
    while block < blocks {
        total += sums[first + block * stride];
        block += 1;
    }
    total
}

/// The sums and factors that a unit has for a block.
#[derive(CubeType)]
struct Block {
    /// Sums, in order of row and part of the chunk.
    acc: Array<Vec4>,
    /// The factors of the group in [`Self::group`], where the weight has integers.
    scales: Array<Vec4>,
    offsets: Array<Vec4>,
    group: Array<usize>,
}

/// Returns the products of a tile of rows with a chunk of a panel, over one block of inputs. They
/// are in order of row and part of the chunk, and zero where the block is behind the last.
#[cube]
fn block_sums<N: Size>(
    x: &[Vector<f32, N>],
    weight: &[Words],
    factors: ComptimeOption<&[Vec4]>,
    layout: &ProductLayout,
    x_at: &Array<usize>,
    panel: usize,
    chunk: usize,
    index: usize,
    #[comptime] tile: usize,
) -> Array<Vec4> {
    let parts = comptime!(layout.format.per_word());
    let mut block = Block {
        acc: Array::<Vec4>::new(comptime!(tile * parts)),
        scales: Array::<Vec4>::new(parts),
        offsets: Array::<Vec4>::new(parts),
        group: Array::<usize>::new(1usize),
    };
    #[unroll]
    for i in 0..comptime!(tile * parts) {
        block.acc[i] = Vector::new(0.0f32);
    }
    // The group of no input.
    block.group[0] = layout.inputs;
    // All of these count vectors of x.
    let mut at = index * layout.block / N::value();
    let end = min((index + 1) * layout.block, layout.inputs) / N::value();
    let together = comptime!(loads(layout.format, tile) / layout.lanes);
    while at + together <= end {
        add_inputs::<N>(
            x, weight, factors, layout, x_at, panel, chunk, at, &mut block, tile, together,
        );
        at += together;
    }
    if comptime!(together > 1) {
        while at < end {
            add_inputs::<N>(
                x, weight, factors, layout, x_at, panel, chunk, at, &mut block, tile, 1usize,
            );
            at += 1;
        }
    }
    block.acc
}

/// Adds the products of `vectors` vectors of inputs, of which the first is `at`.
#[cube]
fn add_inputs<N: Size>(
    x: &[Vector<f32, N>],
    weight: &[Words],
    factors: ComptimeOption<&[Vec4]>,
    layout: &ProductLayout,
    x_at: &Array<usize>,
    panel: usize,
    chunk: usize,
    at: usize,
    block: &mut Block,
    #[comptime] tile: usize,
    #[comptime] vectors: usize,
) {
    let format = comptime!(layout.format);
    let chunks = comptime!(PANEL / format.per_chunk());
    let parts = comptime!(format.per_word());
    let lanes = comptime!(layout.lanes);
    let inputs = layout.inputs;
    let from = (panel * inputs + at * lanes) * chunks + chunk;
    let mut words = Array::<Words>::new(comptime!(vectors * lanes));
    #[unroll]
    for i in 0..comptime!(vectors * lanes) {
        words[i] = weight[from + comptime!(i * chunks)];
    }
    let mut values = Array::<Vector<f32, N>>::new(comptime!(vectors * tile));
    #[unroll]
    for v in 0..vectors {
        #[unroll]
        for r in 0..tile {
            values[comptime!(v * tile + r)] = x[x_at[r] + at + v];
        }
    }
    #[unroll]
    for v in 0..vectors {
        if comptime!(format.is_coded()) {
            let group = (at + v) * lanes / layout.group_size;
            if group != block.group[0] {
                block.group[0] = group;
                let scale = factor_at(panel, group, inputs, layout.group_size) + chunk * parts;
                #[unroll]
                for h in 0..parts {
                    block.scales[h] = factors.unwrap()[scale + h];
                    block.offsets[h] = factors.unwrap()[scale + h + comptime!(PANEL / 4)];
                }
            }
        }
        #[unroll]
        for i in 0..lanes {
            #[unroll]
            for h in 0..parts {
                let mut w = widen(words[comptime!(v * lanes + i)], h, format);
                if comptime!(format.is_coded()) {
                    w = fma(w, block.scales[h], block.offsets[h]);
                }
                #[unroll]
                for r in 0..tile {
                    let input = Vec4::new(values[comptime!(v * tile + r)].extract(i));
                    let of_row = comptime!(r * parts + h);
                    block.acc[of_row] = fma(input, w, block.acc[of_row]);
                }
            }
        }
    }
}
