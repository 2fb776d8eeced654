//! The patches of a tile of Phi-4-multimodal. Four neighbours become one embedding, which counts if
//! its first patch holds a part of the image (HF `Phi4MultimodalImageEmbedding`). The patches in
//! the padding are no keys, and most of them have no effect.

use std::collections::BTreeMap;

/// The largest part of a side: HF `Phi4MultimodalVisionEmbeddings`.
const PART_MAX: f32 = 1.0 - 1e-6;

/// The tiles of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Phi4Tiles {
    /// Rows and columns of tiles.
    pub(crate) grid: [usize; 2],
    /// Rows and columns of patches that hold a part of the image.
    pub(crate) used: [usize; 2],
}

impl Phi4Tiles {
    /// Returns the tiles in the shape of a tensor without elements, in which the processor hands
    /// them to the encoder.
    pub(crate) fn shape(self) -> Vec<usize> {
        let Self { grid, used } = self;
        vec![grid[0], grid[1], used[0], used[1], 0]
    }

    /// Returns the tiles of such a shape, of an image with `side` patches on a side of a tile.
    pub(super) fn of_shape(shape: &[usize], side: usize) -> Option<Self> {
        let [rows, columns, used_rows, used_columns, 0] = *shape else { return None };
        let (grid, used) = ([rows, columns], [used_rows, used_columns]);
        let fits = |axis: usize| grid[axis] > 0 && (1..=grid[axis] * side).contains(&used[axis]);
        (fits(0) && fits(1)).then_some(Self { grid, used })
    }

    /// Returns the rows and columns of patches that hold a part of the image in the tile at `row`
    /// and `column`.
    pub(super) fn used_of(self, row: usize, column: usize, side: usize) -> [usize; 2] {
        let of = |axis: usize, at: usize| self.used[axis].saturating_sub(at * side).min(side);
        [of(0, row), of(1, column)]
    }

    /// Returns the rows and columns of embeddings.
    fn squares(self, side: usize) -> [usize; 2] {
        let of = |axis: usize| {
            let each = (0..self.grid[axis])
                .map(|at| self.used[axis].saturating_sub(at * side).min(side).div_ceil(2));
            each.sum()
        };
        [of(0), of(1)]
    }

    /// Returns the number of embeddings of an image. Those of its tiles and of the whole image have
    /// one at the end of each row, and one between the two.
    pub(crate) fn num_embeds(self, side: usize) -> usize {
        let ([rows, columns], half) = (self.squares(side), side.div_ceil(2));
        rows * (columns + 1) + 1 + half * (half + 1)
    }

    /// Returns the tile and the square in it of each embedding of the tiles, row by row.
    pub(super) fn rows_of_squares(self, side: usize) -> Vec<Vec<(usize, [usize; 2])>> {
        let ([rows, columns], half) = (self.squares(side), side.div_ceil(2));
        let square = |row: usize, column: usize| {
            let tile = row / half * self.grid[1] + column / half;
            (tile, [row % half, column % half])
        };
        let of_row = |row: usize| (0..columns).map(|column| square(row, column)).collect();
        (0..rows).map(of_row).collect()
    }
}

/// The patches of a tile that are computed.
#[derive(Debug, Default)]
pub(super) struct TilePatches {
    /// The row and the column of those that hold a part of the image.
    pub(super) used: Vec<[usize; 2]>,
    /// The same of patches in the padding that have an effect. They see the others, and no patch
    /// sees them.
    pub(super) padded: Vec<[usize; 2]>,
    /// The index of each patch, in the order of `used` and then `padded`.
    index: BTreeMap<[usize; 2], usize>,
}

impl TilePatches {
    /// Returns the patches of a tile with `side` patches on a side. Of these, `used` rows and
    /// columns hold a part of the image.
    pub(super) fn new(side: usize, used: [usize; 2]) -> Self {
        let mut patches = Self::default();
        for row in 0..used[0] {
            patches.used.extend((0..used[1]).map(|column| [row, column]));
        }
        for square in 0..used[0].div_ceil(2) * used[1].div_ceil(2) {
            let columns = used[1].div_ceil(2);
            for place in corners([square / columns, square % columns], side) {
                let is_padded = place[0] >= used[0] || place[1] >= used[1];
                if is_padded && !patches.padded.contains(&place) {
                    patches.padded.push(place);
                }
            }
        }
        let all = patches.used.iter().chain(&patches.padded);
        patches.index = all.enumerate().map(|(index, place)| (*place, index)).collect();
        patches
    }

    /// Returns the indices of the four patches of a square.
    pub(super) fn of_square(&self, square: [usize; 2], side: usize) -> Option<[usize; 4]> {
        let [a, b, c, d] = corners(square, side).map(|place| self.index.get(&place).copied());
        Some([a?, b?, c?, d?])
    }
}

/// Returns the places of the patches of a square. Behind the last row or column, the one before it
/// comes again: HF `nn.ReflectionPad2d`.
fn corners([row, column]: [usize; 2], side: usize) -> [[usize; 2]; 4] {
    let second = |first: usize| if first + 1 < side { first + 1 } else { first - 1 };
    let (top, left) = (2 * row, 2 * column);
    let (bottom, right) = (second(top), second(left));
    [[top, left], [top, right], [bottom, left], [bottom, right]]
}

/// Returns the place in a table of `side` places of each of `count` patches along one axis. They
/// are spread over the whole table.
pub(super) fn spread(count: usize, side: usize) -> Vec<u32> {
    let step = 1.0 / side as f64;
    let borders: Vec<f32> = (0..side - 1).map(|at| (step + step * at as f64) as f32).collect();
    let part = 1.0 / count.max(1) as f32;
    let place = |at: usize| {
        let at = (at as f32 * part).min(PART_MAX);
        borders.iter().filter(|border| **border <= at).count() as u32
    };
    (0..count).map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patches_spread_over_the_whole_table() {
        assert_eq!(spread(8, 8), (0..8).collect::<Vec<u32>>());
        assert_eq!(spread(3, 8), [0, 2, 5]);
        assert_eq!(spread(32, 32), (0..32).collect::<Vec<u32>>());
        assert_eq!(spread(1, 8), [0]);
    }

    #[test]
    fn squares_at_the_border_take_patches_of_the_padding() {
        let patches = TilePatches::new(8, [3, 8]);
        assert_eq!((patches.used.len(), patches.padded.len()), (24, 8));
        assert_eq!(patches.of_square([1, 0], 8), Some([16, 17, 24, 25]));
        assert_eq!(patches.of_square([2, 0], 8), None);
        // Of seven, the last square has the sixth once more.
        let patches = TilePatches::new(7, [7, 7]);
        assert!(patches.padded.is_empty());
        assert_eq!(patches.of_square([3, 0], 7), Some([42, 43, 35, 36]));
    }

    #[test]
    fn embeddings_are_counted_by_squares() {
        let tiles = Phi4Tiles { grid: [2, 1], used: [15, 8] };
        assert_eq!(tiles.used_of(1, 0, 8), [7, 8]);
        assert_eq!(tiles.num_embeds(8), 8 * 5 + 1 + 4 * 5);
        assert_eq!(tiles.rows_of_squares(8)[5][3], (1, [1, 3]));
        assert_eq!(Phi4Tiles::of_shape(&tiles.shape(), 8), Some(tiles));
        assert_eq!(Phi4Tiles::of_shape(&[2, 1, 17, 8, 0], 8), None);
    }
}
