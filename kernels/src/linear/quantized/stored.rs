//! A packed weight as bytes, and back: codes, factors, and the order of inputs if there is one.

use super::factors::{FactorFormat, Factors};
use super::pack::{CodeFormat, Groups, Header, PackedQuantized, WHAT};
use crate::KernelError;
use crate::aligned::WeightBuf;
use crate::mapped_file::MappedRange;
use crate::quantized::is_permutation;

impl PackedQuantized {
    /// What [`PackedQuantized::from_sections`] must be told of the sections, such as
    /// `u4 of 32, zero 8, factors f16`.
    pub(crate) fn form(&self) -> String {
        let Header { groups, format, zero, has_offsets, .. } = self.header;
        let bits = match format {
            CodeFormat::U8 => "u8",
            CodeFormat::U4 => "u4",
        };
        let offsets = if has_offsets { "offsets" } else { "zero" };
        let factors = match self.factors.format() {
            FactorFormat::F16 => "f16",
            FactorFormat::F32 => "f32",
        };
        format!("{bits} of {}, {offsets} {zero}, factors {factors}", groups.size)
    }

    /// Whether codes and factors, which [`PackedQuantized::from_sections`] maps together, lie in a
    /// file.
    pub(crate) fn is_mapped(&self) -> bool {
        matches!(self.codes, WeightBuf::Mapped(_))
    }

    /// Its buffers.
    pub(crate) fn sections(&self) -> Vec<&[u8]> {
        let order = self.input_order.as_deref().map(bytemuck::cast_slice);
        [self.codes.bytes(), self.factors.bytes()].into_iter().chain(order).collect()
    }

    /// The weight `[outputs, inputs]` whose form and sections these are; codes and factors stay
    /// where they are. `None`: it is no form of this kind.
    ///
    /// # Errors
    /// Sections that do not fit the form, or an order that is none.
    pub(crate) fn from_sections(
        form: &str,
        [outputs, inputs]: [usize; 2],
        sections: &[MappedRange],
    ) -> Option<Result<Self, KernelError>> {
        let (codes, rest) = form.split_once(" of ")?;
        let (size, rest) = rest.split_once(", ")?;
        let (zero, factors) = rest.split_once(", factors ")?;
        let (offsets, zero) = zero.split_once(' ')?;
        let format = match codes {
            "u8" => CodeFormat::U8,
            "u4" => CodeFormat::U4,
            _ => return None,
        };
        let factors = match factors {
            "f16" => FactorFormat::F16,
            "f32" => FactorFormat::F32,
            _ => return None,
        };
        let has_offsets = match offsets {
            "offsets" => true,
            "zero" => false,
            _ => return None,
        };
        let (size, zero) = (size.parse().ok()?, zero.parse().ok()?);
        let groups = Groups::new(inputs, size);
        let header = groups.map(|groups| Header { outputs, groups, format, zero, has_offsets });
        Some(header.and_then(|header| Self::mapped(header, factors, sections)))
    }

    fn mapped(
        header: Header,
        factors: FactorFormat,
        sections: &[MappedRange],
    ) -> Result<Self, KernelError> {
        let (codes, values, order) = match sections {
            [codes, values] => (codes, values, None),
            [codes, values, order] => (codes, values, Some(order)),
            _ => {
                let (field, got) = ("sections".to_owned(), sections.len());
                return Err(KernelError::Length { what: WHAT, field, got, expected: 2 });
            }
        };
        let num_factors = header.panels().saturating_mul(header.panel_factors());
        let codes_len = header.panels().saturating_mul(header.panel_bytes());
        Ok(Self {
            codes: WeightBuf::mapped(codes.clone(), codes_len, WHAT)?,
            factors: match factors {
                FactorFormat::F16 => {
                    Factors::F16(WeightBuf::mapped(values.clone(), num_factors, WHAT)?)
                }
                FactorFormat::F32 => {
                    Factors::F32(WeightBuf::mapped(values.clone(), num_factors, WHAT)?)
                }
            },
            input_order: order.map(|order| input_order(order, header.groups.inputs)).transpose()?,
            header,
        })
    }
}

fn input_order(section: &MappedRange, inputs: usize) -> Result<Vec<u32>, KernelError> {
    let bytes = section.bytes();
    KernelError::require_len(WHAT, "order", bytes.len(), inputs.saturating_mul(4))?;
    let order: Vec<u32> = bytemuck::pod_collect_to_vec(bytes);
    is_permutation(&order, WHAT)?;
    Ok(order)
}
