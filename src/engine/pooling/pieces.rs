//! The vector of a prompt that was computed in pieces, each as long as the model's context: the
//! mean of their vectors, weighted by their lengths. vLLM calls this chunked processing.

use playhouse_actors::logic::request::outputs::Pooled;

/// The vectors of the pieces of one prompt so far.
#[derive(Debug, Default)]
pub(super) struct PieceMean {
    sums: Vec<f64>,
    num_tokens: usize,
    /// The vector of the only piece.
    only: Option<Pooled>,
}

impl PieceMean {
    /// Adds the vector of a piece of `num_tokens`.
    pub(super) fn add(&mut self, piece: Pooled, num_tokens: usize) {
        self.sums.resize(piece.values.len().max(self.sums.len()), 0.0);
        let weighted = piece.values.iter().map(|value| f64::from(*value) * num_tokens as f64);
        self.sums.iter_mut().zip(weighted).for_each(|(sum, value)| *sum += value);
        self.only = (self.num_tokens == 0).then_some(piece);
        self.num_tokens += num_tokens;
    }

    /// Returns the mean, divided by its length if the vectors of the pieces were. Returns `None`
    /// without a piece. The result of a single piece is returned unchanged, whatever its shape.
    pub(super) fn finish(self, is_normalized: bool) -> Option<Pooled> {
        let Self { sums, num_tokens, only } = self;
        if only.is_some() || num_tokens == 0 {
            return only;
        }
        let mean = sums.iter().map(|sum| sum / num_tokens as f64);
        let length = match is_normalized {
            true => mean.clone().map(|value| value * value).sum::<f64>().sqrt().max(1e-12),
            false => 1.0,
        };
        let values: Vec<f32> = mean.map(|value| (value / length) as f32).collect();
        Some(Pooled { width: values.len(), values: values.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(pieces: &[(&[f32], usize)], is_normalized: bool) -> Option<Vec<f32>> {
        let mut mean = PieceMean::default();
        for (values, num_tokens) in pieces {
            mean.add(Pooled { values: (*values).into(), width: values.len() }, *num_tokens);
        }
        mean.finish(is_normalized).map(|pooled| pooled.values.to_vec())
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
}
