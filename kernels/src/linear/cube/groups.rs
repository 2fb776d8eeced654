//! Products of groups of rows, each with a matrix of its own, in one launch. The device knows the
//! groups, and the host knows only their number of rows together. The grid is therefore as large
//! as any groups need, and its idle cubes end at once.
//!
//! The kernels are those of [`super`], for few rows of each group and for many. So a row has the
//! bytes that a product with its matrix alone would give it.

use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;
use cubecl::server::Handle;

use super::cut::Cut;
use super::product::{ProductLayout, TileRows, layout, source_of};
use super::skinny::{TILE_MAX, multiply_few, tile_max};
use super::stack::CubeStack;
use super::tiled::multiply_tile;
use super::{PANEL, SKINNY_ROWS_MAX, tiled};
use crate::cube::{CUBES_MAX, Rows, Vec4, Words, buffer, words_buffer};

/// Number of words of an item: matrix, first row, number of rows.
pub(crate) const ITEM_WORDS: usize = 3;

/// The kernel that multiplies the items of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TileKind {
    /// Up to eight rows: the weight is read once for them.
    Skinny,
    /// Up to 64 rows.
    Tiled,
}

impl TileKind {
    /// Returns the faster kind for `rows` rows that spread over `groups` groups.
    pub(crate) fn of(rows: usize, groups: usize) -> Self {
        if rows.div_ceil(groups) <= SKINNY_ROWS_MAX { Self::Skinny } else { Self::Tiled }
    }

    /// Returns the most rows of an item.
    pub(crate) fn rows(self) -> usize {
        match self {
            Self::Skinny => TILE_MAX,
            Self::Tiled => tiled::ROWS,
        }
    }
}

/// Items on the device: the work of cubes.
pub(crate) struct Items<'a> {
    /// `[item][matrix, first row, number of rows]` from word `at` on. An item may have no rows.
    pub(crate) words: &'a Handle,
    pub(crate) at: usize,
    /// The number of items.
    pub(crate) count: usize,
    /// The kernel that they are cut for.
    pub(crate) kind: TileKind,
}

/// Computes `x Wᵀ + b` for the rows of y, which the items name. `sources` has the row of x for each
/// row of y, where that is another one.
pub(crate) fn grouped(
    x: &Rows,
    sources: Option<&Handle>,
    stack: &CubeStack,
    items: &Items<'_>,
    y: &CubeTensor,
) {
    launch(x, sources, stack, items, y, 1);
}

/// Returns whether [`grouped_swiglu`] takes these matrices and items. Gate and up of one result
/// must lie at the same place in two panels, and neither may have a bias.
pub(crate) fn takes_swiglu(stack: &CubeStack, items: &Items<'_>) -> bool {
    let is_of_panels = stack.weight.outputs.is_multiple_of(2 * PANEL);
    items.kind == TileKind::Skinny && is_of_panels && stack.biases.is_none()
}

/// Computes `silu(gate) · up` for `[gate, up] = x Wᵀ`, and else does the same as [`grouped`]. The
/// bytes are those of the two operations one after the other.
pub(crate) fn grouped_swiglu(
    x: &Rows,
    sources: Option<&Handle>,
    stack: &CubeStack,
    items: &Items<'_>,
    y: &CubeTensor,
) {
    assert!(takes_swiglu(stack, items), "grouped_swiglu: form of the matrices or items");
    launch(x, sources, stack, items, y, 2);
}

/// Launches the products. A result has `of_result` panels, of which the first gates the second.
fn launch(
    x: &Rows,
    sources: Option<&Handle>,
    stack: &CubeStack,
    items: &Items<'_>,
    y: &CubeTensor,
    of_result: usize,
) {
    let CubeStack { weight, biases } = stack;
    assert_eq!(x.cols, weight.inputs, "grouped: width of x [{}, {}]", x.rows, x.cols);
    let panels = weight.panels() / of_result;
    let cut = Cut::new(weight, items.count * panels, of_result);
    let (units, columns) = match items.kind {
        TileKind::Skinny => (cut.units(), panels * cut.cubes_of_panel(weight.format)),
        TileKind::Tiled => (tiled::UNITS, panels),
    };
    let rows = items.count.min(CUBES_MAX);
    let grid = CubeCount::Static(columns as u32, rows as u32, items.count.div_ceil(rows) as u32);
    // SAFETY: the caller checked x, y and their rows against the items, and a cube beyond them does
    // nothing.
    unsafe {
        grouped_kernel::launch_unchecked(
            x.client(),
            grid,
            CubeDim::new_1d(units as u32),
            x.lanes,
            x.arg(),
            words_buffer(&weight.words),
            weight.factors().into(),
            biases.as_ref().map(words_buffer).into(),
            words_buffer(items.words),
            sources.map(words_buffer).into(),
            buffer(y),
            layout(x, weight),
            items.at,
            items.count,
            items.kind == TileKind::Tiled,
            cut,
        );
    }
}

#[cube(launch_unchecked)]
fn grouped_kernel<N: Size>(
    x: &[Vector<f32, N>],
    weight: &[Words],
    factors: ComptimeOption<&[Vec4]>,
    biases: ComptimeOption<&[f32]>,
    items: &[u32],
    sources: ComptimeOption<&[u32]>,
    y: &mut [f32],
    layout: ProductLayout,
    items_at: usize,
    num_items: usize,
    #[comptime] is_tiled: bool,
    #[comptime] cut: Cut,
) {
    let item = (CUBE_POS_Z * CUBE_COUNT_Y + CUBE_POS_Y) as usize;
    if item >= num_items {
        terminate!();
    }
    let at = items_at + item * comptime!(ITEM_WORDS);
    let matrix = items[at] as usize;
    let first = items[at + 1] as usize;
    let count = items[at + 2] as usize;
    if count == 0 {
        terminate!();
    }
    let column = CUBE_POS_X as usize;
    if comptime!(is_tiled) {
        let tile = TileRows { first, count, matrix };
        multiply_tile::<N>(x, weight, factors, biases, sources, y, &layout, &tile, column);
    } else {
        let vectors = comptime!(cut.shared_vectors(layout.format, TILE_MAX));
        let mut sums = Shared::<[Vec4]>::new_slice(vectors);
        // A row's arithmetic is the same in each of these, and fewer rows cost less.
        let tile = TileRows { first, count, matrix };
        if count == 1 {
            few::<N>(
                x, weight, factors, biases, sources, y, &mut sums, &layout, &tile, column, 1usize,
                cut,
            );
        } else if count == 2 {
            few::<N>(
                x, weight, factors, biases, sources, y, &mut sums, &layout, &tile, column, 2usize,
                cut,
            );
        } else if comptime!(tile_max(layout.format) < TILE_MAX) {
            let most = comptime!(tile_max(layout.format));
            let mut done = 0usize;
            while done < count {
                let tile = TileRows { first: first + done, count: count - done, matrix };
                few::<N>(
                    x, weight, factors, biases, sources, y, &mut sums, &layout, &tile, column,
                    most, cut,
                );
                done += most;
            }
        } else if count <= 4 {
            few::<N>(
                x, weight, factors, biases, sources, y, &mut sums, &layout, &tile, column, 4usize,
                cut,
            );
        } else {
            few::<N>(
                x, weight, factors, biases, sources, y, &mut sums, &layout, &tile, column, 8usize,
                cut,
            );
        }
    }
}

/// Writes the products of the first `most` rows with a part of a panel.
#[cube]
fn few<N: Size>(
    x: &[Vector<f32, N>],
    weight: &[Words],
    factors: ComptimeOption<&[Vec4]>,
    biases: ComptimeOption<&[f32]>,
    sources: ComptimeOption<&[u32]>,
    y: &mut [f32],
    sums: &mut Shared<[Vec4]>,
    layout: &ProductLayout,
    tile: &TileRows,
    column: usize,
    #[comptime] most: usize,
    #[comptime] cut: Cut,
) {
    let mut x_at = Array::<usize>::new(most);
    #[unroll]
    for r in 0..most {
        // Rows beyond the end repeat the last row.
        let row = tile.first + min(r.runtime(), tile.count - 1);
        x_at[r] = source_of(sources, row) * layout.x_stride;
    }
    multiply_few::<N>(
        x,
        weight,
        factors,
        biases,
        y,
        sums,
        layout,
        &x_at,
        tile.first,
        tile.count,
        tile.matrix,
        column,
        most,
        cut,
    );
}
