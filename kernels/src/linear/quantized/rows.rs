//! The rows of a weight that is being packed, and their source in ready-made matrices.

use super::ActivationDtype;
use super::e2m1;
use super::factors::FactorFormat;
use super::pack::{CodeFormat, Groups, Header, OffsetKind, WHAT};
use crate::{Codes, KernelError, Offsets, QuantizedMatrix};

/// One output's codes and factors.
pub(crate) struct CodedRow {
    /// Codes as the packed weight counts them, from 0: `[inputs]`.
    pub(crate) codes: Vec<u8>,
    /// One scale a group.
    pub(super) scales: Vec<f32>,
    /// One offset a group; 0 where there are none, or zero points in their place.
    pub(super) offsets: Vec<f32>,
}

impl CodedRow {
    pub(super) fn new(header: &Header) -> Self {
        let groups = header.groups.count();
        let codes = vec![0; header.groups.inputs];
        Self { codes, scales: vec![0.0; groups], offsets: vec![0.0; groups] }
    }

    /// Returns scale and offset of each group.
    #[cfg(feature = "gpu")]
    pub(crate) fn factors(&self) -> impl Iterator<Item = (f32, f32)> {
        self.scales.iter().copied().zip(self.offsets.iter().copied())
    }

    /// Turns zero points of the groups into offsets.
    #[cfg(feature = "gpu")]
    pub(super) fn offset_by(&mut self, zero_points: &[i8]) {
        for ((offset, scale), zero) in self.offsets.iter_mut().zip(&self.scales).zip(zero_points) {
            *offset -= scale * f32::from(*zero);
        }
    }
}

/// The rows of a weight.
pub(super) trait CodedRows: Sync {
    /// Reads row `output`. Its factors are for storage in `format`.
    fn read(&self, output: usize, format: FactorFormat, row: &mut CodedRow);

    /// Returns whether `format` holds the factors of a group as precisely as needed: exactly.
    fn are_held(&self, format: FactorFormat, scale: f32, offset: f32) -> bool {
        format.is_exact(scale) && format.is_exact(offset)
    }

    /// Reads the zero points of the groups of row `output`. Leaves `zero_points` as they are if it
    /// has none.
    fn zero_points(&self, output: usize, zero_points: &mut [i8]) {
        let _ = (output, zero_points);
    }
}

/// Matrices that are already quantized, stacked along the outputs.
pub(super) struct ReadyMade<'a> {
    parts: &'a [QuantizedMatrix],
    groups: Groups,
    offsets: OffsetKind,
    activations: ActivationDtype,
}

impl<'a> ReadyMade<'a> {
    /// Returns the header of the packed form of parts that go together, and their rows.
    ///
    /// # Errors
    /// No parts, or parts that differ in more than their outputs.
    pub(super) fn new(
        parts: &'a [QuantizedMatrix],
        activations: ActivationDtype,
    ) -> Result<(Header, Self), KernelError> {
        let Some(first) = parts.first() else {
            let (field, expected) = ("parts".to_owned(), 1);
            return Err(KernelError::Length { what: WHAT, field, got: 0, expected });
        };
        for (i, part) in parts.iter().enumerate() {
            let same = [
                ("in_features", part.in_features() == first.in_features()),
                ("group_size", part.group_size() == first.group_size()),
                ("codes", format(part) == format(first)),
                ("input_order", part.input_order() == first.input_order()),
            ];
            if let Some((field, _)) = same.into_iter().find(|(_, same)| !same) {
                let field = field.to_owned();
                return Err(KernelError::PartsDiffer { what: WHAT, field, part: i });
            }
        }
        let groups = Groups::new(first.in_features(), first.group_size())?;
        let format = format(first);
        let has_values = parts.iter().any(|part| matches!(part.offsets(), Offsets::Values(_)));
        let common_zero = common_zero(parts, format);
        let offsets = match common_zero {
            _ if has_values => OffsetKind::Values,
            Some(_) => OffsetKind::None,
            None => OffsetKind::ZeroPoints,
        };
        let header = Header {
            outputs: parts.iter().map(QuantizedMatrix::out_features).sum(),
            groups,
            format,
            zero: common_zero.filter(|_| !has_values).unwrap_or(code_zero(format)),
            offsets,
        };
        Ok((header, Self { parts, groups, offsets, activations }))
    }

    /// Returns the part that row `output` belongs to, and the row's index there.
    fn part(&self, output: usize) -> (&QuantizedMatrix, usize) {
        let mut output = output;
        let mut parts = self.parts.iter();
        let part = parts.find(|part| {
            let is_here = output < part.out_features();
            output -= if is_here { 0 } else { part.out_features() };
            is_here
        });
        let Some(part) = part else { unreachable!("an output beyond all parts") };
        (part, output)
    }

    /// Returns for each group of a packed row the index of its factors in the part. Groups of the
    /// part may have been cut, so that sums do not overflow.
    fn factors_of(&self, part: &QuantizedMatrix, output: usize) -> impl Iterator<Item = usize> {
        let cuts = part.group_size() / self.groups.size;
        let first = output * (part.in_features() / part.group_size());
        (0..self.groups.count()).map(move |g| first + g / cuts)
    }
}

fn format(matrix: &QuantizedMatrix) -> CodeFormat {
    match matrix.codes() {
        Codes::U4(_) => CodeFormat::U4,
        Codes::I8(_) => CodeFormat::U8,
        Codes::E2M1(_) => CodeFormat::E2M1,
    }
}

/// Returns the packed code for a code of 0.
fn code_zero(format: CodeFormat) -> u8 {
    match format {
        CodeFormat::U4 => 0,
        CodeFormat::U8 => 128,
        CodeFormat::E2M1 => e2m1::ZERO,
    }
}

/// Returns the packed code that stands for zero in every group, if there is one. A group of zeros,
/// whose scale is 0, may have any.
fn common_zero(parts: &[QuantizedMatrix], format: CodeFormat) -> Option<u8> {
    let mut common = None;
    for part in parts {
        let scales = part.scales().iter();
        let zero_points: &mut dyn Iterator<Item = i8> = match part.offsets() {
            Offsets::ZeroPoints(zero_points) => &mut zero_points.iter().copied(),
            Offsets::None | Offsets::Values(_) => &mut std::iter::repeat(0),
        };
        for (_, zero_point) in scales.zip(zero_points).filter(|(scale, _)| **scale != 0.0) {
            if *common.get_or_insert(zero_point) != zero_point {
                return None;
            }
        }
    }
    Some(code_zero(format).wrapping_add_signed(common.unwrap_or(0)))
}

impl CodedRows for ReadyMade<'_> {
    fn read(&self, output: usize, _: FactorFormat, row: &mut CodedRow) {
        let (part, output) = self.part(output);
        let (inputs, first) = (part.in_features(), output * part.in_features());
        match part.codes() {
            Codes::U4(bytes) | Codes::E2M1(bytes) => {
                let bytes = &bytes[first / 2..][..inputs / 2];
                for (codes, byte) in row.codes.as_chunks_mut::<2>().0.iter_mut().zip(bytes) {
                    *codes = [byte & 15, byte >> 4];
                }
            }
            Codes::I8(values) => {
                for (code, value) in row.codes.iter_mut().zip(&values[first..]) {
                    *code = (*value as u8) ^ 0x80;
                }
            }
        }
        let step = if let Codes::E2M1(_) = part.codes() { e2m1::STEP } else { 1.0 };
        let factors = row.scales.iter_mut().zip(&mut row.offsets);
        for ((scale, offset), at) in factors.zip(self.factors_of(part, output)) {
            *scale = part.scales()[at] * step;
            // A part without offsets may follow one with offsets: no value of the row before may
            // stay.
            *offset = match (self.offsets, part.offsets()) {
                (OffsetKind::Values, Offsets::Values(values)) => values[at],
                (OffsetKind::Values, Offsets::ZeroPoints(zero_points)) => {
                    -f32::from(zero_points[at]) * *scale
                }
                _ => 0.0,
            };
        }
    }

    /// Activations of 8 bits lose more than factors in f16 do: `1 / 254` of the largest, compared
    /// with `1 / 4096`.
    fn are_held(&self, format: FactorFormat, scale: f32, offset: f32) -> bool {
        match self.activations {
            ActivationDtype::Int8 => format.holds(scale, offset),
            _ => format.is_exact(scale) && format.is_exact(offset),
        }
    }

    fn zero_points(&self, output: usize, zero_points: &mut [i8]) {
        if self.offsets != OffsetKind::ZeroPoints {
            return;
        }
        let (part, output) = self.part(output);
        for (zero_point, at) in zero_points.iter_mut().zip(self.factors_of(part, output)) {
            *zero_point = match part.offsets() {
                Offsets::ZeroPoints(zero_points) => zero_points[at],
                Offsets::None | Offsets::Values(_) => 0,
            };
        }
    }
}
