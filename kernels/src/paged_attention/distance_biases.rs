//! Biases of scores by the distance between query and key: the relative positions of T5 (Raffel et
//! al. 2020, <https://arxiv.org/abs/1910.10683>), which MPNet has, too.

use crate::KernelError;
use crate::allocator::try_zeroed;
use crate::simd::LANES;

/// A number for each head and each distance `j - i` from `1 - positions` to `positions - 1`.
#[derive(Debug)]
pub struct DistanceBiases {
    /// `[num_heads, 2 * positions - 1]`, each row with padding behind it, so that a vector of lanes
    /// may begin at any of its elements.
    rows: Vec<f32>,
    positions: usize,
}

impl DistanceBiases {
    /// Returns biases for sequences of at most `positions` tokens. `bias` returns that of a head
    /// and a distance `j - i`.
    ///
    /// # Errors
    /// [`KernelError::OutOfMemory`].
    pub fn new(
        num_heads: usize,
        positions: usize,
        bias: impl Fn(usize, i64) -> f32,
    ) -> Result<Self, KernelError> {
        let stride = stride(positions);
        let len = num_heads.saturating_mul(stride);
        let mut rows = try_zeroed::<f32>(len, "biases of distances")?;
        let first = 1 - positions as i64;
        for (head, row) in rows.chunks_exact_mut(stride).enumerate() {
            for (at, element) in row[..2 * positions - 1].iter_mut().enumerate() {
                *element = bias(head, first + at as i64);
            }
        }
        Ok(Self { rows, positions })
    }

    /// Returns the number of heads.
    #[must_use]
    pub fn num_heads(&self) -> usize {
        self.rows.len() / stride(self.positions)
    }

    /// Returns the biases of the distances from `first` on.
    #[inline(always)]
    pub(super) fn lanes(&self, head: usize, first: i64) -> [f32; LANES] {
        let at = head * stride(self.positions) + (first + self.positions as i64 - 1) as usize;
        let mut lanes = [0.0; LANES];
        lanes.copy_from_slice(&self.rows[at..at + LANES]);
        lanes
    }

    /// Returns the bias of one distance.
    #[cfg(test)]
    pub(super) fn of(&self, head: usize, distance: i64) -> f32 {
        self.lanes(head, distance)[0]
    }
}

/// Returns the elements from one head to the next.
fn stride(positions: usize) -> usize {
    2 * positions - 1 + LANES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_distance_has_its_bias() {
        let bias = |head: usize, distance: i64| (100 * head) as f32 + distance as f32;
        let biases = DistanceBiases::new(3, 5, bias).unwrap();
        assert_eq!(biases.num_heads(), 3);
        for (head, distance) in [(0, -4), (0, 4), (1, 0), (2, -4), (2, 4)] {
            assert_eq!(biases.of(head, distance), bias(head, distance));
        }
        assert_eq!(biases.lanes(1, 3)[..2], [103.0, 104.0]);
    }
}
