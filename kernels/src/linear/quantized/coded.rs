//! A weight of small integers before it is packed, for devices with layouts of their own.

use std::ops::Range;

use super::ActivationDtype;
use super::e2m1::INTEGERS;
use super::factors::FactorFormat;
use super::pack::{CodeFormat, Header};
use super::rows::{CodedRow, CodedRows, ReadyMade};
use super::scheme::{QuantizationScheme, Quantizing};
use crate::{KernelError, QuantizedMatrix, WeightView};

/// Codes, counted from 0, with a scale and an offset for each group of inputs. A weight is
/// `scale · (code - zero) + offset`.
pub(crate) struct CodedMatrix<'a> {
    header: Header,
    rows: Box<dyn CodedRows + 'a>,
    input_order: Option<&'a [u32]>,
}

impl<'a> CodedMatrix<'a> {
    /// Stacks parts of `[outputs, inputs]` together, quantized as they are read. The caller checks
    /// lengths.
    pub(crate) fn quantizing(
        parts: &'a [WeightView<'a>],
        [outputs, inputs]: [usize; 2],
        scheme: QuantizationScheme,
    ) -> Result<Self, KernelError> {
        let header = scheme.header(outputs, inputs)?;
        Ok(Self { header, rows: Box::new(Quantizing::new(parts, header)), input_order: None })
    }

    /// Takes matrices that are already quantized.
    pub(crate) fn ready_made(parts: &'a [QuantizedMatrix]) -> Result<Self, KernelError> {
        let (header, rows) = ReadyMade::new(parts, ActivationDtype::F32)?;
        Ok(Self { header, rows: Box::new(rows), input_order: parts[0].input_order() })
    }

    /// Returns outputs and inputs.
    pub(crate) fn shape(&self) -> [usize; 2] {
        [self.header.outputs, self.header.groups.inputs]
    }

    /// Returns the inputs of a group; the last group may have fewer.
    pub(crate) fn group_size(&self) -> usize {
        self.header.groups.size
    }

    /// Returns whether codes are below 16.
    pub(crate) fn is_u4(&self) -> bool {
        self.header.format == CodeFormat::U4
    }

    /// Returns the code that stands for the offset alone.
    pub(crate) fn zero(&self) -> f32 {
        f32::from(self.header.zero)
    }

    /// Returns the input of each column, where it is not the column's own index.
    pub(crate) fn input_order(&self) -> Option<&[u32]> {
        self.input_order
    }

    /// Calls `each` with the rows of some outputs, one after the other. Zero points become offsets.
    pub(crate) fn read_rows(&self, outputs: Range<usize>, mut each: impl FnMut(usize, &CodedRow)) {
        let mut row = CodedRow::new(&self.header);
        let mut zero_points = vec![0; self.header.groups.count()];
        for output in outputs {
            self.rows.read(output, FactorFormat::F32, &mut row);
            self.rows.zero_points(output, &mut zero_points);
            row.offset_by(&zero_points);
            if self.header.format == CodeFormat::E2M1 {
                row.codes.iter_mut().for_each(|code| *code = INTEGERS[usize::from(*code)]);
            }
            each(output, &row);
        }
    }
}
