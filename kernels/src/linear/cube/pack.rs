//! The layout of a weight on a GPU: `[panel][in][PANEL]`, in chunks of four words. Neighbouring
//! units then load neighbouring bytes, and a product with one row is one forward stream.
//!
//! In a chunk of 16-bit numbers, neighbouring outputs are neighbours in memory. A panel is thus
//! also a plain matrix for other code. An output's place is then not the one that its part and its
//! lane give ([`output_at`]).

use std::ops::Range;

use cubecl::prelude::*;
use cubecl::server::Handle;
use rayon::prelude::*;

use super::PANEL;
use super::dense::DenseProducts;
use crate::cube::{
    WordFormat, device_name, resident, resident_pieces, runs_of_piece, words_buffer,
};
use crate::linear::WHAT;
use crate::linear::fill::{Row, stacked_rows};
use crate::linear::quantized::CodedMatrix;
use crate::{KernelError, TensorCores, WeightDtype, WeightView};

/// A weight on a GPU.
#[derive(Debug)]
pub(crate) struct CubeWeight {
    pub(super) device: cubecl::Device,
    pub(super) words: Handle,
    pub(super) format: WordFormat,
    pub(super) outputs: usize,
    pub(super) inputs: usize,
    /// Scales and offsets, where the weight has integers.
    pub(super) groups: Option<CubeGroups>,
    /// Products of many rows by tensor cores, where they are allowed.
    pub(super) dense: Option<DenseProducts>,
}

/// The numbers that the integers of a weight stand for: `scale · code + offset`.
#[derive(Debug)]
pub(crate) struct CubeGroups {
    /// Number of neighbouring inputs that share factors.
    pub(super) size: usize,
    /// `[panel][group][scale, offset][PANEL]` f32.
    pub(super) factors: Handle,
    /// The input of each column, where it is not the column's own index.
    pub(super) input_order: Option<Handle>,
}

impl CubeWeight {
    /// Packs row-major parts stacked along the outputs. The caller checks lengths.
    pub(crate) fn new(
        parts: &[WeightView<'_>],
        inputs: usize,
        dtype: WeightDtype,
        device: cubecl::Device,
    ) -> Result<Self, KernelError> {
        let format = WordFormat::from(dtype);
        let rows = stacked_rows(parts, inputs);
        let panel_words = inputs * PANEL / format.per_word();
        let pieces = rows.chunks(runs_of_piece(panel_words) * PANEL).map(|rows| {
            let mut words = vec![0u32; rows.len().div_ceil(PANEL) * panel_words];
            let panels = words.par_chunks_mut(panel_words).zip(rows.par_chunks(PANEL));
            panels.for_each(|(words, rows)| fill_panel(words, rows, format, inputs));
            words
        });
        let count = rows.len().div_ceil(PANEL) * panel_words;
        let words = resident_pieces(&device.client(), count, pieces, WHAT)?;
        Ok(Self { device, words, format, outputs: rows.len(), inputs, groups: None, dense: None })
    }

    /// Packs integers.
    ///
    /// # Errors
    /// Groups that do not consist of whole vectors of inputs, or the device refuses the memory.
    pub(crate) fn coded(
        matrix: &CodedMatrix<'_>,
        device: cubecl::Device,
    ) -> Result<Self, KernelError> {
        let ([outputs, inputs], size) = (matrix.shape(), matrix.group_size());
        let count = inputs.div_ceil(size);
        if count > 1 && !size.is_multiple_of(4) {
            let (form, device) = (format!("a weight in groups of {size}"), device_name(&device));
            return Err(KernelError::UnsupportedForm { what: WHAT, form, device });
        }
        let format = if matrix.is_u4() { WordFormat::Uint4 } else { WordFormat::Uint8 };
        let panels = outputs.div_ceil(PANEL);
        let (panel_words, panel_factors) = (inputs * PANEL / format.per_word(), 2 * count * PANEL);
        let mut factors = vec![0u32; panels * panel_factors];
        let panels_at_once = runs_of_piece(panel_words);
        let pieces = factors.chunks_mut(panels_at_once * panel_factors).enumerate();
        let pieces = pieces.map(|(piece, factors)| {
            let first_panel = piece * panels_at_once;
            let mut words = vec![0u32; factors.len() / panel_factors * panel_words];
            let factors = factors.par_chunks_mut(panel_factors);
            let pairs = words.par_chunks_mut(panel_words).zip(factors).enumerate();
            pairs.for_each(|(panel, (words, factors))| {
                let first = (first_panel + panel) * PANEL;
                fill_coded_panel(
                    [words, factors],
                    matrix,
                    first..outputs.min(first + PANEL),
                    format,
                );
            });
            words
        });
        let client = device.client();
        let words = resident_pieces(&client, panels * panel_words, pieces, WHAT)?;
        let factors = resident(&client, factors, WHAT)?;
        let order = |order: &[u32]| resident(&client, order.to_vec(), WHAT);
        let input_order = matrix.input_order().map(order).transpose()?;
        let groups = Some(CubeGroups { size, factors, input_order });
        Ok(Self { device, words, format, outputs, inputs, groups, dense: None })
    }

    /// Returns the weight with products of many rows by tensor cores, where the device has any.
    pub(crate) fn with_tensor_cores(mut self, tensor_cores: TensorCores) -> Self {
        self.dense = DenseProducts::new(&self, tensor_cores);
        self
    }

    /// Returns the number of inputs that share factors; all of them where there are no factors.
    pub(super) fn group_size(&self) -> usize {
        self.groups.as_ref().map_or(self.inputs, |groups| groups.size)
    }

    /// Returns scales and offsets, where there are any.
    pub(super) fn factors(&self) -> Option<BufferArg> {
        self.groups.as_ref().map(|groups| words_buffer(&groups.factors))
    }

    /// Returns whether it holds the elements that it was packed from.
    pub(crate) fn has_rows(&self) -> bool {
        self.groups.is_none()
    }

    /// Returns the number of panels.
    pub(super) fn panels(&self) -> usize {
        self.outputs.div_ceil(PANEL)
    }

    /// Returns the bytes that a product of one row reads.
    pub(crate) fn size_bytes(&self) -> usize {
        let factors = self.groups.as_ref().map_or(0, |groups| groups.factors.size_in_used());
        (self.words.size_in_used() + factors) as usize
    }
}

/// Returns where the scales of a group lie, in vectors of four. Its offsets follow them.
#[cube]
pub(super) fn factor_at(panel: usize, group: usize, inputs: usize, group_size: usize) -> usize {
    (panel * inputs.div_ceil(group_size) + group) * comptime!(PANEL / 2)
}

/// Packs up to [`PANEL`] rows. Missing rows stay zero.
fn fill_panel(words: &mut [u32], rows: &[Row<'_>], format: WordFormat, inputs: usize) {
    let mut numbers = vec![0.0; inputs];
    for (output, row) in rows.iter().enumerate() {
        row.widen_into(&mut numbers);
        place(words, numbers.iter().copied(), place_of(output, format), format);
    }
}

/// Packs up to [`PANEL`] rows of codes, and their factors. Missing rows stay zero.
fn fill_coded_panel(
    [words, factors]: [&mut [u32]; 2],
    matrix: &CodedMatrix<'_>,
    rows: Range<usize>,
    format: WordFormat,
) {
    matrix.read_rows(rows.clone(), |output, row| {
        let output = output - rows.start;
        place(words, row.codes.iter().map(|code| f32::from(*code)), output, format);
        for (group, (scale, offset)) in row.factors().enumerate() {
            let at = 2 * group * PANEL + output;
            factors[at] = scale.to_bits();
            factors[at + PANEL] = (offset - scale * matrix.zero()).to_bits();
        }
    });
}

/// Returns the output at a place of a panel. Places count the parts of chunks and their lanes.
#[cube]
pub(super) fn output_at(place: usize, #[comptime] format: WordFormat) -> usize {
    if comptime!(format.is_half()) { place / 8 * 8 + place % 4 * 2 + place % 8 / 4 } else { place }
}

/// Returns the place of an output of a panel: the inverse of [`output_at`].
fn place_of(output: usize, format: WordFormat) -> usize {
    match format.is_half() {
        true => output / 8 * 8 + output % 2 * 4 + output % 8 / 2,
        false => output,
    }
}

/// Returns the same for an output that is known only in a kernel.
#[cube]
pub(super) fn place_at(output: usize, #[comptime] format: WordFormat) -> usize {
    if comptime!(format.is_half()) {
        output / 8 * 8 + output % 2 * 4 + output % 8 / 2
    } else {
        output
    }
}

/// Packs the column at `at` of a panel, one number an input.
fn place(words: &mut [u32], numbers: impl Iterator<Item = f32>, at: usize, format: WordFormat) {
    let (word, shift) = format.place(at);
    for (x, words) in numbers.zip(words.chunks_exact_mut(PANEL / format.per_word())) {
        words[word] |= format.field(x) << shift;
    }
}
