//! Greedy choice and the Gumbel-max draw. With independent standard Gumbel noise,
//! `argmax_i (l_i / T + G_i)` follows `softmax(l / T)` (Maddison, Tarlow & Minka 2014).
//!
//! The noise of token i is a function of (seed, position, i) alone. It is word `i mod 4` of Philox
//! under the seed, at the counter (i / 4, 0, position).

use std::f64::consts::LN_2;

use super::SamplingRow;
use super::philox::{philox4x32, philox4x32_lanes};
use super::select::max_logit;
use crate::simd::{Isa, Kernel, Simd};

/// Bound of the noise from a 32-bit uniform word. The largest is `-ln(-ln(1 - 2^-33))` = 22.8739.
const NOISE_MAX: f64 = 22.88;

/// Philox blocks made at once, and the tokens that they serve.
const QUADS: usize = 16;
const CHUNK: usize = 4 * QUADS;

/// Draws from `kept` (logit, id) pairs, or from the whole row where there was no truncation. `best`
/// is the likeliest token.
pub(super) fn gumbel_argmax(
    logits: &[f32],
    kept: Option<&[(f32, u32)]>,
    best: u32,
    row: &SamplingRow<'_>,
) -> u32 {
    let noise = Noise { key: halves(row.seed), position: halves(row.position) };
    // The likeliest token comes first: most others then need more noise than they have.
    let mut draw = Draw { score: f64::NEG_INFINITY, token_id: 0 };
    draw.consider(logits[best as usize], best, noise.word(best));
    match kept {
        Some(kept) => {
            for (logit, id) in kept {
                draw.consider(*logit, *id, noise.word(*id));
            }
        }
        None => draw = Isa::active().run(WholeRow { logits, noise, draw }),
    }
    draw.token_id
}

/// Returns the number that the draw compares: the logit with its noise.
#[cfg(test)]
pub(super) fn score(logit: f32, id: u32, row: &SamplingRow<'_>) -> f64 {
    let noise = Noise { key: halves(row.seed), position: halves(row.position) };
    f64::from(logit) + gumbel(noise.word(id))
}

/// The words of one (seed, position).
#[derive(Debug, Clone, Copy)]
struct Noise {
    key: [u32; 2],
    position: [u32; 2],
}

impl Noise {
    /// Returns the word of token `id`. One Philox block serves four neighbouring tokens.
    fn word(self, id: u32) -> u32 {
        let counter = [id / 4, 0, self.position[0], self.position[1]];
        philox4x32(counter, self.key)[(id % 4) as usize]
    }

    /// Returns the words of tokens `first .. first + CHUNK`; `first` is a multiple of 4.
    #[inline(always)]
    fn chunk(self, first: u32) -> [[u32; QUADS]; 4] {
        let quads = std::array::from_fn(|i| first / 4 + i as u32);
        let position = self.position.map(|word| [word; QUADS]);
        philox4x32_lanes([quads, [0; QUADS], position[0], position[1]], self.key)
    }
}

/// The best token so far.
#[derive(Debug, Clone, Copy)]
struct Draw {
    score: f64,
    token_id: u32,
}

impl Draw {
    #[inline(always)]
    fn consider(&mut self, logit: f32, id: u32, word: u32) {
        let logit = f64::from(logit);
        if logit + noise_bound(word) < self.score || logit == f64::NEG_INFINITY {
            return;
        }
        let score = logit + gumbel(word);
        if score > self.score || (score == self.score && id < self.token_id) {
            (self.score, self.token_id) = (score, id);
        }
    }
}

/// The draw from a row without truncation.
struct WholeRow<'a> {
    logits: &'a [f32],
    noise: Noise,
    draw: Draw,
}

impl Kernel for WholeRow<'_> {
    type Output = Draw;

    #[inline(always)]
    fn run<S: Simd>(mut self, _: S) -> Draw {
        for (chunk, first) in self.logits.chunks(CHUNK).zip((0..).step_by(CHUNK)) {
            if f64::from(max_logit(chunk)) + NOISE_MAX < self.draw.score {
                continue;
            }
            let words = self.noise.chunk(first);
            for ((logit, id), i) in chunk.iter().zip(first..).zip(0..) {
                self.draw.consider(*logit, id, words[i % 4][i / 4]);
            }
        }
        self.draw
    }
}

/// Returns standard Gumbel noise from a uniform word, for the middle of its 2^-32 wide cell.
fn gumbel(word: u32) -> f64 {
    let uniform = (f64::from(word) + 0.5) / 4_294_967_296.0;
    -(-uniform.ln()).ln()
}

/// Returns an upper bound of [`gumbel`], without a logarithm: from `-ln u >= 1 - u`, rounded down
/// to a power of two. The last term is room for rounding.
#[inline(always)]
fn noise_bound(word: u32) -> f64 {
    LN_2 * f64::from((!word).leading_zeros() + 1) + 1e-9
}

fn halves(x: u64) -> [u32; 2] {
    [x as u32, (x >> 32) as u32]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sampling::select::scan;

    #[test]
    fn noise_stays_within_its_bounds() {
        assert!(gumbel(u32::MAX) < NOISE_MAX);
        assert!(gumbel(0) > -3.2);
        for shift in 0..32 {
            for word in [u32::MAX << shift, u32::MAX >> shift, !(1 << shift), 1 << shift] {
                assert!(gumbel(word) <= noise_bound(word), "{word:#x}");
            }
        }
    }

    proptest! {
        #[test]
        fn the_bound_holds_for_any_word(word: u32) {
            prop_assert!(gumbel(word) <= noise_bound(word));
        }

        /// The token is the argmax of the formula, despite shortcuts and vectors.
        #[test]
        fn the_draw_is_the_formula(
            logits in prop::collection::vec(-30.0f32..5.0, 1..300),
            seed: u64,
            position: u64,
        ) {
            let row = SamplingRow { seed, position, ..SamplingRow::default() };
            let noise = Noise { key: halves(seed), position: halves(position) };
            let score = |(logit, id): (&f32, u32)| f64::from(*logit) + gumbel(noise.word(id));
            let naive = logits.iter().zip(0..).max_by(|a, b| score(*a).total_cmp(&score(*b)));
            let best = scan(&logits).best.unwrap();
            prop_assert_eq!(gumbel_argmax(&logits, None, best, &row), naive.unwrap().1);
        }
    }
}
