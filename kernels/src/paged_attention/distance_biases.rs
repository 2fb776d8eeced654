//! Biases of scores by the distance between query and key: the relative positions of T5 (Raffel et
//! al. 2020, <https://arxiv.org/abs/1910.10683>), which MPNet has, too.

use burn::tensor::Device;

use crate::KernelError;
use crate::WeightVector;
use crate::allocator::try_zeroed;
use crate::device::Place;
use crate::simd::LANES;

/// A number for each head and each distance `j - i` from `1 - positions` to `positions - 1`.
#[derive(Debug)]
pub struct DistanceBiases {
    /// `[num_heads, 2 * positions - 1]`, each row with padding behind it, so that a vector of lanes
    /// may begin at any of its elements.
    rows: Vec<f32>,
    positions: usize,
    /// The same numbers on the GPU, if they are for one.
    #[cfg_attr(not(feature = "gpu"), expect(dead_code, reason = "only GPUs read it"))]
    on_device: Option<WeightVector>,
}

impl DistanceBiases {
    /// Returns biases for sequences of at most `positions` tokens. `bias` returns that of a head
    /// and a distance `j - i`.
    ///
    /// # Errors
    /// [`KernelError::OutOfMemory`], and a device without kernels.
    pub fn new(
        num_heads: usize,
        positions: usize,
        bias: impl Fn(usize, i64) -> f32,
        device: &Device,
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
        let on_device = match Place::of(device, "biases of distances")? {
            Place::Cpu => None,
            #[cfg(feature = "gpu")]
            Place::Cube(_) => Some(WeightVector::new(rows.clone(), device)?),
        };
        Ok(Self { rows, positions, on_device })
    }

    /// Returns the longest sequence in tokens.
    #[must_use]
    pub fn positions(&self) -> usize {
        self.positions
    }

    /// Returns the numbers on the GPU that they were made for.
    #[cfg(feature = "gpu")]
    pub(super) fn on_device(&self) -> &WeightVector {
        match &self.on_device {
            Some(rows) => rows,
            None => unreachable!("paged_attention: biases of distances are not on the GPU"),
        }
    }

    /// Returns the elements from one head to the next, and those before the distance 0.
    #[cfg(feature = "gpu")]
    pub(super) fn strides(&self) -> [usize; 2] {
        [stride(self.positions), self.positions - 1]
    }

    /// Returns the number of heads.
    #[must_use]
    pub fn num_heads(&self) -> usize {
        self.rows.len() / stride(self.positions)
    }

    /// Returns the biases of the distances from `first` on.
    #[inline(always)]
    pub(crate) fn lanes(&self, head: usize, first: i64) -> [f32; LANES] {
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
        let biases = DistanceBiases::new(3, 5, bias, &Device::flex()).unwrap();
        assert_eq!(biases.num_heads(), 3);
        for (head, distance) in [(0, -4), (0, 4), (1, 0), (2, -4), (2, 4)] {
            assert_eq!(biases.of(head, distance), bias(head, distance));
        }
        assert_eq!(biases.lanes(1, 3)[..2], [103.0, 104.0]);
    }
}
