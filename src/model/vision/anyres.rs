//! Images of LLaVA-NeXT: the whole image, and tiles of a padded one. Rows of features that lie in
//! the padding have no embedding. Each of the other rows ends with a learned vector (HF
//! `LlavaNextModel.pack_image_features`).

use std::ops::Range;

/// The vector at the end of a row, in the place of a feature.
pub(super) const END_OF_ROW: u32 = u32::MAX;

/// The tiles of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AnyResTiles {
    /// Rows and columns of tiles.
    pub(crate) grid: [usize; 2],
    /// Height and width of the image before it was resized.
    pub(crate) original: [usize; 2],
}

impl AnyResTiles {
    /// Returns the tiles in the shape of a tensor without elements, in which the processor hands
    /// them to the encoder.
    pub(crate) fn shape(self) -> Vec<usize> {
        let Self { grid, original } = self;
        vec![grid[0], grid[1], original[0], original[1], 0]
    }

    /// Returns the tiles of such a shape.
    pub(super) fn of_shape(shape: &[usize]) -> Option<Self> {
        match *shape {
            [rows, columns, height, width, 0] if rows * columns * height * width > 0 => {
                Some(Self { grid: [rows, columns], original: [height, width] })
            }
            _ => None,
        }
    }

    /// Returns the number of embeddings of an image whose tiles have `side²` features.
    pub(crate) fn num_embeds(self, side: usize) -> usize {
        let [rows, columns] = self.unpadded(side);
        side * side + rows.len() * (columns.len() + 1)
    }

    /// Returns the rows and columns of features that are not padding: HF `unpad_image`.
    pub(super) fn unpadded(self, side: usize) -> [Range<usize>; 2] {
        let all = self.grid.map(|tiles| tiles * side);
        let [height, width] = self.original.map(|side| side as f64);
        let cut = |own: f64, other: f64, all: usize, fitted: usize| {
            let size = own * (fitted as f64 / other);
            // transformers rounds to seven digits first.
            let size = ((size * 1e7).round_ties_even() / 1e7) as usize;
            let padding = all.saturating_sub(size) / 2;
            padding..all - padding
        };
        match width / height > all[1] as f64 / all[0] as f64 {
            true => [cut(height, width, all[0], all[1]), 0..all[1]],
            false => [0..all[0], cut(width, height, all[1], all[0])],
        }
    }

    /// Returns the feature at a row and a column of all tiles.
    pub(super) fn feature(self, side: usize, row: usize, column: usize) -> u32 {
        let tile = 1 + row / side * self.grid[1] + column / side;
        (tile * side * side + row % side * side + column % side) as u32
    }

    /// Returns the features of the embeddings: those of the whole image, which come first, and then
    /// those of the tiles, row by row.
    pub(super) fn order(self, side: usize) -> Vec<u32> {
        let [rows, columns] = self.unpadded(side);
        let of_row = |row: usize| {
            let features = columns.clone().map(move |column| self.feature(side, row, column));
            features.chain([END_OF_ROW])
        };
        (0..(side * side) as u32).chain(rows.flat_map(of_row)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_in_the_padding_have_no_embedding() {
        let tiles = AnyResTiles { grid: [1, 2], original: [10, 100] };
        // Of four columns and two rows, nothing is left out but a whole row on each side.
        assert_eq!(tiles.unpadded(2), [1..1, 0..4]);
        let tiles = AnyResTiles { grid: [2, 1], original: [100, 50] };
        assert_eq!(tiles.unpadded(2), [0..4, 0..2]);
        assert_eq!(tiles.num_embeds(2), 4 + 4 * 3);
        let order = tiles.order(2);
        assert_eq!(order[..4], [0, 1, 2, 3]);
        assert_eq!(order[4..10], [4, 5, END_OF_ROW, 6, 7, END_OF_ROW]);
        assert_eq!(order.len(), tiles.num_embeds(2));
    }

    #[test]
    fn tiles_go_through_the_shape_of_a_tensor() {
        let tiles = AnyResTiles { grid: [1, 2], original: [10, 100] };
        assert_eq!(AnyResTiles::of_shape(&tiles.shape()), Some(tiles));
        assert_eq!(AnyResTiles::of_shape(&[1, 2, 0]), None);
        assert_eq!(AnyResTiles::of_shape(&[1, 2, 0, 3, 0]), None);
    }
}
