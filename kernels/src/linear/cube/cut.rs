//! How a product of few rows is cut into cubes and units.

use super::{CubeWeight, PANEL, block_len};
use crate::cube::WordFormat;

/// Most units of a cube: the number that every device takes.
const UNITS_MAX: usize = 256;

/// Most vectors of shared memory: 16 KiB, the least that a device has.
const SHARED_VECTORS: usize = 1024;

/// Cubes that keep a large GPU busy.
const CUBES_ENOUGH: usize = 512;

/// The fewest bytes of a panel that a cube reads for each input: a sector of the cache.
const CHUNK_BYTES_MIN: usize = 32;

/// How a product is cut into cubes and units. No choice changes a byte of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Cut {
    /// Chunks of a cube: a divisor of a panel's.
    pub(super) chunks: usize,
    /// Blocks of inputs, each for a unit; or more.
    pub(super) slices: usize,
    /// Panels of a cube: 2 where one gates the other.
    pub(super) panels: usize,
}

impl Cut {
    /// Cuts `cubes` pairs of a tile of rows and a panel, or two panels.
    pub(super) fn new(weight: &CubeWeight, cubes: usize, panels: usize) -> Self {
        Self::of(weight.inputs, weight.format, cubes, panels)
    }

    fn of(inputs: usize, format: WordFormat, cubes: usize, panels: usize) -> Self {
        let blocks = inputs.div_ceil(block_len(inputs));
        let slices = blocks.next_power_of_two().max(8);
        let of_panel = PANEL / format.per_chunk();
        let least = CHUNK_BYTES_MIN / size_of::<[u32; 4]>();
        let mut cut = Self { chunks: of_panel, slices, panels };
        let is_too_large =
            |cut: Self| cut.units() > UNITS_MAX || cut.units() * format.per_word() > SHARED_VECTORS;
        let is_idle = |cut: Self| cubes * (of_panel / cut.chunks) < CUBES_ENOUGH;
        while cut.chunks > 1 && (is_too_large(cut) || (cut.chunks > least && is_idle(cut))) {
            cut.chunks /= 2;
        }
        cut
    }

    /// Returns the units of a cube.
    pub(super) const fn units(self) -> usize {
        self.chunks * self.slices * self.panels
    }

    /// Returns the cubes of a panel.
    pub(super) const fn cubes_of_panel(self, format: WordFormat) -> usize {
        PANEL / format.per_chunk() / self.chunks
    }

    /// Returns the vectors that all units have of one row.
    pub(super) const fn vectors(self, format: WordFormat) -> usize {
        self.units() * format.per_word()
    }

    /// Returns the rows whose sums are in shared memory at a time.
    pub(super) fn rows_at_once(self, format: WordFormat, tile: usize) -> usize {
        (SHARED_VECTORS / self.vectors(format)).clamp(1, tile)
    }

    /// Returns the vectors of shared memory for tiles of at most `tile` rows.
    pub(super) fn shared_vectors(self, format: WordFormat, tile: usize) -> usize {
        self.rows_at_once(format, tile) * self.vectors(format)
    }
}

#[cfg(test)]
mod tests {
    use super::super::BLOCKS_MAX;
    use super::super::skinny::TILE_MAX;
    use super::*;

    const fn sizes(cut: Cut) -> [usize; 3] {
        [cut.chunks, cut.slices, cut.panels]
    }

    #[test]
    fn small_weights_are_cut_in_more_cubes() {
        let cut = |inputs, format, cubes, panels| {
            let cut = Cut::of(inputs, format, cubes, panels);
            assert!(cut.units() <= UNITS_MAX, "{cut:?}");
            assert!(cut.shared_vectors(format, TILE_MAX) <= SHARED_VECTORS, "{cut:?}");
            sizes(cut)
        };
        assert_eq!(cut(1024, WordFormat::Bf16, 2374, 1), [8, 32, 1], "the output layer");
        assert_eq!(cut(1024, WordFormat::Bf16, 64, 1), [2, 32, 1]);
        assert_eq!(cut(1024, WordFormat::Bf16, 48, 2), [2, 32, 2]);
        assert_eq!(cut(4096, WordFormat::Bf16, 6144 / 64, 1), [2, BLOCKS_MAX, 1]);
        assert_eq!(cut(14336, WordFormat::Uint4, 1024, 2), [1, BLOCKS_MAX, 2]);
        assert_eq!(cut(7, WordFormat::F32, 1, 1), [2, 8, 1]);
    }
}
