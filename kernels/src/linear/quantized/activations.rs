//! Rows of activations as i8, where each block of inputs has a scale of its own.

use std::ops::Range;

use super::isa::{Dots, DotsTask};
use super::pack::Groups;
use crate::threads::{SharedMut, for_each_piece};
use crate::workspace::Scratch;

/// The largest magnitude of a quantized activation. -128 is left out, so that signs can move.
const CODE_MAX: f32 = 127.0;

/// Least magnitude of a block. A smaller one is all zeros, because `127 / magnitude` would
/// overflow.
pub(super) const MAGNITUDE_MIN: f32 = 1e-36;

/// The bit of the sign.
const SIGN: u32 = 1 << 31;

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

/// Inputs of a row that are quantized before those of the next row. The words of all rows lie side
/// by side, so each cache line is written once.
const STRETCH: usize = 64;

/// Most rows of a tile, on every instruction set.
const TILE_ROWS: usize = 12;

impl DotsTask for QuantizeTile<'_> {
    type Output = ();

    #[inline(always)]
    fn run<D: Dots>(self, _: D) {
        const { assert!(D::ROWS_MAX <= TILE_ROWS) };
        let Groups { inputs, size } = self.groups;
        let (rows, group_words) = (self.x.len() / inputs, self.groups.words());
        if rows == 0 {
            return;
        }
        let mut gathered = Scratch::<f32>::new(if self.order.is_some() { self.x.len() } else { 0 });
        let x = match self.order {
            None => self.x,
            Some(order) => {
                let rows = self.x.chunks_exact(inputs).zip(gathered.chunks_exact_mut(inputs));
                for (row, gathered) in rows {
                    for (gathered, input) in gathered.iter_mut().zip(order) {
                        *gathered = row[*input as usize];
                    }
                }
                &gathered
            }
        };
        let mut inverses = [0.0; TILE_ROWS];
        let mut codes = [[0; STRETCH / 4]; TILE_ROWS];
        for g in 0..self.groups.count() {
            if g % self.groups.per_block() == 0 {
                let end = inputs.min((g + self.groups.per_block()) * size);
                let scales = &mut self.scales[g / self.groups.per_block() * rows..];
                let of_rows = scales.iter_mut().zip(&mut inverses).zip(x.chunks_exact(inputs));
                for ((of_row, inverse), row) in of_rows {
                    (*of_row, *inverse) = scale(&row[g * size..end]);
                }
            }
            let end = inputs.min((g + 1) * size);
            let sums = &mut self.sums[g * rows..][..rows];
            sums.fill(0);
            let words = &mut self.words[g * group_words * rows..][..group_words * rows];
            for (i, words) in words.chunks_mut(STRETCH / 4 * rows).enumerate() {
                let first = end.min(g * size + i * STRETCH);
                let last = end.min(first + STRETCH);
                let of_rows = x.chunks_exact(inputs).zip(&mut codes).zip(&inverses);
                for (sum, ((row, codes), inverse)) in sums.iter_mut().zip(of_rows) {
                    let codes = bytemuck::cast_mut(codes);
                    let part = quantize(&row[first..last], *inverse, codes);
                    *sum = sum.wrapping_add(part);
                }
                // If the number of rows is a constant, they are gathered in registers.
                match rows {
                    TILE_ROWS => interleave(&codes, words.as_chunks_mut::<TILE_ROWS>().0),
                    _ => interleave(&codes, words.chunks_exact_mut(rows)),
                }
            }
        }
    }
}

/// Writes the words of all rows, word by word.
#[inline(always)]
fn interleave<W: AsMut<[u32]>>(
    codes: &[[u32; STRETCH / 4]; TILE_ROWS],
    words: impl IntoIterator<Item = W>,
) {
    for (w, mut words) in words.into_iter().enumerate() {
        for (word, codes) in words.as_mut().iter_mut().zip(codes) {
            *word = u32::from_le(codes[w]);
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
fn quantize(x: &[f32], inverse: f32, quantized: &mut [i8; STRETCH]) -> i32 {
    // If the length is a constant, no code is needed for a rest.
    match <&[f32; STRETCH]>::try_from(x) {
        Ok(x) => quantize_all(x, inverse, quantized),
        Err(_) => {
            quantized[x.len()..].fill(0);
            quantize_all(x, inverse, quantized)
        }
    }
}

#[inline(always)]
fn quantize_all(x: &[f32], inverse: f32, quantized: &mut [i8]) -> i32 {
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
    // Numbers that are not finite have the largest bits, and magnitudes the order of their bits.
    // Integers have one maximum in every order, so the loop vectorises.
    let most = x.iter().fold(0, |most: u32, x| most.max(x.to_bits() & !SIGN));
    let most = f32::from_bits(most);
    if most.is_finite() { most } else { f32::NAN }
}
