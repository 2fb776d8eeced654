//! The order of an image's patches: squares that become one embedding, and windows of squares.

use super::pixels::{Images, PatchPlace, PatchSize};

/// The patches of an item in the order in which a tower computes them.
#[derive(Debug)]
pub(super) struct Grid {
    /// The place of each patch.
    pub(super) places: Vec<PatchPlace>,
    /// The number of patches of each frame.
    pub(super) frames: Vec<usize>,
    /// The number of patches of each window. Without windows, it is that of frames.
    pub(super) windows: Vec<usize>,
    /// For each embedding, by frames, rows and columns, the index of its square in this order.
    pub(super) order: Vec<u32>,
    /// Rows and columns of patches in squares.
    size: [usize; 2],
}

impl Grid {
    /// Returns the grid of `images`, in squares of `merge²` patches. With `window`, the squares of
    /// a window of `window²` follow each other.
    ///
    /// # Errors
    /// The sizes, if the images do not consist of whole squares.
    pub(super) fn new(
        images: Images<'_>,
        patch: PatchSize,
        merge: usize,
        window: Option<usize>,
    ) -> Result<Self, String> {
        let Images { count, height, width, .. } = images;
        let side = patch.side * merge;
        if height % side != 0 || width % side != 0 {
            return Err(format!("an image of {height} x {width} pixels, in squares of {side}"));
        }
        let num_frames = count.div_ceil(patch.frames);
        Ok(Self::of_squares([height / side, width / side], num_frames, merge, window))
    }

    /// Returns the grid of one image, which may have patches beside whole squares. Those come last,
    /// and become no embedding. Pixels beside whole patches are left out.
    ///
    /// # Errors
    /// The sizes, if the image has no whole square.
    pub(super) fn with_rest(
        images: Images<'_>,
        patch: PatchSize,
        merge: usize,
    ) -> Result<Self, String> {
        let Images { height, width, .. } = images;
        let [rows, columns] = [height, width].map(|side| side / patch.side);
        let squares = [rows / merge, columns / merge];
        if squares.contains(&0) {
            let side = patch.side * merge;
            return Err(format!("an image of {height} x {width} pixels has no square of {side}"));
        }
        let mut grid = Self::of_squares(squares, 1, merge, None);
        let [whole_rows, whole_columns] = grid.size;
        let all = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
        let rest = all.filter(|(row, column)| *row >= whole_rows || *column >= whole_columns);
        grid.places.extend(rest.map(|(row, column)| PatchPlace { frame: 0, row, column }));
        grid.frames = vec![rows * columns];
        Ok(grid)
    }

    /// Returns the grid of frames of `rows` and `columns` of squares.
    fn of_squares(
        [rows, columns]: [usize; 2],
        num_frames: usize,
        merge: usize,
        window: Option<usize>,
    ) -> Self {
        let window = window.unwrap_or(rows.max(columns)).max(1);
        let squares = || {
            let starts = |len: usize| (0..len).step_by(window);
            let starts = starts(rows).flat_map(move |row| starts(columns).map(move |at| [row, at]));
            starts.map(|[row, column]| {
                let rows = row..(row + window).min(rows);
                let columns = column..(column + window).min(columns);
                rows.flat_map(move |row| columns.clone().map(move |column| [row, column]))
                    .collect::<Vec<_>>()
            })
        };
        let (mut places, mut windows) = (Vec::new(), Vec::new());
        let mut order = vec![0; num_frames * rows * columns];
        for frame in 0..num_frames {
            for squares in squares() {
                windows.push(squares.len() * merge * merge);
                for [row, column] in squares {
                    let square = places.len() / (merge * merge);
                    order[(frame * rows + row) * columns + column] = square as u32;
                    places.extend((0..merge * merge).map(|at| PatchPlace {
                        frame,
                        row: row * merge + at / merge,
                        column: column * merge + at % merge,
                    }));
                }
            }
        }
        let size = [rows * merge, columns * merge];
        let frames = vec![size[0] * size[1]; num_frames];
        Self { places, frames, windows, order, size }
    }

    /// Returns the rows and columns of patches in squares.
    pub(super) fn size(&self) -> [usize; 2] {
        self.size
    }

    /// Returns the number of patches that are in squares of `merge²`.
    pub(super) fn num_in_squares(&self, merge: usize) -> usize {
        self.order.len() * merge * merge
    }

    /// Returns row and column of each patch.
    pub(super) fn rows_and_columns(&self) -> impl Iterator<Item = [u32; 2]> + '_ {
        self.places.iter().map(|place| [place.row as u32, place.column as u32])
    }

    /// Returns for each patch the four nearest places of a grid of `side²`, which covers the image
    /// from corner to corner, and their weights: HF `get_vision_interpolation_indices_and_weights`.
    pub(super) fn corners(&self, side: usize) -> impl Iterator<Item = [(u32, f32); 4]> + '_ {
        let taps = move |at: usize, size: usize| {
            let source = at as f32 * (side - 1) as f32 / size.saturating_sub(1).max(1) as f32;
            let (low, part) = (source.floor(), source - source.floor());
            let next = (low as usize + 1).min(side - 1);
            [(low as usize, 1.0 - part), (next, 1.0 - (part - 1.0).abs())]
        };
        self.places.iter().map(move |place| {
            let [rows, columns] = [taps(place.row, self.size[0]), taps(place.column, self.size[1])];
            let corner = |row: usize, column: usize| {
                let ((row, weight), (column, other)) = (rows[row], columns[column]);
                ((row * side + column) as u32, weight * other)
            };
            [corner(0, 0), corner(0, 1), corner(1, 0), corner(1, 1)]
        })
    }

    /// Returns the same for a grid whose outermost places lie half a place within the image, as in
    /// torch's `interpolate` without `align_corners`. A place outside the grid is the nearest one
    /// inside.
    pub(super) fn centered_corners(
        &self,
        side: usize,
    ) -> impl Iterator<Item = [(u32, f32); 4]> + '_ {
        let taps = move |at: usize, size: usize| {
            let source = (at as f32 + 0.5) * side as f32 / size as f32 - 0.5;
            let (low, part) = (source.floor(), source - source.floor());
            let place = |tap: i64| (low as i64 + tap).clamp(0, side as i64 - 1) as usize;
            [(place(0), 1.0 - part), (place(1), 1.0 - (part - 1.0).abs())]
        };
        self.places.iter().map(move |place| {
            let [rows, columns] = [taps(place.row, self.size[0]), taps(place.column, self.size[1])];
            let corner = |row: usize, column: usize| {
                let ((row, weight), (column, other)) = (rows[row], columns[column]);
                ((row * side + column) as u32, weight * other)
            };
            [corner(0, 0), corner(0, 1), corner(1, 0), corner(1, 1)]
        })
    }

    /// Returns for each patch the sixteen nearest places of a grid of `side²`, and their weights:
    /// bicubic sampling as in HF `Glm4vVisionEmbeddings`. The outermost places of the grid lie half
    /// a place within the image. A place outside the grid is the nearest one inside.
    pub(super) fn cubic_taps(&self, side: usize) -> impl Iterator<Item = [(u32, f32); 16]> + '_ {
        let taps = move |at: usize, size: usize| -> [(usize, f32); 4] {
            // In the steps of torch's `grid_sample`, which go through the range from -1 to 1.
            let place = (at as f32 + 0.5) / size as f32 * 2.0 - 1.0;
            let source = ((place + 1.0) * side as f32 - 1.0) / 2.0;
            let (low, part) = (source.floor(), source - source.floor());
            let weights = cubic_weights(part);
            std::array::from_fn(|tap| {
                let place = (low as i64 + tap as i64 - 1).clamp(0, side as i64 - 1);
                (place as usize, weights[tap])
            })
        };
        self.places.iter().map(move |place| {
            let [rows, columns] = [taps(place.row, self.size[0]), taps(place.column, self.size[1])];
            std::array::from_fn(|tap| {
                let ((row, weight), (column, other)) = (rows[tap / 4], columns[tap % 4]);
                ((row * side + column) as u32, weight * other)
            })
        })
    }
}

/// Returns the weights of the four places around one that lies `part` behind the second: Keys'
/// cubic with a = -0.75.
fn cubic_weights(part: f32) -> [f32; 4] {
    const A: f32 = -0.75;
    let near = |x: f32| ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0;
    let far = |x: f32| ((A * x - 5.0 * A) * x + 8.0 * A) * x - 4.0 * A;
    [far(part + 1.0), near(part), near(1.0 - part), far(2.0 - part)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{MediaData, MediaTensorView};

    #[test]
    fn patches_beside_squares_come_last() {
        let grid = |height: usize, width: usize| {
            let data = vec![0; height * width * 3];
            let (shape, data) = (&[height, width, 3], MediaData::U8(&data));
            let images = Images::read(Some(&MediaTensorView { shape, data })).unwrap();
            Grid::with_rest(images, PatchSize { side: 4, frames: 1 }, 2)
        };
        let found = grid(12, 21).unwrap();
        assert_eq!((found.order.len(), found.num_in_squares(2)), (2, 8));
        assert_eq!((found.places.len(), found.frames[0]), (15, 15));
        let last: Vec<[u32; 2]> = found.rows_and_columns().skip(8).collect();
        assert_eq!(last[..2], [[0, 4], [1, 4]]);
        assert_eq!(last[2..], [[2, 0], [2, 1], [2, 2], [2, 3], [2, 4]]);
        assert_eq!(grid(8, 8).unwrap().places.len(), 4);
        assert!(grid(7, 40).unwrap_err().contains("7 x 40"));
    }

    #[test]
    fn a_place_of_the_grid_is_itself() {
        assert_eq!(cubic_weights(0.0), [0.0, 1.0, 0.0, 0.0]);
        for part in [0.1, 0.5, 0.9] {
            let sum: f32 = cubic_weights(part).iter().sum();
            assert!((sum - 1.0).abs() < 1e-6, "{part}: {sum}");
        }
    }
}
