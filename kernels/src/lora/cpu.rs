//! The product on the CPU: first `A x` of all rows, then `B` of it, each cut in pieces over
//! threads.

use std::ops::Range;

use burn_flex::FlexTensor;

use super::sums::{Expand, OUTPUTS, Shrink};
use super::{Block, LoraPair, LoraSegment, LoraWeights, Storage, WHAT, check};
use crate::KernelError;
use crate::aligned::AlignedBuf;
use crate::simd::{Element, Isa, LANES};
use crate::tensors::{dense, dims2, values, values_mut};
use crate::threads::{SharedMut, for_each_piece};
use crate::workspace::{Scratch, give_back};

/// Most rows of A, and of x, of one piece.
const PIECE_RANKS: usize = 8;
const PIECE_ROWS: usize = 64;
/// Most panels of B of one piece.
const PIECE_PANELS: usize = 16;

/// The matrices in memory.
#[derive(Debug)]
pub(super) struct Packed<E: bytemuck::Pod> {
    /// `[rank][in]`, each row filled up with zeros to whole vectors.
    a: AlignedBuf<E>,
    /// Of each pair `[panel][rank][OUTPUTS]`, filled up with zeros.
    b: AlignedBuf<E>,
    /// Elements of a row of A.
    a_width: usize,
}

/// Returns the elements of a packed B.
pub(super) fn b_len(outputs: usize, rank: usize) -> usize {
    outputs.next_multiple_of(OUTPUTS) * rank
}

impl<E: Element> Packed<E> {
    pub(super) fn new(
        pairs: &[LoraPair<'_>],
        blocks: &[Block],
        in_features: usize,
    ) -> Result<Self, KernelError> {
        let a_width = in_features.next_multiple_of(LANES);
        let ranks: usize = blocks.iter().map(|block| block.rank).sum();
        let b_elements = blocks.iter().map(|block| b_len(block.outputs, block.rank)).sum();
        let mut a = AlignedBuf::<E>::zeroed(ranks * a_width, WHAT)?;
        let mut b = AlignedBuf::<E>::zeroed(b_elements, WHAT)?;
        for (pair, block) in pairs.iter().zip(blocks) {
            let rows = a[block.first_rank * a_width..].chunks_exact_mut(a_width);
            for (row, stored) in rows.zip(pair.a.chunks_exact(in_features)) {
                row.iter_mut().zip(stored).for_each(|(to, from)| *to = E::from_f32(*from));
            }
            let packed = &mut b[block.b_start..];
            for (output, row) in pair.b.chunks_exact(block.rank).enumerate() {
                let (panel, column) = (output / OUTPUTS, output % OUTPUTS);
                for (j, value) in row.iter().enumerate() {
                    packed[(panel * block.rank + j) * OUTPUTS + column] = E::from_f32(*value);
                }
            }
        }
        Ok(Self { a, b, a_width })
    }

    pub(super) fn size_bytes(&self) -> usize {
        size_of_val(&self.a[..]) + size_of_val(&self.b[..])
    }
}

/// Adds the products to y.
pub(crate) fn add_lora(y: FlexTensor, x: FlexTensor, segments: &[LoraSegment<'_>]) -> FlexTensor {
    let (x, mut y) = (dense(x), dense(y));
    check(segments, dims2(&x), dims2(&y));
    add(Isa::active(), values_mut(&mut y), values(&x), segments);
    give_back(x);
    y
}

/// Adds the products on one instruction set.
pub(crate) fn add(isa: Isa, y: &mut [f32], x: &[f32], segments: &[LoraSegment<'_>]) {
    let (starts, len) = starts(segments);
    let work = |segment: &LoraSegment<'_>| {
        let LoraWeights { in_features, out_features, rank, .. } = *segment.weights;
        segment.rows.len() * rank * (in_features + out_features)
    };
    let work = segments.iter().map(work).sum();
    let mut low = Scratch::<f32>::new(len);
    let shared = SharedMut::new(&mut low);
    let pieces = shrink_pieces(segments);
    for_each_piece(pieces.len(), work, |piece| {
        let Piece { segment, part, rows } = &pieces[piece];
        let (start, segment) = (starts[*segment], &segments[*segment]);
        match &segment.weights.storage {
            Storage::CpuF32(packed) => {
                isa.run(shrink(packed, segment, part, rows, x, start, &shared));
            }
            Storage::CpuBf16(packed) => {
                isa.run(shrink(packed, segment, part, rows, x, start, &shared));
            }
            #[cfg(feature = "gpu")]
            Storage::Cube(_) => unreachable!("add_lora: x is on the CPU, the weights are not"),
        }
    });
    let pieces = expand_pieces(segments);
    let (low, y) = (&low[..], SharedMut::new(y));
    for_each_piece(pieces.len(), work, |piece| {
        let (block, Piece { segment, part, rows }) = &pieces[piece];
        let (start, segment) = (starts[*segment], &segments[*segment]);
        match &segment.weights.storage {
            Storage::CpuF32(packed) => {
                isa.run(expand(packed, segment, *block, part, rows, &low[start..], &y));
            }
            Storage::CpuBf16(packed) => {
                isa.run(expand(packed, segment, *block, part, rows, &low[start..], &y));
            }
            #[cfg(feature = "gpu")]
            Storage::Cube(_) => unreachable!("add_lora: x is on the CPU, the weights are not"),
        }
    });
}

/// A part of one segment's work.
struct Piece {
    segment: usize,
    /// Rows of A, or panels of B.
    part: Range<usize>,
    /// Places in the segment's rows.
    rows: Range<usize>,
}

/// Returns where each segment's `A x` begin, and the number of all.
fn starts(segments: &[LoraSegment<'_>]) -> (Vec<usize>, usize) {
    let mut end = 0;
    let starts = segments.iter().map(|segment| {
        let start = end;
        end += segment.rows.len() * segment.weights.rank;
        start
    });
    (starts.collect(), end)
}

fn shrink_pieces(segments: &[LoraSegment<'_>]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for (index, segment) in segments.iter().enumerate() {
        for part in cut(segment.weights.rank, PIECE_RANKS) {
            for rows in cut(segment.rows.len(), PIECE_ROWS) {
                pieces.push(Piece { segment: index, part: part.clone(), rows });
            }
        }
    }
    pieces
}

fn expand_pieces(segments: &[LoraSegment<'_>]) -> Vec<(Block, Piece)> {
    let mut pieces = Vec::new();
    for (index, segment) in segments.iter().enumerate() {
        for block in &segment.weights.blocks {
            for part in cut(block.outputs.div_ceil(OUTPUTS), PIECE_PANELS) {
                for rows in cut(segment.rows.len(), PIECE_ROWS) {
                    pieces.push((*block, Piece { segment: index, part: part.clone(), rows }));
                }
            }
        }
    }
    pieces
}

/// Cuts `0..len` in parts of at most `most`.
fn cut(len: usize, most: usize) -> impl Iterator<Item = Range<usize>> {
    (0..len).step_by(most).map(move |start| start..(start + most).min(len))
}

fn shrink<'a, E: Element>(
    packed: &'a Packed<E>,
    segment: &LoraSegment<'a>,
    ranks: &Range<usize>,
    places: &Range<usize>,
    x: &'a [f32],
    start: usize,
    low: &'a SharedMut<'a, f32>,
) -> Shrink<'a, E> {
    let LoraWeights { rank, in_features: inputs, ref blocks, .. } = *segment.weights;
    Shrink {
        a: &packed.a[ranks.start * packed.a_width..ranks.end * packed.a_width],
        a_width: packed.a_width,
        inputs,
        x,
        rows: &segment.rows[places.clone()],
        first_rank: ranks.start,
        rank,
        blocks,
        low,
        start: start + places.start * rank,
    }
}

fn expand<'a, E: Element>(
    packed: &'a Packed<E>,
    segment: &LoraSegment<'a>,
    block: Block,
    panels: &Range<usize>,
    places: &Range<usize>,
    low: &'a [f32],
    y: &'a SharedMut<'a, f32>,
) -> Expand<'a, E> {
    let LoraWeights { rank, out_features, .. } = *segment.weights;
    let panel_len = block.rank * OUTPUTS;
    let b = &packed.b[block.b_start..];
    Expand {
        b: &b[panels.start * panel_len..panels.end * panel_len],
        block,
        first_panel: panels.start,
        rows: &segment.rows[places.clone()],
        low: &low[places.start * rank..places.end * rank],
        rank,
        out_features,
        y,
    }
}

/// Replaces rows of y by those of x.
pub(crate) fn set_rows(y: FlexTensor, x: FlexTensor, rows: &[u32]) -> FlexTensor {
    let [_, width] = dims2(&x);
    let (x, mut y) = (dense(x), dense(y));
    let to = values_mut(&mut y);
    for (row, from) in rows.iter().zip(values(&x).chunks_exact(width.max(1))) {
        to[*row as usize * width..][..width].copy_from_slice(from);
    }
    give_back(x);
    y
}
