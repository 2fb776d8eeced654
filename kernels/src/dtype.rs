//! The number formats of weights, in files and in memory.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// The format in which a weight is kept and computed. Sums are f32 in every format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WeightDtype {
    /// IEEE binary32.
    F32,
    /// IEEE binary16. Only on GPUs.
    F16,
    /// bfloat16: the upper half of an f32.
    Bf16,
}

impl WeightDtype {
    /// Returns the name that users write.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "float32",
            Self::F16 => "float16",
            Self::Bf16 => "bfloat16",
        }
    }

    /// Returns the bytes of one element.
    #[must_use]
    pub fn size_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }
}

/// Row-major data of a checkpoint, in the format of the file.
#[derive(Debug, Clone, Copy)]
pub enum WeightView<'a> {
    /// IEEE binary32.
    F32(&'a [f32]),
    /// IEEE binary16.
    F16(&'a [f16]),
    /// bfloat16.
    Bf16(&'a [bf16]),
}

impl WeightView<'_> {
    /// Returns the number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::F32(data) => data.len(),
            Self::F16(data) => data.len(),
            Self::Bf16(data) => data.len(),
        }
    }

    /// Returns whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns all elements, widened exactly.
    #[must_use]
    pub fn to_f32(&self) -> Vec<f32> {
        (0..self.len()).map(|i| self.f32_at(i)).collect()
    }

    /// Returns element `i`, widened exactly.
    #[inline]
    pub(crate) fn f32_at(&self, i: usize) -> f32 {
        match self {
            Self::F32(data) => data[i],
            Self::F16(data) => data[i].to_f32(),
            Self::Bf16(data) => data[i].to_f32(),
        }
    }

    /// Fills `out` with the elements from `start` on, widened exactly.
    pub(crate) fn widen_into(&self, start: usize, out: &mut [f32]) {
        let range = start..start + out.len();
        match self {
            Self::F32(data) => out.copy_from_slice(&data[range]),
            Self::F16(data) => data[range].convert_to_f32_slice(out),
            Self::Bf16(data) => data[range].convert_to_f32_slice(out),
        }
    }

    /// Returns element `i`, rounded to the nearest bfloat16 (ties to even); exact for bf16 data.
    #[inline]
    pub(crate) fn bf16_at(&self, i: usize) -> bf16 {
        match self {
            Self::F32(data) => bf16::from_f32(data[i]),
            Self::F16(data) => bf16::from_f32(data[i].to_f32()),
            Self::Bf16(data) => data[i],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_widens_exactly() {
        let values = [1.5, -0.25, 0.0, 1024.0];
        let halves: Vec<f16> = values.iter().map(|v| f16::from_f32(*v)).collect();
        let brains: Vec<bf16> = values.iter().map(|v| bf16::from_f32(*v)).collect();
        for view in [WeightView::F32(&values), WeightView::F16(&halves), WeightView::Bf16(&brains)]
        {
            assert_eq!(view.to_f32(), values);
            let mut last = [0.0; 3];
            view.widen_into(1, &mut last);
            assert_eq!(last, values[1..]);
            assert_eq!(view.len(), 4);
            assert!(!view.is_empty());
        }
    }
}
