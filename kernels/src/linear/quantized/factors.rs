//! Scales and offsets, as the packed weight keeps them.

use half::f16;

use super::isa::Dots;
use crate::aligned::WeightBuf;
use crate::simd::LANES;

/// Largest relative error of a factor that f16 may bring: half a unit of its last place.
const F16_ERROR_MAX: f32 = 1.0 / 2048.0;

/// The format of the factors of one weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FactorFormat {
    /// IEEE binary16: half a bit a weight for groups of 32.
    F16,
    /// IEEE binary32.
    F32,
}

/// Factors of one weight.
#[derive(Debug)]
pub(crate) enum Factors {
    /// Bits of IEEE binary16.
    F16(WeightBuf<u16>),
    /// IEEE binary32.
    F32(WeightBuf<f32>),
}

impl FactorFormat {
    /// Whether a group's factors lose next to nothing in this format: 2⁻¹¹ of themselves, or an
    /// offset that of a step between codes.
    pub(super) fn holds(self, scale: f32, offset: f32) -> bool {
        let near = |x: f32, unit: f32| (self.rounded(x) - x).abs() <= unit * F16_ERROR_MAX;
        self == Self::F32
            || (near(scale, scale.abs()) && near(offset, offset.abs().max(scale.abs())))
    }

    /// The nearest number of this format.
    #[inline]
    pub(super) fn rounded(self, x: f32) -> f32 {
        match self {
            Self::F16 => f16::from_f32(x).to_f32(),
            Self::F32 => x,
        }
    }
}

impl Factors {
    /// Their format.
    pub(super) fn format(&self) -> FactorFormat {
        match self {
            Self::F16(_) => FactorFormat::F16,
            Self::F32(_) => FactorFormat::F32,
        }
    }

    /// As they lie in memory.
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::F16(bits) => bits.bytes(),
            Self::F32(values) => values.bytes(),
        }
    }

    /// The sixteen from `at`.
    ///
    /// # Panics
    /// If there are none.
    #[inline(always)]
    pub(super) fn load<D: Dots>(&self, dots: D, at: usize) -> D::Floats {
        match self {
            Self::F16(bits) => dots.load_f16(&bits[at..].as_chunks::<LANES>().0[0]),
            Self::F32(values) => dots.load(&values[at..].as_chunks::<LANES>().0[0]),
        }
    }
}
