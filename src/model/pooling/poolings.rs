//! From the hidden states of a prompt to one vector: the poolings of sentence-transformers
//! (`Pooling`), alone or with their vectors joined.

use std::ops::Range;

use crate::config::SequencePooling;

/// A pooling of the hidden states of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pooling {
    /// That of the first token.
    Cls,
    /// That of the last token.
    Last,
    /// Their mean.
    Mean,
    /// The largest of each element.
    Max,
    /// Their sum, divided by the square root of their number.
    MeanSqrtLen,
    /// Their mean, each weighted by its position from 1 on.
    WeightedMean,
}

/// The poolings of a prompt, whose vectors are joined in this order. There is at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Poolings(Vec<Pooling>);

impl From<SequencePooling> for Poolings {
    fn from(pooling: SequencePooling) -> Self {
        Self(vec![match pooling {
            SequencePooling::Cls => Pooling::Cls,
            SequencePooling::Last => Pooling::Last,
            SequencePooling::Mean => Pooling::Mean,
        }])
    }
}

impl Poolings {
    /// Returns these poolings, or `None` if there are none.
    #[must_use]
    pub fn new(poolings: Vec<Pooling>) -> Option<Self> {
        (!poolings.is_empty()).then_some(Self(poolings))
    }

    /// Returns whether `pooling` is the only one.
    #[must_use]
    pub fn is(&self, pooling: Pooling) -> bool {
        self.0 == [pooling]
    }

    /// Returns the number of poolings.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns whether [`Folded`] computes the vector. The first token, the last one and the mean
    /// alone need less.
    pub(super) fn is_folded(&self) -> bool {
        !matches!(*self.0, [Pooling::Cls | Pooling::Last | Pooling::Mean])
    }

    /// Returns the positions of a chunk whose hidden states count, in a prompt of `len` tokens
    /// whose first one that counts is `first`.
    pub(super) fn wanted(&self, chunk: Range<usize>, len: usize, first: usize) -> Range<usize> {
        let Range { start, end } = chunk;
        match *self.0 {
            [Pooling::Cls] if (start..end).contains(&first) => first..first + 1,
            [Pooling::Cls] => end..end,
            [Pooling::Last] if end == len => end - 1..end,
            [Pooling::Last] => end..end,
            _ => start..end,
        }
    }
}

/// The hidden states of a prompt so far, folded to one row for each pooling.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Folded {
    /// `[poolings, hidden_size]`.
    rows: Vec<f64>,
    num_tokens: usize,
    /// The sum of the tokens' weights by their positions.
    weights: f64,
}

impl Folded {
    /// Adds the hidden states of tokens from `start` on, `[tokens, width]`. Those before `first`
    /// do not count.
    pub(super) fn add(
        &mut self,
        poolings: &Poolings,
        start: usize,
        first: usize,
        hidden: &[f32],
        width: usize,
    ) {
        let width = width.max(1);
        self.rows.resize(width * poolings.count(), 0.0);
        let tokens = (start..).zip(hidden.chunks_exact(width));
        for (position, hidden) in tokens.skip_while(|(position, _)| *position < first) {
            let is_first = self.num_tokens == 0;
            for (row, pooling) in self.rows.chunks_exact_mut(width).zip(&poolings.0) {
                for (folded, x) in row.iter_mut().zip(hidden) {
                    let x = f64::from(*x);
                    match pooling {
                        Pooling::Cls if is_first => *folded = x,
                        Pooling::Cls => {}
                        Pooling::Last => *folded = x,
                        // A NaN stays.
                        Pooling::Max if is_first || x > *folded || x.is_nan() => *folded = x,
                        Pooling::Max => {}
                        Pooling::Mean | Pooling::MeanSqrtLen => *folded += x,
                        Pooling::WeightedMean => *folded += x * (position + 1) as f64,
                    }
                }
            }
            self.num_tokens += 1;
            self.weights += (position + 1) as f64;
        }
    }

    /// Returns the joined vectors of all poolings.
    pub(super) fn finish(self, poolings: &Poolings) -> Vec<f32> {
        let count = self.num_tokens as f64;
        let width = (self.rows.len() / poolings.count()).max(1);
        let rows = self.rows.chunks_exact(width).zip(&poolings.0);
        let vectors = rows.flat_map(|(row, pooling)| {
            let divisor = match pooling {
                Pooling::Cls | Pooling::Last | Pooling::Max => 1.0,
                Pooling::Mean => count,
                Pooling::MeanSqrtLen => count.sqrt(),
                Pooling::WeightedMean => self.weights,
            };
            row.iter().map(move |x| (x / divisor) as f32)
        });
        vectors.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pooling_has_its_formula_and_its_place() {
        let all = [
            Pooling::Max,
            Pooling::MeanSqrtLen,
            Pooling::WeightedMean,
            Pooling::Cls,
            Pooling::Last,
            Pooling::Mean,
        ];
        let poolings = Poolings::new(all.to_vec()).unwrap();
        let hidden = [-3.0, 4.0, 5.0, 0.0, -1.0, 2.0, 3.0, 2.0];
        for parts in [&[4][..], &[1, 4], &[1, 2, 3, 4]] {
            let (mut folded, mut start) = (Folded::default(), 0);
            for &end in parts {
                folded.add(&poolings, start, 0, &hidden[2 * start..2 * end], 2);
                start = end;
            }
            let expected = [5.0, 4.0, 2.0, 4.0, 1.6, 1.8, -3.0, 4.0, 3.0, 2.0, 1.0, 2.0];
            assert_eq!(folded.finish(&poolings), expected, "{parts:?}");
        }
    }

    #[test]
    fn tokens_before_the_first_one_do_not_count() {
        let all = [Pooling::Cls, Pooling::Max, Pooling::Mean, Pooling::WeightedMean, Pooling::Last];
        let poolings = Poolings::new(all.to_vec()).unwrap();
        let hidden = [9.0, 5.0, 1.0, 4.0];
        for parts in [&[4][..], &[1, 4], &[1, 2, 3, 4]] {
            let (mut folded, mut start) = (Folded::default(), 0);
            for &end in parts {
                folded.add(&poolings, start, 2, &hidden[start..end], 1);
                start = end;
            }
            // The weights are 3 and 4.
            let expected = [1.0, 4.0, 2.5, 19.0 / 7.0, 4.0];
            assert_eq!(folded.finish(&poolings), expected.map(|x: f64| x as f32), "{parts:?}");
        }
    }

    #[test]
    fn one_plain_pooling_needs_few_hidden_states() {
        let wanted = |pooling, chunk| Poolings::from(pooling).wanted(chunk, 9, 0);
        assert_eq!(wanted(SequencePooling::Cls, 0..4), 0..1);
        assert!(wanted(SequencePooling::Cls, 4..9).is_empty());
        assert!(wanted(SequencePooling::Last, 0..4).is_empty());
        assert_eq!(wanted(SequencePooling::Last, 4..9), 8..9);
        let cls = Poolings::from(SequencePooling::Cls);
        assert_eq!((cls.wanted(0..4, 9, 4).len(), cls.wanted(4..9, 9, 4)), (0, 4..5));
        let both = Poolings::new(vec![Pooling::Cls, Pooling::Last]).unwrap();
        assert_eq!((both.wanted(0..4, 9, 0), both.is_folded()), (0..4, true));
        assert_eq!(Poolings::new(Vec::new()), None);
    }
}
