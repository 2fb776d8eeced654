//! The factors of a packed weight: its scales and offsets.

use half::f16;
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};

use super::isa::Dots;
use crate::aligned::WeightBuf;
use crate::simd::LANES;

/// Largest relative error of a factor in f16: half a unit of its last place.
const F16_ERROR_MAX: f32 = 1.0 / 2048.0;

/// The format of the factors of one weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FactorFormat {
    /// IEEE binary16. In groups of 32, a factor takes half a bit for each weight.
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
    /// Returns whether the format represents `x` exactly.
    pub(super) fn is_exact(self, x: f32) -> bool {
        self == Self::F32 || self.rounded(x) == x
    }

    /// Returns whether a group's factors lose almost nothing in this format. A scale may lose 2⁻¹¹
    /// of itself. An offset may lose 2⁻¹¹ of itself or of the scale, whichever is larger.
    pub(super) fn holds(self, scale: f32, offset: f32) -> bool {
        let near = |x: f32, unit: f32| (self.rounded(x) - x).abs() <= unit * F16_ERROR_MAX;
        self == Self::F32
            || (near(scale, scale.abs()) && near(offset, offset.abs().max(scale.abs())))
    }

    /// Returns the number of this format that is nearest to `x`.
    #[inline]
    pub(super) fn rounded(self, x: f32) -> f32 {
        match self {
            Self::F16 => f16::from_f32(x).to_f32(),
            Self::F32 => x,
        }
    }
}

impl Factors {
    /// Returns the format of the factors.
    pub(super) fn format(&self) -> FactorFormat {
        match self {
            Self::F16(_) => FactorFormat::F16,
            Self::F32(_) => FactorFormat::F32,
        }
    }

    /// Returns the bytes of the factors, as in memory.
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::F16(bits) => bits.bytes(),
            Self::F32(values) => values.bytes(),
        }
    }

    /// Fills `wide` with the factors from `at` on, widened exactly.
    ///
    /// # Panics
    /// If there are fewer factors than `wide` has room for.
    pub(super) fn widen_into(&self, at: usize, wide: &mut [f32]) {
        match self {
            Self::F16(bits) => {
                let halves: &[f16] = bits[at..at + wide.len()].reinterpret_cast();
                halves.convert_to_f32_slice(wide);
            }
            Self::F32(values) => wide.copy_from_slice(&values[at..at + wide.len()]),
        }
    }

    /// Returns the factors of panel `panel`. Each panel has `len` factors.
    ///
    /// # Panics
    /// If there is no such panel.
    #[inline(always)]
    pub(super) fn panel(&self, panel: usize, len: usize) -> PanelFactors<'_> {
        match self {
            Self::F16(bits) => PanelFactors::F16(&bits[panel * len..][..len]),
            Self::F32(values) => PanelFactors::F32(&values[panel * len..][..len]),
        }
    }
}

/// Factors of one panel.
#[derive(Debug, Clone, Copy)]
pub(super) enum PanelFactors<'a> {
    /// Bits of IEEE binary16.
    F16(&'a [u16]),
    /// IEEE binary32.
    F32(&'a [f32]),
}

impl PanelFactors<'_> {
    /// Loads the sixteen factors from `at` on.
    ///
    /// # Panics
    /// If there are fewer.
    #[inline(always)]
    pub(super) fn load<D: Dots>(self, dots: D, at: usize) -> D::Floats {
        match self {
            Self::F16(bits) => dots.load_f16(&bits[at..].as_chunks::<LANES>().0[0]),
            Self::F32(values) => dots.load(&values[at..].as_chunks::<LANES>().0[0]),
        }
    }
}
