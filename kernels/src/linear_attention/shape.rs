//! The heads of a layer, and the order of their states in memory.

use std::ops::Range;

use super::WHAT;
use crate::KernelError;
use crate::simd::LANES;

/// Most vectors of a tile: enough independent sums to keep the units busy, and few enough for the
/// registers.
const TILE_VECTORS: usize = 4;

/// The heads of linear attention. The state of a head is a matrix `[key_dim, value_dim]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinearHeads {
    /// Heads of queries and of keys; a divisor of the number of heads.
    pub num_key_heads: usize,
    /// Heads of values, of states and of outputs.
    pub num_heads: usize,
    /// Elements of a query and of a key.
    pub key_dim: usize,
    /// Elements of a value.
    pub value_dim: usize,
}

/// Neighbouring columns of the state of one head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tile {
    pub(super) head: usize,
    /// The first column.
    pub(super) column: usize,
    /// Vectors of columns; the last may have columns beyond the state.
    pub(super) vectors: usize,
}

impl LinearHeads {
    /// Checks that there are heads, and that key heads divide them.
    ///
    /// # Errors
    /// The first field that fails.
    pub(super) fn check(&self) -> Result<(), KernelError> {
        let Self { num_key_heads, num_heads, key_dim, value_dim } = *self;
        let fields = [
            ("num_key_heads", num_key_heads),
            ("num_heads", num_heads),
            ("key_dim", key_dim),
            ("value_dim", value_dim),
        ];
        for (field, value) in fields {
            KernelError::require(value > 0, WHAT, field, 0, "at least 1")?;
        }
        let divides = num_heads.is_multiple_of(num_key_heads);
        let accepted = format!("a divisor of {num_heads}");
        KernelError::require(divides, WHAT, "num_key_heads", num_key_heads as u64, accepted)
    }

    /// Returns the elements of a token's queries, keys and values together.
    pub(super) fn inputs(&self) -> usize {
        2 * self.num_key_heads * self.key_dim + self.num_heads * self.value_dim
    }

    /// Returns the elements of a token's output.
    pub(super) fn outputs(&self) -> usize {
        self.num_heads * self.value_dim
    }

    /// Returns the tiles of all heads.
    pub(super) fn num_tiles(&self) -> usize {
        self.num_heads * self.tiles_of_head()
    }

    /// Returns the tiles of one head.
    fn tiles_of_head(&self) -> usize {
        self.value_dim.div_ceil(TILE_VECTORS * LANES)
    }

    /// Returns the f32 of the states of all heads of a layer, with padding.
    #[must_use]
    pub fn state_len(&self) -> usize {
        self.num_heads * self.head_len()
    }

    /// Returns the factors of the elements of normalised queries, then of keys, of all key heads.
    /// A vector of a root mean square of 1 gets a length of `1 / √key_dim`, or of 1.
    #[cfg(feature = "gpu")]
    pub(super) fn key_scales(&self) -> Vec<f32> {
        let (len, dim) = (self.num_key_heads * self.key_dim, self.key_dim as f32);
        [dim.recip(), dim.sqrt().recip()].into_iter().flat_map(|x| vec![x; len]).collect()
    }

    /// Returns the elements of the state of one head: tiles, each `[key_dim, its columns]`.
    fn head_len(&self) -> usize {
        self.key_dim * self.value_dim.next_multiple_of(LANES)
    }

    /// Returns tile `index` of all tiles, head by head.
    pub(super) fn tile(&self, index: usize) -> Tile {
        let (head, of_head) = (index / self.tiles_of_head(), index % self.tiles_of_head());
        let column = of_head * TILE_VECTORS * LANES;
        let vectors = (self.value_dim - column).div_ceil(LANES).min(TILE_VECTORS);
        Tile { head, column, vectors }
    }

    /// Returns the place of a tile in the states of all heads.
    pub(super) fn place(&self, tile: &Tile) -> Range<usize> {
        let start = tile.head * self.head_len() + self.key_dim * tile.column;
        start..start + self.key_dim * tile.vectors * LANES
    }

    /// Returns the query and the key of a token, and its values in the columns of `tile`.
    #[inline(always)]
    pub(super) fn rows_of<'a>(&self, qkv: &'a [f32], token: usize, tile: &Tile) -> [&'a [f32]; 3] {
        let Self { num_key_heads, num_heads, key_dim, value_dim } = *self;
        let row = &qkv[token * self.inputs()..][..self.inputs()];
        let (keys, values) = row.split_at(2 * num_key_heads * key_dim);
        let key_head = tile.head / (num_heads / num_key_heads);
        let key = |head: usize| &keys[head * key_dim..][..key_dim];
        let columns = (value_dim - tile.column).min(tile.vectors * LANES);
        let value = &values[tile.head * value_dim + tile.column..][..columns];
        [key(key_head), key(num_key_heads + key_head), value]
    }

    /// Returns the place of a token's output in the columns of `tile`.
    #[inline(always)]
    pub(super) fn output_at(&self, token: usize, tile: &Tile) -> usize {
        token * self.outputs() + tile.head * self.value_dim + tile.column
    }
}
