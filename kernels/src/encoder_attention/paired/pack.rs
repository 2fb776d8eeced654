//! The layouts of queries, keys and values as pairs of bfloat16.

use super::BLOCK;
use crate::simd::{LANES, Simd};

/// Sixteen pairs of bfloat16.
pub(super) type Line = [u16; 2 * LANES];

/// Writes the pairs of a query head. Those of its chunk `c` go to line `c * stride`.
#[inline(always)]
pub(super) fn query<S: Simd>(s: S, row: &[f32], out: &mut [[u32; LANES]], stride: usize) {
    for (out, chunk) in out.iter_mut().step_by(stride).zip(row.chunks(BLOCK)) {
        pairs(s, chunk, out);
    }
}

/// Writes a chunk of up to 32 elements as pairs. Missing elements are 0.
#[inline(always)]
fn pairs<S: Simd>(s: S, chunk: &[f32], out: &mut [u32; LANES]) {
    let [even, odd] = halves(s, chunk);
    s.narrow_pairs(bytemuck::cast_mut::<_, Line>(out), even, odd);
}

/// Loads a chunk of up to 32 elements. Missing elements are 0.
#[inline(always)]
fn halves<S: Simd>(s: S, chunk: &[f32]) -> [S::V; 2] {
    if let [low, high] = chunk.as_chunks::<LANES>().0 {
        return [s.load(low), s.load(high)];
    }
    let mut padded = [[0.0; LANES]; 2];
    padded.as_flattened_mut()[..chunk.len()].copy_from_slice(chunk);
    [s.load(&padded[0]), s.load(&padded[1])]
}

/// Lays out `len` keys as `[block of 32 keys][pair of elements][half of the block]`. A line has one
/// pair of elements of sixteen keys. Missing keys are 0.
#[inline(always)]
pub(super) fn keys<'a, S: Simd>(
    s: S,
    len: usize,
    chunks: usize,
    key: impl Fn(usize) -> &'a [f32],
    out: &mut [[Line; 2]],
) {
    let blocks = out.chunks_exact_mut(chunks * LANES).zip((0..len).step_by(BLOCK));
    for (block, first) in blocks {
        for half in 0..2 {
            for (c, lines) in block.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
                let mut of_keys = [[0; LANES]; LANES];
                for (i, pairs_of_key) in of_keys.iter_mut().enumerate() {
                    let at = first + half * LANES + i;
                    if at < len {
                        let row = key(at);
                        pairs(s, &row[c * BLOCK..row.len().min((c + 1) * BLOCK)], pairs_of_key);
                    }
                }
                for (pair, line) in lines.iter_mut().enumerate() {
                    let line: &mut [u32; LANES] = bytemuck::cast_mut(&mut line[half]);
                    for (out, pairs_of_key) in line.iter_mut().zip(&of_keys) {
                        *out = pairs_of_key[pair];
                    }
                }
            }
        }
    }
}

/// Lays out `len` values as `[chunk of 32 elements][pair of keys][half of the chunk]`. A line has
/// sixteen elements of one pair of keys. Missing values are 0.
#[inline(always)]
pub(super) fn values<'a, S: Simd>(
    s: S,
    len: usize,
    chunks: usize,
    value: impl Fn(usize) -> &'a [f32],
    out: &mut [[Line; 2]],
) {
    let of_chunk = len.div_ceil(BLOCK) * LANES;
    for (c, lines) in out.chunks_exact_mut(of_chunk).take(chunks).enumerate() {
        for (p, [low, high]) in lines.iter_mut().enumerate() {
            let first = p / LANES * BLOCK + p % LANES;
            let mut both = [[s.splat(0.0); 2]; 2];
            for (halves_of_chunk, at) in both.iter_mut().zip([first, first + LANES]) {
                if at < len {
                    let row = value(at);
                    *halves_of_chunk = halves(s, &row[c * BLOCK..row.len().min((c + 1) * BLOCK)]);
                }
            }
            let [[even_low, even_high], [odd_low, odd_high]] = both;
            s.narrow_pairs(low, even_low, odd_low);
            s.narrow_pairs(high, even_high, odd_high);
        }
    }
}
