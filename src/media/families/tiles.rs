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
    let scale = |[rows, columns]: [usize; 2]| {
        let across = (columns * side) as f64 / width as f64;
        across.min((rows * side) as f64 / height as f64)
    };
    let (mut best, mut found) = ([1, 1], f64::NEG_INFINITY);
    for grid in all {
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
    let mut all: Vec<[usize; 2]> = (1..=most)
        .flat_map(|columns| (1..=most).map(move |rows| [rows, columns]))
        .filter(|[rows, columns]| (least..=most).contains(&(rows * columns)))
        .collect();
    all.sort_by_key(|[rows, columns]| rows * columns);
    let (mut best, mut nearest) = ([1, 1], f64::INFINITY);
    for [rows, columns] in all {
        let difference = (ratio - columns as f64 / rows as f64).abs();
        let is_large = area > 0.5 * (side * side * rows * columns) as f64;
        if difference < nearest || difference == nearest && is_large {
            (best, nearest) = ([rows, columns], difference);
        }
    }
    best
}
