//! Where the rows of a packed weight come from: here, from ready-made matrices.

use super::factors::FactorFormat;
use super::pack::{CodeFormat, Groups, Header, WHAT};
use crate::{Codes, KernelError, QuantizedMatrix};

/// One output's codes and factors.
pub(crate) struct CodedRow {
    /// As the packed weight counts them, from 0: `[inputs]`.
    pub(crate) codes: Vec<u8>,
    /// One a group.
    pub(super) scales: Vec<f32>,
    /// One a group; 0 where there are none.
    pub(super) offsets: Vec<f32>,
}

impl CodedRow {
    pub(super) fn new(header: &Header) -> Self {
        let groups = header.groups.count();
        let codes = vec![0; header.groups.inputs];
        Self { codes, scales: vec![0.0; groups], offsets: vec![0.0; groups] }
    }

    /// Scale and offset of each group.
    pub(crate) fn factors(&self) -> impl Iterator<Item = (f32, f32)> {
        self.scales.iter().copied().zip(self.offsets.iter().copied())
    }
}

/// The rows of a weight.
pub(super) trait CodedRows: Sync {
    /// Reads row `output`, its factors meant to be kept in `format`.
    fn read(&self, output: usize, format: FactorFormat, row: &mut CodedRow);
}

/// Matrices that came quantized, stacked along the outputs.
pub(super) struct ReadyMade<'a> {
    parts: &'a [QuantizedMatrix],
    groups: Groups,
    ignore_offsets: bool,
}

impl<'a> ReadyMade<'a> {
    /// The packed form of parts that go together, and their rows.
    ///
    /// # Errors
    /// No parts, or such that differ in more than their outputs.
    pub(super) fn new(parts: &'a [QuantizedMatrix]) -> Result<(Header, Self), KernelError> {
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
        let common_zero = common_zero(parts, format);
        let header = Header {
            outputs: parts.iter().map(QuantizedMatrix::out_features).sum(),
            groups,
            format,
            zero: common_zero.unwrap_or(code_zero(format)),
            has_offsets: common_zero.is_none(),
        };
        Ok((header, Self { parts, groups, ignore_offsets: common_zero.is_some() }))
    }
}

fn format(matrix: &QuantizedMatrix) -> CodeFormat {
    match matrix.codes() {
        Codes::U4(_) => CodeFormat::U4,
        Codes::I8(_) => CodeFormat::U8,
    }
}

/// The packed code for a code of 0.
fn code_zero(format: CodeFormat) -> u8 {
    match format {
        CodeFormat::U4 => 0,
        CodeFormat::U8 => 128,
    }
}

/// The packed code that stands for zero in every group, where offsets come to no more than that.
fn common_zero(parts: &[QuantizedMatrix], format: CodeFormat) -> Option<u8> {
    let pairs = || {
        let offsets = |part: &QuantizedMatrix, i: usize| part.offsets().map_or(0.0, |o| o[i]);
        let of = move |part| {
            let scales = QuantizedMatrix::scales(part).iter().enumerate();
            scales.map(move |(i, scale)| (*scale, offsets(part, i)))
        };
        parts.iter().flat_map(of)
    };
    let zero = pairs().find(|(scale, _)| *scale != 0.0).map_or(0.0, |(s, z)| (-z / s).round());
    let (least, most) = match format {
        CodeFormat::U4 => (0.0, 15.0),
        CodeFormat::U8 => (-128.0, 127.0),
    };
    let is_common = (least..=most).contains(&zero) && pairs().all(|(s, z)| z == -zero * s);
    is_common.then(|| (f32::from(code_zero(format)) + zero) as u8)
}

impl CodedRows for ReadyMade<'_> {
    fn read(&self, output: usize, _: FactorFormat, row: &mut CodedRow) {
        let mut output = output;
        let mut parts = self.parts.iter();
        let part = parts.find(|part| {
            let is_here = output < part.out_features();
            output -= if is_here { 0 } else { part.out_features() };
            is_here
        });
        let Some(part) = part else { unreachable!("an output beyond all parts") };
        let (inputs, first) = (part.in_features(), output * part.in_features());
        match part.codes() {
            Codes::U4(bytes) => {
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
        // Groups may have been cut, so that sums do not overflow.
        let cuts = part.group_size() / self.groups.size;
        let groups = inputs / part.group_size();
        for (g, scale) in row.scales.iter_mut().enumerate() {
            *scale = part.scales()[output * groups + g / cuts];
        }
        // A part without them may follow one that has them: nothing of the row before may stay.
        let offsets = part.offsets().filter(|_| !self.ignore_offsets);
        for (g, offset) in row.offsets.iter_mut().enumerate() {
            *offset = offsets.map_or(0.0, |offsets| offsets[output * groups + g / cuts]);
        }
    }
}
