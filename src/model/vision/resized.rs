//! Learned positions of a square grid, resized to the patches of an image: bilinear, with a filter
//! that grows where the grid shrinks (HF `Siglip2VisionEmbeddings.resize_positional_embeddings`).

use super::grid::Grid;

/// The positions of a grid.
#[derive(Debug)]
pub(super) struct ResizedPositions {
    /// `[side², width]`.
    table: Vec<f32>,
    side: usize,
    width: usize,
}

impl ResizedPositions {
    /// Returns the positions `table` of a grid of `side²` places.
    pub(super) fn new(table: Vec<f32>, side: usize, width: usize) -> Self {
        Self { table, side, width }
    }

    /// Returns the positions of an image's patches, `[patches, width]`, in the order of `grid`.
    pub(super) fn of(&self, grid: &Grid) -> Vec<f32> {
        let Self { side, width, .. } = *self;
        let [num_rows, num_columns] = grid.size();
        let [of_rows, of_columns] = [num_rows, num_columns].map(|size| weights(side, size));
        // Row by row of the image, the columns of the grid: [num_rows, side, width].
        let mut between = vec![0.0; num_rows * side * width];
        for (row, taps) in between.chunks_exact_mut(side * width).zip(&of_rows) {
            for (place, weight) in taps {
                let from = &self.table[place * side * width..(place + 1) * side * width];
                row.iter_mut().zip(from).for_each(|(sum, value)| *sum += weight * value);
            }
        }
        let mut positions = Vec::with_capacity(grid.places.len() * width);
        for place in &grid.places {
            let first = positions.len();
            positions.resize(first + width, 0.0);
            for (column, weight) in &of_columns[place.column] {
                let from = (place.row * side + column) * width;
                let from = &between[from..from + width];
                let sums = positions[first..].iter_mut().zip(from);
                sums.for_each(|(sum, value)| *sum += weight * value);
            }
        }
        positions
    }
}

/// Returns for each of `size` places the places of an axis of `side` that count, and their weights.
fn weights(side: usize, size: usize) -> Vec<Vec<(usize, f32)>> {
    let scale = side as f32 / size as f32;
    let support = scale.max(1.0);
    let of_place = |at: usize| {
        let center = (at as f32 + 0.5) * scale - 0.5;
        let weight = |place: usize| (1.0 - (place as f32 - center).abs() / support).max(0.0);
        let taps: Vec<(usize, f32)> = (0..side).map(|place| (place, weight(place))).collect();
        let sum: f32 = taps.iter().map(|(_, weight)| weight).sum();
        let counts = taps.into_iter().filter(|(_, weight)| *weight > 0.0);
        counts.map(|(place, weight)| (place, weight / sum)).collect()
    };
    (0..size).map(of_place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_of_the_same_size_is_itself() {
        assert_eq!(weights(3, 3), [[(0, 1.0)], [(1, 1.0)], [(2, 1.0)]]);
    }

    #[test]
    fn all_places_count_where_the_grid_shrinks() {
        let (two, one) = (weights(4, 2), weights(4, 1));
        assert_eq!(two[0].iter().map(|(place, _)| *place).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(one[0].len(), 4);
        for taps in two.iter().chain(&one) {
            let sum: f32 = taps.iter().map(|(_, weight)| weight).sum();
            assert!((sum - 1.0).abs() < 1e-6);
        }
    }

    #[test]
    fn a_place_beside_the_grid_is_the_nearest_one() {
        let taps = weights(2, 4);
        assert_eq!(taps[0], [(0, 1.0)]);
        assert_eq!(taps[1], [(0, 0.75), (1, 0.25)]);
    }
}
