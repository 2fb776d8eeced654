//! Tiles of an image, and how many of them it has.

use playhouse_actors::logic::request::media::{MediaDtype, MediaTensor, ProcessedMedia};

use super::resize::Pixels;

/// Returns the most tiles of `side` pixels on a side of `longest`.
pub(super) fn on_a_side(longest: usize, side: usize) -> usize {
    longest.div_ceil(side)
}

/// Returns the tiles of an image of `rows` and `columns` of them, row by row.
pub(super) fn cut(image: &Pixels, [rows, columns]: [usize; 2], side: usize) -> Vec<Pixels> {
    let tile = |at: usize| {
        let from = [at / columns * side, at % columns * side].map(|at| at as isize);
        image.part(from, [side, side], [0; 3])
    };
    (0..rows * columns).map(tile).collect()
}

/// Returns the item with the rows and columns of its tiles. They are the shape of a second tensor,
/// which has no elements.
pub(super) fn with_grid(media: ProcessedMedia, grid: [usize; 2]) -> ProcessedMedia {
    let mut tensors = media.tensors;
    let shape = vec![grid[0], grid[1], 0];
    tensors.push(MediaTensor { shape, dtype: MediaDtype::U8, data: Vec::new().into() });
    ProcessedMedia { tensors, ..media }
}

/// Returns the rows and columns of an item's tiles; none if it is one image.
pub(super) fn grid(media: &ProcessedMedia) -> [usize; 2] {
    match media.tensors.get(1).map(|tensor| &*tensor.shape) {
        Some([rows, columns, 0]) => [*rows, *columns],
        _ => [0, 0],
    }
}

/// Returns the rows and columns of at most `most` tiles in which an image of `[height, width]`
/// grows least. If it must shrink, those in which it shrinks least: HF `get_optimal_tiled_canvas`
/// of Command A Vision.
pub(super) fn least_scaled([height, width]: [usize; 2], side: usize, most: usize) -> [usize; 2] {
    let mut all: Vec<[usize; 2]> = (1..=most)
        .flat_map(|columns| (1..=most).map(move |rows| [rows, columns]))
        .filter(|[rows, columns]| rows * columns <= most)
        .collect();
    all.sort_by_key(|[rows, columns]| rows * columns);
    least_scaled_by(all, |[rows, columns]| {
        let across = (columns * side) as f64 / width as f64;
        across.min((rows * side) as f64 / height as f64)
    })
}

/// Returns the grid of `grids` whose `scale` is the least from 1 on, or else the largest one. Of
/// grids with the same scale, the first one counts.
pub(super) fn least_scaled_by(
    grids: impl IntoIterator<Item = [usize; 2]>,
    scale: impl Fn([usize; 2]) -> f64,
) -> [usize; 2] {
    let (mut best, mut found) = ([1, 1], f64::NEG_INFINITY);
    for grid in grids {
        let own = scale(grid);
        let is_better = match found < 1.0 {
            true => own > found,
            false => own >= 1.0 && own < found,
        };
        if is_better {
            (best, found) = (grid, own);
        }
    }
    best
}

/// Returns the rows and columns of at most `most` tiles, and at least `least`, whose ratio is
/// nearest to that of an image of `[height, width]`: HF `get_optimal_tiled_canvas` of GOT-OCR 2.
pub(super) fn nearest_ratio(
    [height, width]: [usize; 2],
    side: usize,
    [least, most]: [usize; 2],
) -> [usize; 2] {
    let ratio = width as f64 / height as f64;
    let area = (width * height) as f64;
    let (mut best, mut nearest) = ([1, 1], f64::INFINITY);
    for [rows, columns] in within([least, most]) {
        let difference = (ratio - columns as f64 / rows as f64).abs();
        let is_large = area > 0.5 * (side * side * rows * columns) as f64;
        if difference < nearest || difference == nearest && is_large {
            (best, nearest) = ([rows, columns], difference);
        }
    }
    best
}

/// Returns the rows and columns of at most `most` tiles, and at least `least`, that are best for an
/// image of `[height, width]`: the share of its area that they have, up to 0.6, times the likeness
/// of their ratio and its own. `find_closest_aspect_ratio` of the authors of Llama Nemotron VL, and
/// of vLLM.
pub(super) fn best_covered(
    [height, width]: [usize; 2],
    side: usize,
    [least, most]: [usize; 2],
) -> [usize; 2] {
    let ratio = width as f64 / height as f64;
    let area = (width * height) as f64;
    let (mut best, mut found) = ([1, 1], f64::NEG_INFINITY);
    for [rows, columns] in within([least, most]) {
        let own = columns as f64 / rows as f64;
        let share = (rows * columns * side * side) as f64 / area;
        let factor = share.min(0.6) * (own / ratio).min(ratio / own);
        if factor > found {
            (best, found) = ([rows, columns], factor);
        }
    }
    best
}

/// Returns the rows and columns of all counts of tiles from `least` to `most`, by their count.
fn within([least, most]: [usize; 2]) -> Vec<[usize; 2]> {
    let mut all: Vec<[usize; 2]> = (1..=most)
        .flat_map(|columns| (1..=most).map(move |rows| [rows, columns]))
        .filter(|[rows, columns]| (least..=most).contains(&(rows * columns)))
        .collect();
    all.sort_by_key(|[rows, columns]| rows * columns);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The code of the authors of Llama Nemotron VL chose these. More tiles may be better than
    /// those of the very ratio of an image.
    #[test]
    fn the_best_tiles_cover_more_of_an_image() {
        for (size, limits, best, nearest) in [
            ([512, 512], [1, 6], [1, 1], [1, 1]),
            ([1080, 1920], [1, 6], [2, 3], [1, 2]),
            ([1920, 1080], [1, 6], [3, 2], [2, 1]),
            ([100, 1000], [1, 6], [1, 6], [1, 6]),
            ([512, 1024], [2, 4], [1, 2], [1, 2]),
            ([480, 640], [1, 2], [1, 1], [1, 1]),
            ([3000, 1000], [1, 12], [6, 2], [6, 2]),
        ] {
            assert_eq!(best_covered(size, 512, limits), best, "{size:?}");
            assert_eq!(nearest_ratio(size, 512, limits), nearest, "{size:?}");
        }
    }
}
