//! Rows cut into register tiles.

use std::ops::Range;

/// Numbers of rows that have compiled tiles. A row's sums do not depend on its tile.
const SIZES: [usize; 6] = [12, 8, 4, 3, 2, 1];

/// The same for instruction sets with few registers.
const FEW: [usize; 5] = [FEW_MAX, 4, 3, 2, 1];
const FEW_MAX: usize = 6;

/// An iterator that cuts rows into tiles of at most `max` rows, large ones first. Six rows are one
/// tile only where six is the most.
#[derive(Debug, Clone)]
pub(crate) struct Tiles {
    rows: Range<usize>,
    max: usize,
}

impl Tiles {
    pub(crate) fn new(rows: usize, max: usize) -> Self {
        debug_assert!(max > 0);
        Self { rows: 0..rows, max }
    }
}

impl Iterator for Tiles {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let most = self.rows.len().min(self.max);
        let sizes: &[usize] = if self.max == FEW_MAX { &FEW } else { &SIZES };
        let size = *sizes.iter().find(|size| **size <= most)?;
        let start = self.rows.start;
        self.rows.start += size;
        Some(start..start + size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_cover_all_rows_in_order() {
        for max in [1, 3, 4, FEW_MAX, 12] {
            for rows in 0..40 {
                let mut next = 0;
                for tile in Tiles::new(rows, max) {
                    assert_eq!(tile.start, next);
                    let size = tile.len();
                    assert!(
                        size <= max && (SIZES.contains(&size) || max == FEW_MAX && size == max)
                    );
                    next = tile.end;
                }
                assert_eq!(next, rows);
            }
        }
    }
}
