//! The CPU's layout of a weight of small integers, the same for every instruction set.
//!
//! Outputs are cut in panels of [`PANEL`], as those of other weights are. A panel holds its groups
//! in order, and a group its inputs in words of four, padded to two words. Codes of 8 bits are
//! `[panel][group][word][PANEL][4]` bytes, which is the operand of `vpdpbusd`. Codes of 4 bits keep
//! two words in one, with the word of even index in the low halves. So do floats of 4 bits.
//!
//! Factors are kept apart from the codes, as `[panel][group][scale, offset][PANEL]`, in f16 where
//! f16 holds them. Groups with zero points of their own have those in place of the offsets, as
//! `[panel][group][PANEL]` bytes. Missing inputs are multiplied by activations of 0. The results of
//! missing outputs are dropped.

use std::sync::atomic::{AtomicBool, Ordering};

use rayon::prelude::*;

use super::ActivationDtype;
use super::factors::{FactorFormat, Factors};
use super::rows::{CodedRow, CodedRows, ReadyMade};
use super::scheme::{QuantizationScheme, Quantizing};
use crate::aligned::{AlignedBuf, WeightBuf};
use crate::linear::pack::PANEL;
use crate::{KernelError, QuantizedMatrix, WeightView};

pub(super) const WHAT: &str = "quantized linear weight";

/// Inputs of a block, unless one group has more.
const BLOCK_INPUTS: usize = 128;

/// Most inputs of one sum of i32. 2¹⁶ products of 127 and a code less any zero point stay below
/// 2³¹, and sums of as many activations are exact in f32.
const GROUP_MAX: usize = 1 << 16;

/// The grouping of inputs. A group is a run of neighbouring inputs that share a weight's scale. A
/// block is as many groups as make 128 inputs, and its activations share a scale. That errs far
/// less than 4 bits do, and takes less time than one scale for each small group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Groups {
    /// Number of all inputs.
    pub(crate) inputs: usize,
    /// Neighbouring inputs that share a scale; the last group may have fewer.
    pub(crate) size: usize,
}

impl Groups {
    /// Makes groups of `size`, or of halves of it where sums would overflow.
    pub(super) fn new(inputs: usize, size: usize) -> Result<Self, KernelError> {
        KernelError::require(inputs > 0, WHAT, "in_features", 0, "at least 1")?;
        KernelError::require(size > 0, WHAT, "group_size", 0, "at least 1")?;
        let mut size = size.min(inputs);
        while size > GROUP_MAX && size.is_multiple_of(2) {
            size /= 2;
        }
        let accepted = || format!("at most {GROUP_MAX}, or twice or four times that or less");
        KernelError::require(size <= GROUP_MAX, WHAT, "group_size", size as u64, accepted())?;
        Ok(Self { inputs, size })
    }

    /// Returns the number of groups.
    pub(super) fn count(self) -> usize {
        self.inputs.div_ceil(self.size)
    }

    /// Returns the groups of a block; the last block may have fewer.
    pub(super) fn per_block(self) -> usize {
        (BLOCK_INPUTS / self.size).max(1)
    }

    /// Returns the number of blocks.
    pub(super) fn blocks(self) -> usize {
        self.count().div_ceil(self.per_block())
    }

    /// Returns the words of four inputs in a group: an even number.
    pub(super) fn words(self) -> usize {
        2 * self.size.div_ceil(8)
    }
}

/// Bits of a code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CodeFormat {
    /// `0..=255`
    U8,
    /// `0..=15`
    U4,
    /// Floats of four bits, which become integers with [`super::e2m1`]. The zero of a header counts
    /// those integers.
    E2M1,
}

impl CodeFormat {
    /// Returns the bytes of two words of a panel.
    pub(super) const fn pair_bytes(self) -> usize {
        match self {
            Self::U8 => 2 * 4 * PANEL,
            Self::U4 | Self::E2M1 => 4 * PANEL,
        }
    }
}

/// The term beside `scale · (code - zero)`, where `zero` is common to all codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OffsetKind {
    /// No term.
    None,
    /// The negative of the scale times an integer of each group.
    ZeroPoints,
    /// A number of each group.
    Values,
}

/// The meaning of a packed weight's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    /// Width of a product.
    pub(crate) outputs: usize,
    /// The grouping of inputs.
    pub(crate) groups: Groups,
    /// Bits of a code.
    pub(crate) format: CodeFormat,
    /// The code that stands for zero where there are no offsets.
    pub(crate) zero: u8,
    /// The kind of offset that groups have.
    pub(crate) offsets: OffsetKind,
}

impl Header {
    /// Returns the number of panels.
    pub(super) fn panels(&self) -> usize {
        self.outputs.div_ceil(PANEL)
    }

    /// Returns the bytes of the codes of a panel.
    pub(super) fn panel_bytes(&self) -> usize {
        self.groups.count() * self.groups.words() / 2 * self.format.pair_bytes()
    }

    /// Returns the factors of a panel.
    pub(super) fn panel_factors(&self) -> usize {
        self.groups.count() * self.group_factors()
    }

    /// Returns the factors of one group of a panel.
    pub(super) fn group_factors(&self) -> usize {
        if self.offsets == OffsetKind::Values { 2 * PANEL } else { PANEL }
    }

    /// Returns the zero points of a panel.
    pub(super) fn panel_zero_points(&self) -> usize {
        if self.offsets == OffsetKind::ZeroPoints { self.groups.count() * PANEL } else { 0 }
    }
}

/// A packed weight.
#[derive(Debug)]
pub(crate) struct PackedQuantized {
    pub(super) header: Header,
    pub(super) codes: WeightBuf<u8>,
    pub(super) factors: Factors,
    /// Zero points, for [`OffsetKind::ZeroPoints`], else empty.
    pub(super) zero_points: WeightBuf<i8>,
    /// The input of each column, where it is not the column's own index.
    pub(super) input_order: Option<Vec<u32>>,
    /// The format of activations when they meet the weight.
    pub(super) activations: ActivationDtype,
}

impl PackedQuantized {
    /// Quantizes and packs parts of `[outputs, inputs]` together. The caller checks lengths.
    pub(crate) fn quantize(
        parts: &[WeightView<'_>],
        [outputs, inputs]: [usize; 2],
        scheme: QuantizationScheme,
    ) -> Result<Self, KernelError> {
        let header = scheme.header(outputs, inputs)?;
        Self::new(header, &Quantizing::new(parts, header), None)
    }

    /// Packs matrices that are already quantized, to meet `activations`. Activations of 8 bits lose
    /// more than factors lose in f16.
    pub(crate) fn ready_made(
        parts: &[QuantizedMatrix],
        activations: ActivationDtype,
    ) -> Result<Self, KernelError> {
        let (header, rows) = ReadyMade::new(parts, activations)?;
        let packed = Self::new(header, &rows, parts[0].input_order().map(<[u32]>::to_vec))?;
        Ok(packed.with_activations(activations))
    }

    /// Returns outputs and inputs.
    pub(crate) fn shape(&self) -> [usize; 2] {
        [self.header.outputs, self.header.groups.inputs]
    }

    /// Returns the weight with another format of activations.
    pub(crate) fn with_activations(self, activations: ActivationDtype) -> Self {
        Self { activations, ..self }
    }

    /// Packs `rows`, with factors in f16 where f16 holds them as precisely as `rows` needs.
    fn new(
        header: Header,
        rows: &impl CodedRows,
        input_order: Option<Vec<u32>>,
    ) -> Result<Self, KernelError> {
        let mut codes = AlignedBuf::zeroed(header.panels() * header.panel_bytes(), WHAT)?;
        // With one factor for each output, f16 would save nothing.
        let halves = match header.groups.count() > 1 {
            true => fill(&header, rows, FactorFormat::F16, &mut codes)?,
            false => None,
        };
        let factors = match halves {
            Some(halves) => halves,
            None => fill(&header, rows, FactorFormat::F32, &mut codes)?
                .unwrap_or_else(|| unreachable!("f32 holds every f32")),
        };
        let zero_points = zero_points(&header, rows)?.into();
        let activations = ActivationDtype::default();
        Ok(Self { header, codes: codes.into(), factors, zero_points, input_order, activations })
    }

    /// Returns whether products with both lay activations out in the same way.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        self.activations == other.activations
            && self.header.groups == other.header.groups
            && self.header.outputs == other.header.outputs
    }

    /// Returns the bytes that a product of one row reads.
    pub(crate) fn size_bytes(&self) -> usize {
        self.codes.len() + self.factors.bytes().len() + self.zero_points.len()
    }
}

/// Returns the zero points of all groups; empty where there are none.
fn zero_points(header: &Header, rows: &impl CodedRows) -> Result<AlignedBuf<i8>, KernelError> {
    let mut all = AlignedBuf::zeroed(header.panels() * header.panel_zero_points(), WHAT)?;
    let panels = all.par_chunks_mut(header.panel_zero_points().max(1)).enumerate();
    panels.for_each(|(panel, zero_points)| {
        let mut row = vec![0; header.groups.count()];
        let first = panel * PANEL;
        for output in first..header.outputs.min(first + PANEL) {
            rows.zero_points(output, &mut row);
            for (group, zero_point) in zero_points.chunks_exact_mut(PANEL).zip(&row) {
                group[output - first] = *zero_point;
            }
        }
    });
    Ok(all)
}

/// Fills `codes` and returns the factors; `None` where `format` does not hold them.
fn fill(
    header: &Header,
    rows: &impl CodedRows,
    format: FactorFormat,
    codes: &mut [u8],
) -> Result<Option<Factors>, KernelError> {
    let panel_factors = header.panel_factors();
    let len = header.panels() * panel_factors;
    let all_hold = AtomicBool::new(true);
    let panel = |panel: usize, codes: &mut [u8], place: &mut dyn FnMut(usize, f32)| {
        let mut row = CodedRow::new(header);
        let first = panel * PANEL;
        for output in first..header.outputs.min(first + PANEL) {
            if !all_hold.load(Ordering::Relaxed) {
                return;
            }
            rows.read(output, format, &mut row);
            let mut factors = row.scales.iter().zip(&row.offsets);
            if !factors.all(|(scale, offset)| rows.are_held(format, *scale, *offset)) {
                all_hold.store(false, Ordering::Relaxed);
            }
            place_codes(header, &row.codes, output - first, codes);
            for (g, (scale, offset)) in row.scales.iter().zip(&row.offsets).enumerate() {
                let at = g * header.group_factors() + output - first;
                place(at, *scale);
                if header.offsets == OffsetKind::Values {
                    place(at + PANEL, *offset);
                }
            }
        }
    };
    let codes = codes.par_chunks_mut(header.panel_bytes()).enumerate();
    let factors = match format {
        FactorFormat::F16 => {
            let mut bits = AlignedBuf::<u16>::zeroed(len, WHAT)?;
            codes.zip(bits.par_chunks_mut(panel_factors)).for_each(|((p, codes), bits)| {
                panel(p, codes, &mut |at, x| bits[at] = half::f16::from_f32(x).to_bits());
            });
            Factors::F16(bits.into())
        }
        FactorFormat::F32 => {
            let mut values = AlignedBuf::<f32>::zeroed(len, WHAT)?;
            codes.zip(values.par_chunks_mut(panel_factors)).for_each(|((p, codes), values)| {
                panel(p, codes, &mut |at, x| values[at] = x);
            });
            Factors::F32(values.into())
        }
    };
    Ok(all_hold.into_inner().then_some(factors))
}

/// Writes the codes of column `output` of a panel.
fn place_codes(header: &Header, row: &[u8], output: usize, panel: &mut [u8]) {
    let Groups { size, .. } = header.groups;
    let group_bytes = header.groups.words() / 2 * header.format.pair_bytes();
    for (group, codes) in row.chunks(size).zip(panel.chunks_exact_mut(group_bytes)) {
        for (pair, codes) in group.chunks(8).zip(codes.chunks_exact_mut(header.format.pair_bytes()))
        {
            for (i, code) in pair.iter().enumerate() {
                let (word, byte) = (i / 4, 4 * output + i % 4);
                match header.format {
                    CodeFormat::U8 => codes[word * 4 * PANEL + byte] = *code,
                    _ if word == 0 => codes[byte] = *code,
                    CodeFormat::U4 | CodeFormat::E2M1 => codes[byte] |= *code << 4,
                }
            }
        }
    }
}
