//! Weights that are quantized at load.

use super::activations::{MAGNITUDE_MIN, magnitude};
use super::factors::FactorFormat;
use super::isa::{Dots, DotsIsa, DotsTask};
use super::pack::{CodeFormat, Groups, Header, OffsetKind};
use super::rows::{CodedRow, CodedRows};
use crate::simd::{Isa, LANES};
use crate::{KernelError, WeightView};

/// The scheme by which weights become small integers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum QuantizationScheme {
    /// 8 bits, symmetric, with one scale an output.
    Int8,
    /// 4 bits in groups of neighbouring inputs, each with the scale of least squared error.
    Int4 {
        /// Inputs of a group, a multiple of 8. Groups of up to 32 are symmetric: an offset would
        /// cost a small group more bytes than it saves error.
        group_size: usize,
    },
}

/// Largest group of symmetric 4-bit codes. Measured on normal weights, as signal to noise: groups
/// of 32 with a scale have 21.8 dB. Groups of 64 with scale and offset, in the same bytes, have
/// 21.5 dB. Groups of 128 gain 0.3 dB by an offset for 3 % more bytes.
const SYMMETRIC_GROUP_MAX: usize = 32;

/// The code of a symmetric weight of 0.
const ZERO_U8: u8 = 128;
const ZERO_U4: u8 = 8;

/// Candidates for a group's scale, as shares of the scale that clips nothing. The best of them
/// clips a few weights and represents the others better.
const SYMMETRIC_SHARES: [f32; 12] =
    [1.0, 1.05, 0.97, 0.94, 0.91, 0.88, 0.85, 0.82, 0.79, 0.76, 0.73, 0.7];
const ASYMMETRIC_SHARES: [f32; 9] = [1.0, 0.97, 0.94, 0.91, 0.88, 0.85, 0.82, 0.78, 0.74];

impl QuantizationScheme {
    /// Returns the header of the packed form of `outputs` rows of `inputs`.
    ///
    /// # Errors
    /// A group size that is not accepted, or more inputs than one sum can take.
    pub(super) fn header(self, outputs: usize, inputs: usize) -> Result<Header, KernelError> {
        let (format, size) = match self {
            Self::Int8 => (CodeFormat::U8, inputs),
            Self::Int4 { group_size } => (CodeFormat::U4, group_size),
        };
        let accepted = "a multiple of 8";
        let is_size = format == CodeFormat::U8 || (size > 0 && size.is_multiple_of(8));
        KernelError::require(is_size, super::pack::WHAT, "group_size", size as u64, accepted)?;
        let (zero, offsets) = match format {
            CodeFormat::U8 => (ZERO_U8, OffsetKind::None),
            CodeFormat::U4 if size > SYMMETRIC_GROUP_MAX => (0, OffsetKind::Values),
            CodeFormat::U4 | CodeFormat::E2M1 => (ZERO_U4, OffsetKind::None),
        };
        Ok(Header { outputs, groups: Groups::new(inputs, size)?, format, zero, offsets })
    }
}

/// Rows of numbers, stacked along the outputs, quantized as they are read.
pub(super) struct Quantizing<'a> {
    parts: &'a [WeightView<'a>],
    header: Header,
    isa: DotsIsa,
}

impl<'a> Quantizing<'a> {
    /// Makes the rows for `header`, which comes from [`QuantizationScheme::header`].
    pub(super) fn new(parts: &'a [WeightView<'a>], header: Header) -> Self {
        Self { parts, header, isa: DotsIsa::of(Isa::active()) }
    }
}

impl CodedRows for Quantizing<'_> {
    fn read(&self, output: usize, factors: FactorFormat, row: &mut CodedRow) {
        let inputs = self.header.groups.inputs;
        let mut start = output * inputs;
        let mut parts = self.parts.iter();
        let part = parts.find(|part| {
            let is_here = start < part.len();
            start -= if is_here { 0 } else { part.len() };
            is_here
        });
        let Some(part) = part else { unreachable!("an output beyond all parts") };
        let mut values = vec![0.0; inputs];
        part.widen_into(start, &mut values);
        self.isa.run(QuantizeRow { header: &self.header, values: &values, factors, row });
    }
}

struct QuantizeRow<'a> {
    header: &'a Header,
    values: &'a [f32],
    factors: FactorFormat,
    row: &'a mut CodedRow,
}

impl DotsTask for QuantizeRow<'_> {
    type Output = ();

    #[inline(always)]
    fn run<D: Dots>(self, _: D) {
        let Self { header, values, factors, row } = self;
        let size = header.groups.size;
        for (g, (x, codes)) in values.chunks(size).zip(row.codes.chunks_mut(size)).enumerate() {
            let grid = match header.format {
                CodeFormat::U8 => Grid::eight_bits(x),
                CodeFormat::U4 if header.offsets == OffsetKind::Values => Grid::with_offset(x),
                // No scheme makes E2M1.
                CodeFormat::U4 | CodeFormat::E2M1 => Grid::symmetric(x),
            };
            let grid = grid.rounded(factors);
            grid.codes(x, codes);
            (row.scales[g], row.offsets[g]) = (grid.scale, grid.offset);
        }
    }
}

/// The values that the codes of a group stand for: `scale · (code - zero) + offset`.
#[derive(Debug, Clone, Copy)]
struct Grid {
    scale: f32,
    offset: f32,
    zero: f32,
    code_max: f32,
}

impl Grid {
    /// Returns symmetric codes of 8 bits, with the largest magnitude at the end of the range.
    #[inline(always)]
    fn eight_bits(x: &[f32]) -> Self {
        Self { scale: magnitude(x) / 127.0, offset: 0.0, zero: f32::from(ZERO_U8), code_max: 255.0 }
    }

    /// Returns symmetric codes of 4 bits. The weight of the largest magnitude lies on the side with
    /// one more code.
    #[inline(always)]
    fn symmetric(x: &[f32]) -> Self {
        let all = Self { scale: 0.0, offset: 0.0, zero: f32::from(ZERO_U4), code_max: 15.0 };
        let magnitude = magnitude(x);
        if magnitude.is_nan() {
            return Self { scale: magnitude, ..all };
        }
        let is_negative = x.contains(&-magnitude);
        let full = if is_negative { magnitude } else { -magnitude } / f32::from(ZERO_U4);
        let mut best = (f32::NEG_INFINITY, Self { scale: full, ..all });
        for share in SYMMETRIC_SHARES {
            let grid = Self { scale: full * share, ..all };
            let Moments { qq, xq, .. } = grid.moments(x);
            let explained = xq * xq / qq;
            if explained > best.0 {
                best = (explained, Self { scale: xq / qq, ..all });
            }
        }
        best.1
    }

    /// Returns codes of 4 bits from the least to the largest weight.
    #[inline(always)]
    fn with_offset(x: &[f32]) -> Self {
        let all = Self { scale: 0.0, offset: 0.0, zero: 0.0, code_max: 15.0 };
        let magnitude = magnitude(x);
        if magnitude.is_nan() {
            return Self { scale: magnitude, ..all };
        }
        let least = x.iter().copied().fold(f32::INFINITY, f32::min);
        let most = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let (middle, full) = ((least + most) / 2.0, (most - least) / all.code_max);
        let mut best = (f32::NEG_INFINITY, Self { offset: middle, ..all });
        for share in ASYMMETRIC_SHARES {
            let scale = full * share;
            let offset = middle - all.code_max / 2.0 * scale;
            let grid = Self { scale, offset, ..all };
            let Moments { x: sx, q, qq, xq } = grid.moments(x);
            let n = x.len() as f32;
            let (covariance, variance) = (n * xq - sx * q, n * qq - q * q);
            let explained = covariance * covariance / variance;
            if explained > best.0 {
                let scale = covariance / variance;
                best = (explained, Self { scale, offset: (sx - scale * q) / n, ..all });
            }
        }
        best.1
    }

    /// Returns the grid with factors as they will be kept, where those are near.
    #[inline(always)]
    fn rounded(self, factors: FactorFormat) -> Self {
        if !factors.holds(self.scale, self.offset) {
            return self;
        }
        let (scale, offset) = (factors.rounded(self.scale), factors.rounded(self.offset));
        Self { scale, offset, ..self }
    }

    #[inline(always)]
    fn inverse(&self) -> f32 {
        if self.scale.abs() < MAGNITUDE_MIN { 0.0 } else { 1.0 / self.scale }
    }

    /// Writes the nearest code of each number.
    #[inline(always)]
    fn codes(&self, x: &[f32], codes: &mut [u8]) {
        let inverse = self.inverse();
        for (code, x) in codes.iter_mut().zip(x) {
            *code = self.code(*x, inverse) as u8;
        }
    }

    #[inline(always)]
    fn code(&self, x: f32, inverse: f32) -> f32 {
        let code = nearest((x - self.offset) * inverse) + self.zero;
        let code = if code < self.code_max { code } else { self.code_max };
        if code > 0.0 { code } else { 0.0 }
    }

    /// Returns sums over a group, where `q` is a code less the zero.
    #[inline(always)]
    fn moments(&self, x: &[f32]) -> Moments {
        let inverse = self.inverse();
        let mut lanes = [[0.0f32; LANES]; 4];
        let mut add = |l: usize, x: f32| {
            let q = self.code(x, inverse) - self.zero;
            lanes[0][l] += x;
            lanes[1][l] += q;
            lanes[2][l] += q * q;
            lanes[3][l] += x * q;
        };
        let (chunks, rest) = x.as_chunks::<LANES>();
        for chunk in chunks {
            for (l, x) in chunk.iter().enumerate() {
                add(l, *x);
            }
        }
        for (l, x) in rest.iter().enumerate() {
            add(l, *x);
        }
        let [x, q, qq, xq] = lanes.map(|lanes| lanes.into_iter().sum());
        Moments { x, q, qq, xq }
    }
}

struct Moments {
    x: f32,
    q: f32,
    qq: f32,
    xq: f32,
}

/// Returns the integer nearest to a number below 2²² in magnitude, without calls, so that loops
/// vectorise.
#[inline(always)]
fn nearest(x: f32) -> f32 {
    const ROUNDING: f32 = 12_582_912.0;
    (x + ROUNDING) - ROUNDING
}
