//! Rows of activations as i8, where each block of inputs has a scale of its own.

use std::ops::Range;

use super::isa::{Dots, DotsTask};
use super::pack::Groups;
use crate::simd::LANES;
use crate::threads::{SharedMut, for_each_piece};
use crate::workspace::Scratch;

/// The largest magnitude of a quantized activation. -128 is left out, so that signs can move.
const CODE_MAX: f32 = 127.0;

/// Least magnitude of a block. A smaller one is all zeros, because `127 / magnitude` would
/// overflow.
pub(super) const MAGNITUDE_MIN: f32 = 1e-36;

/// Added to a number below 2²² and subtracted again, it rounds to the nearest integer, ties to
/// even.
const ROUNDING: f32 = 12_582_912.0;

/// Quantized rows, in the tiles of the product.
pub(super) struct Activations<'a> {
    /// `[tile][group][word][row of the tile]`: four i8 a word, missing inputs 0.
    pub(super) words: &'a [u32],
    /// `[tile][block][row of the tile]`
    pub(super) scales: &'a [f32],
    /// `[tile][group][row of the tile]`: sums of the quantized values.
    pub(super) sums: &'a [i32],
}

/// The quantized rows of one or more products, with the tiles of each side by side.
pub(super) struct ActivationRows {
    groups: Groups,
    words: Scratch<u32>,
    scales: Scratch<f32>,
    sums: Scratch<i32>,
}

impl ActivationRows {
    /// Quantizes row-major x `[rows, inputs]`. `tile` returns the rows of each of `tiles` tiles,
    /// which are disjoint, and the order of their columns: column `c` takes the input `order[c]`.
    pub(super) fn new<'o, D: Dots>(
        dots: D,
        x: &[f32],
        groups: Groups,
        tiles: usize,
        tile: impl Fn(usize) -> (Range<usize>, Option<&'o [u32]>) + Sync,
    ) -> Self {
        let rows = x.len() / groups.inputs;
        let mut words = Scratch::new(rows * groups.count() * groups.words());
        let mut scales = Scratch::new(rows * groups.blocks());
        let mut sums = Scratch::new(rows * groups.count());
        let shared =
            (SharedMut::new(&mut words), SharedMut::new(&mut scales), SharedMut::new(&mut sums));
        for_each_piece(tiles, x.len(), |piece| {
            let (tile, order) = tile(piece);
            let part = |each: usize| (tile.start * each, tile.len() * each);
            let (words, scales, sums) = (
                part(groups.count() * groups.words()),
                part(groups.blocks()),
                part(groups.count()),
            );
            // SAFETY: tiles are disjoint, and so are their parts of each buffer.
            let (words, scales, sums) = unsafe {
                (
                    shared.0.slice(words.0, words.1),
                    shared.1.slice(scales.0, scales.1),
                    shared.2.slice(sums.0, sums.1),
                )
            };
            let x = &x[tile.start * groups.inputs..tile.end * groups.inputs];
            dots.enter(QuantizeTile { x, groups, order, words, scales, sums });
        });
        Self { groups, words, scales, sums }
    }

    /// Returns the rows of one product.
    pub(super) fn rows(&self, rows: &Range<usize>) -> Activations<'_> {
        let part = |each: usize| rows.start * each..rows.end * each;
        let groups = self.groups;
        Activations {
            words: &self.words[part(groups.count() * groups.words())],
            scales: &self.scales[part(groups.blocks())],
            sums: &self.sums[part(groups.count())],
        }
    }
}

/// The task of quantizing one tile.
struct QuantizeTile<'a> {
    x: &'a [f32],
    groups: Groups,
    order: Option<&'a [u32]>,
    words: &'a mut [u32],
    scales: &'a mut [f32],
    sums: &'a mut [i32],
}

impl DotsTask for QuantizeTile<'_> {
    type Output = ();

    #[inline(always)]
    fn run<D: Dots>(self, _: D) {
        let groups = self.groups;
        let (rows, group_words) = (self.x.len() / groups.inputs, groups.words());
        let mut gathered =
            Scratch::<f32>::new(if self.order.is_some() { groups.inputs } else { 0 });
        let mut quantized = Scratch::<i8>::new(4 * group_words);
        for (r, row) in self.x.chunks_exact(groups.inputs).enumerate() {
            let row = match self.order {
                None => row,
                Some(order) => {
                    for (gathered, input) in gathered.iter_mut().zip(order) {
                        *gathered = row[*input as usize];
                    }
                    &gathered
                }
            };
            for (k, block) in row.chunks(groups.size * groups.per_block()).enumerate() {
                let (scale, inverse) = scale(block);
                self.scales[k * rows + r] = scale;
                for (g, x) in (k * groups.per_block()..).zip(block.chunks(groups.size)) {
                    quantized[x.len()..].fill(0);
                    self.sums[g * rows + r] = quantize(x, inverse, &mut quantized[..x.len()]);
                    let words = self.words[g * group_words * rows + r..].iter_mut().step_by(rows);
                    for (word, bytes) in words.zip(quantized.as_chunks().0) {
                        *word = u32::from_le_bytes(bytes.map(|byte: i8| byte as u8));
                    }
                }
            }
        }
    }
}

/// Returns the scale that makes the largest magnitude 127, and its inverse. A NaN scale marks
/// numbers that are not finite.
#[inline(always)]
fn scale(x: &[f32]) -> (f32, f32) {
    let magnitude = magnitude(x);
    if magnitude < MAGNITUDE_MIN {
        return (0.0, 0.0);
    }
    (magnitude / CODE_MAX, CODE_MAX / magnitude)
}

/// Writes `x · inverse`, rounded to the nearest integer. Returns the sum of the results.
#[inline(always)]
fn quantize(x: &[f32], inverse: f32, quantized: &mut [i8]) -> i32 {
    let mut sum = 0i32;
    for (quantized, x) in quantized.iter_mut().zip(x) {
        let code = nearest(x * inverse);
        *quantized = code as i8;
        sum = sum.wrapping_add(code);
    }
    sum
}

/// Returns the integer nearest to a number below 2²² in magnitude, ties to even. It has no calls or
/// branches, so that loops vectorise on every instruction set.
#[inline(always)]
fn nearest(x: f32) -> i32 {
    ((x + ROUNDING).to_bits() as i32).wrapping_sub(ROUNDING.to_bits() as i32)
}

/// Returns the largest magnitude; NaN where a number is not finite.
#[inline(always)]
pub(super) fn magnitude(x: &[f32]) -> f32 {
    let (mut most, mut not_finite) = ([0.0f32; LANES], [0.0f32; LANES]);
    let (chunks, rest) = x.as_chunks::<LANES>();
    let mut last = [0.0; LANES];
    last[..rest.len()].copy_from_slice(rest);
    for chunk in chunks.iter().chain([&last]) {
        for ((x, most), not_finite) in chunk.iter().zip(&mut most).zip(&mut not_finite) {
            let magnitude = x.abs();
            *most = if magnitude > *most { magnitude } else { *most };
            *not_finite += x * 0.0;
        }
    }
    let most = most.into_iter().fold(0.0, f32::max);
    most + not_finite.into_iter().sum::<f32>()
}
