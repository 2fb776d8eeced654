//! The product of many rows. A cube makes a tile of [`ROWS`] rows and a panel of outputs. Each of
//! its units keeps four by four results in registers. Inputs come through shared memory.

use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::pack::{factor_at, output_at};
use super::product::{ProductLayout, TileRows, layout, source_of};
use super::{BLOCK_MIN, CubeWeight, PANEL};
use crate::WeightVector;
use crate::cube::{Rows, Vec4, Words, buffer, widen, words_buffer};

/// Units of a cube: one for each four by four results.
pub(super) const UNITS: usize = ROWS / 4 * (PANEL / 4);

/// Rows of a tile.
pub(super) const ROWS: usize = 64;

/// Inputs in shared memory at a time; a divisor of [`BLOCK_MIN`], and so of a block.
const DEPTH: usize = 16;
const _: () = assert!(BLOCK_MIN.is_multiple_of(DEPTH));

pub(super) fn launch(x: &Rows, weight: &CubeWeight, bias: Option<&WeightVector>, y: &CubeTensor) {
    let cubes = CubeCount::Static(weight.panels() as u32, x.rows.div_ceil(ROWS) as u32, 1);
    // SAFETY: the caller checked rows, inputs and outputs against the buffers.
    unsafe {
        tiled_kernel::launch_unchecked(
            x.client(),
            cubes,
            CubeDim::new_1d(UNITS as u32),
            x.lanes,
            x.arg(),
            words_buffer(&weight.words),
            weight.factors().into(),
            bias.map(|bias| words_buffer(bias.cube())).into(),
            buffer(y),
            layout(x, weight),
            x.rows,
        );
    }
}

#[cube(launch_unchecked)]
fn tiled_kernel<N: Size>(
    x: &[Vector<f32, N>],
    weight: &[Words],
    factors: ComptimeOption<&[Vec4]>,
    bias: ComptimeOption<&[f32]>,
    y: &mut [f32],
    layout: ProductLayout,
    rows: usize,
) {
    let (first, panel) = (CUBE_POS_Y as usize * ROWS, CUBE_POS_X as usize);
    let tile = TileRows { first, count: min(rows - first, ROWS), matrix: 0usize.runtime() };
    let none = ComptimeOption::new_None();
    multiply_tile::<N>(x, weight, factors, bias, none, y, &layout, &tile, panel);
}

/// Writes the products of up to [`ROWS`] rows with a panel. `sources` has the row of x for each row
/// of y, where that is another one.
#[cube]
pub(super) fn multiply_tile<N: Size>(
    x: &[Vector<f32, N>],
    weight: &[Words],
    factors: ComptimeOption<&[Vec4]>,
    bias: ComptimeOption<&[f32]>,
    sources: ComptimeOption<&[u32]>,
    y: &mut [f32],
    layout: &ProductLayout,
    tile: &TileRows,
    panel: usize,
) {
    let (inputs, outputs) = (layout.inputs, layout.outputs);
    let stacked = tile.matrix * outputs.div_ceil(PANEL) + panel;
    let unit = UNIT_POS as usize;
    let (row, column) = (unit / comptime!(PANEL / 4) * 4, unit % comptime!(PANEL / 4));
    // `[DEPTH][ROWS]` and `[DEPTH][PANEL / 4]`.
    let mut x_tile = Shared::<[f32]>::new_slice(comptime!(DEPTH * ROWS));
    let mut w_tile = Shared::<[Vec4]>::new_slice(comptime!(DEPTH * PANEL / 4));
    let mut totals = Array::<Vec4>::new(4usize);
    let mut block = Array::<Vec4>::new(4usize);
    #[unroll]
    for i in 0..4usize {
        totals[i] = Vector::new(0.0f32);
        block[i] = Vector::new(0.0f32);
    }
    let mut k = 0usize;
    while k < inputs {
        load_x::<N>(x, sources, &mut x_tile, layout, tile, k);
        load_weight(weight, factors, &mut w_tile, layout, stacked, k);
        sync_cube();
        // Inputs beyond the last are products of zeros, which change no sum.
        #[unroll]
        for i in 0..DEPTH {
            let w = w_tile[comptime!(i * PANEL / 4) + column];
            #[unroll]
            for r in 0..4usize {
                let input = Vec4::new(x_tile[comptime!(i * ROWS + r) + row]);
                block[r] = fma(input, w, block[r]);
            }
        }
        k += DEPTH;
        let in_block = k % layout.block;
        if in_block == 0 || k >= inputs {
            #[unroll]
            for r in 0..4usize {
                totals[r] += block[r];
                block[r] = Vector::new(0.0f32);
            }
        }
        sync_cube();
    }
    #[unroll]
    for lane in 0..4usize {
        let output = panel * PANEL + output_at(column * 4 + lane, comptime!(layout.format));
        if output < outputs {
            let at = tile.matrix * outputs + output;
            let bias: ComptimeOption<f32> = bias.map(|bias| bias[at]);
            let bias = bias.unwrap_or_else(|| 0.0f32.runtime());
            #[unroll]
            for r in 0..4usize {
                if row + r < tile.count {
                    y[(tile.first + row + r) * outputs + output] = totals[r].extract(lane) + bias;
                }
            }
        }
    }
}

/// Loads inputs `k .. k + DEPTH` of the tile's rows; missing ones are zeros.
#[cube]
fn load_x<N: Size>(
    x: &[Vector<f32, N>],
    sources: ComptimeOption<&[u32]>,
    x_tile: &mut Shared<[f32]>,
    layout: &ProductLayout,
    tile: &TileRows,
    k: usize,
) {
    let vectors = DEPTH / N::value();
    let mut at = UNIT_POS as usize;
    while at < vectors * ROWS {
        let (row, vector) = (at / vectors, at % vectors);
        let input = k + vector * N::value();
        let mut values = Vector::<f32, N>::new(0.0f32);
        if row < tile.count && input < layout.inputs {
            let source = source_of(sources, tile.first + row);
            values = x[source * layout.x_stride + input / N::value()];
        }
        #[unroll]
        for i in 0..N::value() {
            x_tile[(vector * N::value() + i) * ROWS + row] = values.extract(i);
        }
        at += UNITS;
    }
}

/// Loads inputs `k .. k + DEPTH` of a panel; missing ones are zeros.
#[cube]
fn load_weight(
    weight: &[Words],
    factors: ComptimeOption<&[Vec4]>,
    tile: &mut Shared<[Vec4]>,
    layout: &ProductLayout,
    panel: usize,
    k: usize,
) {
    let (format, inputs, group_size) = (comptime!(layout.format), layout.inputs, layout.group_size);
    let chunks = comptime!(PANEL / format.per_chunk());
    let parts = comptime!(format.per_word());
    let mut at = UNIT_POS as usize;
    while at < comptime!(DEPTH * chunks) {
        let input = k + at / chunks;
        #[unroll]
        for h in 0..parts {
            tile[at * parts + h] = Vec4::new(0.0f32);
        }
        if input < inputs {
            let words = weight[(panel * inputs + k) * chunks + at];
            #[unroll]
            for h in 0..parts {
                let mut w = widen(words, h, format);
                if comptime!(format.is_coded()) {
                    let of_group = factor_at(panel, input / group_size, inputs, group_size);
                    let scale = of_group + at % chunks * parts + h;
                    let offset = scale + comptime!(PANEL / 4);
                    w = fma(w, factors.unwrap()[scale], factors.unwrap()[offset]);
                }
                tile[at * parts + h] = w;
            }
        }
        at += UNITS;
    }
}
