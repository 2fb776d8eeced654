//! The vector of a prompt that was computed in pieces, each as long as the model's context. vLLM
//! calls this chunked processing. It is the mean of their vectors, weighted by their lengths. A
//! sparse vector has the largest weight of each token of the vocabulary, so it is that of all
//! pieces.

use playhouse_actors::logic::request::outputs::Pooled;

/// How the vectors of pieces become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Join {
    /// Their mean, divided by its length if their vectors were.
    Mean { is_normalized: bool },
    /// Their largest elements, of vectors that were not divided by their lengths. The result is
    /// divided by its length if `normalizes`.
    Largest { normalizes: bool },
}

/// The vectors of the pieces of one prompt so far.
#[derive(Debug)]
pub(super) struct Pieces {
    join: Join,
    /// Weighted sums, or largest elements.
    joined: Vec<f64>,
    num_tokens: usize,
    /// The vector of the only piece.
    only: Option<Pooled>,
}

impl Pieces {
    /// Returns no pieces.
    pub(super) fn new(join: Join) -> Self {
        Self { join, joined: Vec::new(), num_tokens: 0, only: None }
    }

    /// Adds the vector of a piece of `num_tokens`.
    pub(super) fn add(&mut self, piece: Pooled, num_tokens: usize) {
        let (neutral, weight) = match self.join {
            Join::Mean { .. } => (0.0, num_tokens as f64),
            Join::Largest { .. } => (f64::NEG_INFINITY, 1.0),
        };
        self.joined.resize(piece.values.len().max(self.joined.len()), neutral);
        for (joined, value) in self.joined.iter_mut().zip(piece.values.iter()) {
            let value = f64::from(*value) * weight;
            match self.join {
                Join::Mean { .. } => *joined += value,
                Join::Largest { .. } => *joined = joined.max(value),
            }
        }
        self.only = (self.num_tokens == 0).then_some(piece);
        self.num_tokens += num_tokens;
    }

    /// Returns the joined vector, or `None` without a piece. The result of a single piece keeps
    /// its shape.
    pub(super) fn finish(self) -> Option<Pooled> {
        let Self { join, joined, num_tokens, only } = self;
        if num_tokens == 0 {
            return None;
        }
        let (divisor, is_normalized) = match (join, only) {
            (Join::Mean { .. } | Join::Largest { normalizes: false }, Some(only)) => {
                return Some(only);
            }
            (Join::Mean { is_normalized }, None) => (num_tokens as f64, is_normalized),
            (Join::Largest { normalizes }, _) => (1.0, normalizes),
        };
        let values = joined.iter().map(|value| value / divisor);
        let length = match is_normalized {
            true => values.clone().map(|value| value * value).sum::<f64>().sqrt().max(1e-12),
            false => 1.0,
        };
        let values: Vec<f32> = values.map(|value| (value / length) as f32).collect();
        Some(Pooled { width: values.len(), values: values.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(join: Join, pieces: &[(&[f32], usize)]) -> Option<Vec<f32>> {
        let mut all = Pieces::new(join);
        for (values, num_tokens) in pieces {
            all.add(Pooled { values: (*values).into(), width: values.len() }, *num_tokens);
        }
        all.finish().map(|pooled| pooled.values.to_vec())
    }

    fn mean(pieces: &[(&[f32], usize)], is_normalized: bool) -> Option<Vec<f32>> {
        joined(Join::Mean { is_normalized }, pieces)
    }

    #[test]
    fn pieces_weigh_as_much_as_they_are_long() {
        let pieces = [(&[4.0, 0.0][..], 3), (&[0.0, 12.0], 1)];
        assert_eq!(mean(&pieces, false), Some(vec![3.0, 3.0]));
        let half = 0.5_f32.sqrt();
        assert_eq!(mean(&pieces, true), Some(vec![half, half]));
    }

    #[test]
    fn one_piece_is_the_result() {
        assert_eq!(mean(&[(&[3.0, 4.0], 5)], true), Some(vec![3.0, 4.0]));
        assert_eq!(mean(&[], true), None);
        assert_eq!(mean(&[(&[0.0], 1), (&[0.0], 1)], true), Some(vec![0.0]), "no division by zero");
    }

    #[test]
    fn the_weights_of_a_sparse_vector_are_the_largest_of_all_pieces() {
        let pieces = [(&[3.0, 0.0, 1.0][..], 9), (&[2.0, 4.0, 0.0], 1)];
        let largest = |normalizes| joined(Join::Largest { normalizes }, &pieces);
        assert_eq!(largest(false), Some(vec![3.0, 4.0, 1.0]));
        let by_root = |values: [f64; 3], squares: f64| {
            Some(values.map(|value| (value / squares.sqrt()) as f32).to_vec())
        };
        assert_eq!(largest(true), by_root([3.0, 4.0, 1.0], 26.0));
        let one = joined(Join::Largest { normalizes: true }, &pieces[..1]);
        assert_eq!(one, by_root([3.0, 0.0, 1.0], 10.0));
    }
}
