//! An output layer with fewer rows than the embedding: HF `Molmo2ForConditionalGeneration`.

use std::sync::Arc;

use burn::tensor::{Tensor, TensorData};
use playhouse_kernels::profile::timed;

use crate::model::{Adapters, LmHead};

/// The logit of a token without a row in the output layer. The sampler reads it as a mask: no
/// request gets this token, not even one that allows no other.
const NEVER: f32 = f32::NEG_INFINITY;

/// An output layer, and the number of tokens behind its own.
struct PaddedHead<H> {
    head: H,
    num_unscored: usize,
}

/// Returns `head` with a logit for each of `num_unscored` further tokens, which no output has.
pub(in crate::model) fn padded_head(
    head: impl LmHead + 'static,
    num_unscored: usize,
) -> Arc<dyn LmHead> {
    match num_unscored {
        0 => Arc::new(head),
        num_unscored => Arc::new(PaddedHead { head, num_unscored }),
    }
}

impl<H: LmHead> LmHead for PaddedHead<H> {
    fn logits(&self, hidden: Tensor<2>, rows: &[u32], adapters: Adapters<'_>) -> Tensor<2> {
        let logits = self.head.logits(hidden, rows, adapters);
        timed("lm_head", || {
            let ([count, _], device) = (logits.dims(), logits.device());
            let never = vec![NEVER; count * self.num_unscored];
            let never = TensorData::new(never, [count, self.num_unscored]);
            Tensor::cat(vec![logits, Tensor::from_data(never, &device)], 1)
        })
    }

    fn num_unscored(&self) -> usize {
        self.num_unscored
    }

    fn mapped_bytes(&self) -> u64 {
        self.head.mapped_bytes()
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;

    /// A head whose logits are the rows themselves.
    struct Rows;

    impl LmHead for Rows {
        fn logits(&self, hidden: Tensor<2>, _: &[u32], _: Adapters<'_>) -> Tensor<2> {
            hidden
        }
    }

    #[test]
    fn tokens_without_a_row_are_never_the_likeliest() {
        let logits = |num_unscored: usize| {
            let hidden = Tensor::<2>::from_data([[-9.0, 4.0], [0.5, -1e20]], &Device::flex());
            let all = padded_head(Rows, num_unscored).logits(hidden, &[0, 1], Adapters::none());
            all.into_data().try_to_vec::<f32>().unwrap()
        };
        assert_eq!(logits(0), [-9.0, 4.0, 0.5, -1e20]);
        assert_eq!(logits(2), [-9.0, 4.0, NEVER, NEVER, 0.5, -1e20, NEVER, NEVER]);
    }
}
