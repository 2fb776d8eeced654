//! Greedy choice and the Gumbel-max draw: `argmax_i (l_i / T + G_i)` with independent standard
//! Gumbel noise follows `softmax(l / T)` (Maddison, Tarlow & Minka 2014).

use super::SamplingRow;
use super::philox::philox4x32;

/// No noise made from a 32-bit uniform is larger: `-ln(-ln(1 - 2^-33))` = 22.8739.
const NOISE_MAX: f64 = 22.88;

/// The largest logit's token, the lowest id where it is tied; `None` if all are −∞.
pub(super) fn argmax(logits: &[f32]) -> Option<u32> {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if max == f32::NEG_INFINITY {
        return None;
    }
    logits.iter().position(|l| *l == max).map(|i| i as u32)
}

/// The draw over `kept` (logit, id) pairs, or over the whole row where there was no truncation.
/// `best` is the likeliest token.
pub(super) fn gumbel_argmax(
    logits: &[f32],
    kept: Option<&[(f32, u32)]>,
    best: u32,
    row: &SamplingRow<'_>,
) -> u32 {
    let mut draw = Draw::new(row);
    // The likeliest token first: most others then need more noise than there is.
    draw.consider(logits[best as usize], best);
    match kept {
        Some(kept) => kept.iter().for_each(|(logit, id)| draw.consider(*logit, *id)),
        None => (0..).zip(logits).for_each(|(id, logit)| draw.consider(*logit, id)),
    }
    draw.token_id
}

/// The best token so far of one (seed, position).
struct Draw {
    key: [u32; 2],
    position: [u32; 2],
    /// Noise of the four tokens `4 * quad ..`.
    words: [u32; 4],
    quad: Option<u32>,
    score: f64,
    token_id: u32,
}

impl Draw {
    fn new(row: &SamplingRow<'_>) -> Self {
        Self {
            key: halves(row.seed),
            position: halves(row.position),
            words: [0; 4],
            quad: None,
            score: f64::NEG_INFINITY,
            token_id: 0,
        }
    }

    #[inline]
    fn consider(&mut self, logit: f32, id: u32) {
        let logit = f64::from(logit);
        if logit + NOISE_MAX < self.score || logit == f64::NEG_INFINITY {
            return;
        }
        let score = logit + self.noise(id);
        if score > self.score || (score == self.score && id < self.token_id) {
            (self.score, self.token_id) = (score, id);
        }
    }

    /// Standard Gumbel noise of a token. One Philox block serves four neighbouring tokens.
    fn noise(&mut self, id: u32) -> f64 {
        let quad = id / 4;
        if self.quad != Some(quad) {
            let counter = [quad, 0, self.position[0], self.position[1]];
            self.words = philox4x32(counter, self.key);
            self.quad = Some(quad);
        }
        gumbel(self.words[(id % 4) as usize])
    }
}

/// Standard Gumbel noise from a uniform word, through the middle of its 2^-32 wide cell.
fn gumbel(word: u32) -> f64 {
    let uniform = (f64::from(word) + 0.5) / 4_294_967_296.0;
    -(-uniform.ln()).ln()
}

fn halves(x: u64) -> [u32; 2] {
    [x as u32, (x >> 32) as u32]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_stays_within_its_bound() {
        assert!(gumbel(u32::MAX) < NOISE_MAX);
        assert!(gumbel(0) > -3.2);
    }

    #[test]
    fn argmax_takes_the_lowest_of_tied_ids() {
        assert_eq!(argmax(&[1.0, 3.0, 3.0]), Some(1));
        assert_eq!(argmax(&[f32::NEG_INFINITY; 3]), None);
        assert_eq!(argmax(&[]), None);
    }
}
