//! Packed weights as bytes: the form that a cache on disk keeps and loads without packing.

use super::pack::{PANEL, PackedWeight, panel_len_bf16, panel_len_f32};
use super::quantized::PackedQuantized;
use super::{LinearStorage, LinearWeight};
use crate::KernelError;
use crate::aligned::WeightBuf;
use crate::mapped_file::MappedRange;
use crate::simd::cpu_isa;

const WHAT: &str = "packed linear weight";

/// The version of the packed layout: it grows whenever packed bytes change their meaning.
const LAYOUT_VERSION: u32 = 2;

/// A packed weight as it lies in memory.
#[derive(Debug)]
pub struct PackedSections<'a> {
    /// The text by which [`LinearWeight::from_sections`] knows the sections' format.
    pub form: String,
    /// The buffers in order. Each must start on a cache line.
    pub sections: Vec<&'a [u8]>,
}

/// Returns the name of the layout of packed weights on this machine. Bytes under another name have
/// another meaning.
#[must_use]
pub fn packed_layout() -> String {
    let endian = if cfg!(target_endian = "little") { "le" } else { "be" };
    format!("{LAYOUT_VERSION}-panel{PANEL}-{endian}-{}", cpu_isa())
}

impl LinearWeight {
    /// Returns its bytes that lie in a mapped file, not in memory of this process alone.
    #[must_use]
    pub fn mapped_bytes(&self) -> usize {
        let is_mapped = match &self.storage {
            LinearStorage::Cpu(PackedWeight::F32(data)) => matches!(data, WeightBuf::Mapped(_)),
            LinearStorage::Cpu(PackedWeight::Bf16(data)) => matches!(data, WeightBuf::Mapped(_)),
            LinearStorage::CpuQuantized(packed) => packed.is_mapped(),
            #[cfg(feature = "gpu")]
            LinearStorage::Cube(_) => false,
        };
        if is_mapped { self.size_bytes() } else { 0 }
    }

    /// Returns its packed bytes; `None` where they are not on the CPU.
    #[must_use]
    pub fn sections(&self) -> Option<PackedSections<'_>> {
        let packed = match &self.storage {
            LinearStorage::Cpu(packed) => packed,
            LinearStorage::CpuQuantized(packed) => {
                return Some(PackedSections { form: packed.form(), sections: packed.sections() });
            }
            #[cfg(feature = "gpu")]
            LinearStorage::Cube(_) => return None,
        };
        let (form, section) = match packed {
            PackedWeight::F32(data) => ("f32", data.bytes()),
            PackedWeight::Bf16(data) => ("bf16", data.bytes()),
        };
        Some(PackedSections { form: form.to_owned(), sections: vec![section] })
    }

    /// Returns the weight `[out_features, in_features]` in bytes from [`LinearWeight::sections`]
    /// under the same [`packed_layout`]. The bytes stay where they are.
    ///
    /// # Errors
    /// An unknown form, another number of sections, another length, or bytes that do not start on a
    /// cache line.
    pub fn from_sections(
        form: &str,
        [out_features, in_features]: [usize; 2],
        sections: Vec<MappedRange>,
    ) -> Result<Self, KernelError> {
        let shape = [out_features, in_features];
        if let Some(packed) = PackedQuantized::from_sections(form, shape, &sections) {
            let storage = LinearStorage::CpuQuantized(packed?);
            return Ok(Self { storage, out_features, in_features });
        }
        let is_one = sections.len() == 1;
        let known = is_one && matches!(form, "f32" | "bf16") && out_features > 0 && in_features > 0;
        let Some(section) = sections.into_iter().next().filter(|_| known) else {
            return Err(KernelError::OutOfRange {
                what: WHAT,
                field: format!("form `{form}` of [{out_features}, {in_features}]"),
                got: 0,
                accepted: "f32 or bf16 in one section, or codes with factors".to_owned(),
            });
        };
        let panels = out_features.div_ceil(PANEL);
        let packed = match form {
            "f32" => {
                let len = panels.saturating_mul(panel_len_f32(in_features));
                PackedWeight::F32(WeightBuf::mapped(section, len, WHAT)?)
            }
            _ => {
                let len = panels.saturating_mul(panel_len_bf16(in_features));
                PackedWeight::Bf16(WeightBuf::mapped(section, len, WHAT)?)
            }
        };
        Ok(Self { storage: LinearStorage::Cpu(packed), out_features, in_features })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use burn::tensor::Device;

    use super::*;
    use crate::{
        ActivationDtype, Codes, MappedFile, Offsets, QuantizationScheme, QuantizedMatrix,
        WeightDtype, WeightView, linear,
    };

    #[test]
    fn bytes_from_a_file_are_the_weight_they_were() {
        let values: Vec<f32> = (0..45 * 37).map(|i| (i as f32 * 0.37).sin()).collect();
        let path = std::env::temp_dir().join(format!("sections-{}", std::process::id()));
        for dtype in [WeightDtype::F32, WeightDtype::Bf16] {
            let view = WeightView::F32(&values);
            let weight = LinearWeight::pack(&[view], 37, dtype, &Device::flex()).unwrap();
            let PackedSections { form, sections } = weight.sections().unwrap();
            std::fs::write(&path, sections[0]).unwrap();
            let file = Arc::new(MappedFile::open(&path).unwrap());
            let len = sections[0].len();
            let whole = || vec![MappedRange::new(&file, 0..len).unwrap()];
            let again = LinearWeight::from_sections(&form, [45, 37], whole()).unwrap();
            assert_eq!(again.sections().unwrap().sections, sections);
            assert_eq!((weight.mapped_bytes(), again.mapped_bytes()), (0, len));
            let (mut before, mut after) = (vec![0.0; 37], vec![1.0; 37]);
            for o in 0..45 {
                weight.copy_row(o, &mut before);
                again.copy_row(o, &mut after);
                assert_eq!(before, after);
            }
            let part = vec![MappedRange::new(&file, 0..len - 2).unwrap()];
            assert!(LinearWeight::from_sections(&form, [45, 37], part).is_err());
            assert!(LinearWeight::from_sections(&form, [65, 37], whole()).is_err());
            assert!(LinearWeight::from_sections("int5", [45, 37], whole()).is_err());
            assert!(LinearWeight::from_sections(&form, [0, 37], whole()).is_err());
            assert!(LinearWeight::from_sections(&form, [45, 37], Vec::new()).is_err());
        }
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn quantized_weights_come_back_from_a_file() {
        let (device, shape) = (Device::flex(), [45, 64]);
        let values: Vec<f32> = (0..45 * 64).map(|i| (i as f32 * 0.37).sin()).collect();
        let codes = Codes::U4((0..45 * 32).map(|i| (i * 37 % 256) as u8).collect());
        let order = || Some((0..64).rev().collect());
        let ready_made = |offsets, order| {
            let scales = vec![0.37; 90];
            let matrix = QuantizedMatrix::new(shape, 32, codes.clone(), scales, offsets, order);
            LinearWeight::pack_quantized(vec![matrix.unwrap()], ActivationDtype::Int8, &device)
                .unwrap()
        };
        let zero_points = || Offsets::ZeroPoints((0..90).map(|i| i % 16).collect());
        let quantize = |scheme| {
            LinearWeight::quantize(&[WeightView::F32(&values)], 64, scheme, &device).unwrap()
        };
        let weights = [
            quantize(QuantizationScheme::Int8),
            quantize(QuantizationScheme::Int4 { group_size: 32 }),
            quantize(QuantizationScheme::Int4 { group_size: 64 }),
            ready_made(Offsets::Values(vec![-2.5; 90]), order()),
            ready_made(zero_points(), None),
            ready_made(zero_points(), order()),
        ];
        let path = std::env::temp_dir().join(format!("quantized-{}", std::process::id()));
        for (i, weight) in weights.iter().enumerate() {
            let PackedSections { form, sections } = weight.sections().unwrap();
            assert_eq!(sections.len(), [2, 2, 2, 3, 3, 4][i]);
            let (mut bytes, mut ranges) = (Vec::new(), Vec::new());
            for section in &sections {
                bytes.resize(bytes.len().next_multiple_of(64), 0u8);
                ranges.push(bytes.len()..bytes.len() + section.len());
                bytes.extend_from_slice(section);
            }
            std::fs::write(&path, &bytes).unwrap();
            let file = Arc::new(MappedFile::open(&path).unwrap());
            let mapped = |range: &std::ops::Range<usize>| MappedRange::new(&file, range.clone());
            let ranges: Vec<_> = ranges.iter().map(|range| mapped(range).unwrap()).collect();
            let again = LinearWeight::from_sections(&form, shape, ranges.clone()).unwrap();
            assert_eq!(again.sections().unwrap().sections, sections);
            assert_eq!((weight.mapped_bytes(), again.mapped_bytes()), (0, again.size_bytes()));
            let x = || burn::tensor::Tensor::<2>::ones([3, 64], &device);
            let product = |weight| linear(x(), weight, None).into_data();
            assert_eq!(product(weight), product(&again), "{form}");
            let refused = |form: &str, shape, ranges| {
                LinearWeight::from_sections(form, shape, ranges).is_err()
            };
            assert!(refused(&form, [78, 64], ranges.clone()));
            assert!(refused(&form, shape, ranges[..1].to_vec()));
            assert!(refused(&form.replace('u', "v"), shape, ranges.clone()));
            if let [codes, .., last] = &ranges[..] {
                let codes_in_place_of_last =
                    [&ranges[..ranges.len() - 1], std::slice::from_ref(codes)];
                assert!(refused(&form, shape, codes_in_place_of_last.concat()));
                let twice = [&ranges[..], &[last.clone(), last.clone()]].concat();
                assert!(refused(&form, shape, twice));
            }
        }
        std::fs::remove_file(&path).unwrap();
    }
}
