//! Packed weights as bytes, and from bytes: codes, factors, zero points if groups have some, and
//! the order of inputs if there is one.

use super::ActivationDtype;
use super::factors::{FactorFormat, Factors};
use super::pack::{CodeFormat, Groups, Header, OffsetKind, PackedQuantized, WHAT};
use crate::KernelError;
use crate::aligned::{AlignedBuf, WeightBuf};
use crate::mapped_file::MappedRange;
use crate::quantized::is_permutation;

impl PackedQuantized {
    /// Returns the form that [`PackedQuantized::from_sections`] needs to read the sections, for
    /// example `u4 of 32, zero 8, factors f16`.
    pub(crate) fn form(&self) -> String {
        let Header { groups, format, zero, offsets, .. } = self.header;
        let bits = match format {
            CodeFormat::U8 => "u8",
            CodeFormat::U4 => "u4",
            CodeFormat::E2M1 => "e2m1",
        };
        let offsets = match offsets {
            OffsetKind::None => "zero",
            OffsetKind::ZeroPoints => "zero points from",
            OffsetKind::Values => "offsets from",
        };
        let factors = match self.factors.format() {
            FactorFormat::F16 => "f16",
            FactorFormat::F32 => "f32",
        };
        format!("{bits} of {}, {offsets} {zero}, factors {factors}", groups.size)
    }

    /// Returns whether codes and factors lie in a file. [`PackedQuantized::from_sections`] maps
    /// both together.
    pub(crate) fn is_mapped(&self) -> bool {
        matches!(self.codes, WeightBuf::Mapped(_))
    }

    /// Returns its buffers.
    pub(crate) fn sections(&self) -> Vec<&[u8]> {
        let has_zero_points = self.header.offsets == OffsetKind::ZeroPoints;
        let zero_points = has_zero_points.then(|| self.zero_points.bytes());
        let order = self.input_order.as_deref().map(bytemuck::cast_slice);
        let always = [self.codes.bytes(), self.factors.bytes()];
        always.into_iter().chain(zero_points).chain(order).collect()
    }

    /// Returns the weight `[outputs, inputs]` of this form and these sections. Codes and factors
    /// stay where they are. `None`: the form is not of this kind.
    ///
    /// # Errors
    /// Sections that do not fit the form, or an order that is no permutation.
    pub(crate) fn from_sections(
        form: &str,
        [outputs, inputs]: [usize; 2],
        sections: &[MappedRange],
    ) -> Option<Result<Self, KernelError>> {
        let (codes, rest) = form.split_once(" of ")?;
        let (size, rest) = rest.split_once(", ")?;
        let (zero, factors) = rest.split_once(", factors ")?;
        let (offsets, zero) = zero.rsplit_once(' ')?;
        let format = match codes {
            "u8" => CodeFormat::U8,
            "u4" => CodeFormat::U4,
            "e2m1" => CodeFormat::E2M1,
            _ => return None,
        };
        let factors = match factors {
            "f16" => FactorFormat::F16,
            "f32" => FactorFormat::F32,
            _ => return None,
        };
        let offsets = match offsets {
            "zero" => OffsetKind::None,
            "zero points from" => OffsetKind::ZeroPoints,
            "offsets from" => OffsetKind::Values,
            _ => return None,
        };
        let (size, zero) = (size.parse().ok()?, zero.parse().ok()?);
        let groups = Groups::new(inputs, size);
        let header = groups.map(|groups| Header { outputs, groups, format, zero, offsets });
        Some(header.and_then(|header| Self::mapped(header, factors, sections)))
    }

    fn mapped(
        header: Header,
        factors: FactorFormat,
        sections: &[MappedRange],
    ) -> Result<Self, KernelError> {
        let has_zero_points = header.offsets == OffsetKind::ZeroPoints;
        let (codes, values, zero_points, order) = match (sections, has_zero_points) {
            ([codes, values], false) => (codes, values, None, None),
            ([codes, values, order], false) => (codes, values, None, Some(order)),
            ([codes, values, zero_points], true) => (codes, values, Some(zero_points), None),
            ([codes, values, zero_points, order], true) => {
                (codes, values, Some(zero_points), Some(order))
            }
            _ => {
                let (field, got) = ("sections".to_owned(), sections.len());
                let expected = if has_zero_points { 3 } else { 2 };
                return Err(KernelError::Length { what: WHAT, field, got, expected });
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
            zero_points: match zero_points {
                Some(section) => {
                    let len = header.panels().saturating_mul(header.panel_zero_points());
                    WeightBuf::mapped(section.clone(), len, WHAT)?
                }
                None => AlignedBuf::zeroed(0, WHAT)?.into(),
            },
            activations: ActivationDtype::default(),
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
