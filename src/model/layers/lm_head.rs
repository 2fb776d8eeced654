//! The output layer: from hidden states to logits (`lm_head` of HF's `…ForCausalLM` classes).

use std::sync::Arc;

use burn::tensor::Tensor;
use playhouse_kernels::{WeightVector, profile::timed, scale, select_rows, soft_cap};

use super::{Linear, Part, ngpt};
use crate::model::config::{Factors, LogitsConfig};
use crate::model::weight_loader::WeightLoader;
use crate::model::{Adapters, LmHead, ModelError};

/// One product with a matrix `[vocab, hidden]`, which an embedding may share.
#[derive(Debug)]
pub(in crate::model) struct LinearHead {
    weight: Arc<Linear>,
    logits: LogitsConfig,
    /// The factors of logits, `[1, vocab]`.
    factors: Option<Tensor<2>>,
}

impl LinearHead {
    /// Loads `{module}.weight`, `[vocab, hidden]`, and `{bias}.bias`, `[vocab]`, if there is one.
    pub(in crate::model) fn load(
        loader: &mut WeightLoader<'_>,
        module: &str,
        bias: &str,
        [vocab, hidden]: [usize; 2],
        logits: LogitsConfig,
    ) -> Result<Self, ModelError> {
        let mut weight = Linear::lm_head(loader, module, bias, hidden, vocab)?;
        if logits.has_bias {
            weight = weight.with_bias(loader, &[Part::new(bias.to_owned(), vocab)])?;
        }
        loader.adapter_sites().set_lm_head(bias, [vocab, hidden], logits.has_bias);
        Ok(Self { weight: Arc::new(weight), logits, factors: None })
    }

    /// Loads the factors of logits, `[vocab]`.
    pub(in crate::model) fn with_factors(
        mut self,
        loader: &mut WeightLoader<'_>,
        factors: Factors,
        vocab: usize,
    ) -> Result<Self, ModelError> {
        self.factors = Some(ngpt::of_logits(loader, factors, vocab)?);
        Ok(self)
    }

    /// Loads `{module}.weight`, `[vocab, hidden]`, with `biases`, `[vocab]`, which are no part of
    /// the module.
    pub(in crate::model) fn with_biases(
        loader: &mut WeightLoader<'_>,
        module: &str,
        head: &str,
        [vocab, hidden]: [usize; 2],
        biases: WeightVector,
    ) -> Result<Self, ModelError> {
        let weight = Linear::lm_head(loader, module, head, hidden, vocab)?.with_biases(biases);
        loader.adapter_sites().set_lm_head(head, [vocab, hidden], true);
        let logits = LogitsConfig { multiplier: 1.0, divisor: 1.0, soft_cap: None, has_bias: true };
        Ok(Self { weight: Arc::new(weight), logits, factors: None })
    }

    /// Returns the matrix if its rows are those of the checkpoint, so that an embedding may use it.
    pub(in crate::model) fn shared_rows(&self) -> Option<Arc<Linear>> {
        self.weight.has_rows().then(|| Arc::clone(&self.weight))
    }
}

impl LmHead for LinearHead {
    fn logits(&self, hidden: Tensor<2>, rows: &[u32], adapters: Adapters<'_>) -> Tensor<2> {
        timed("lm_head", || {
            // A decode step has one row a sequence, so nothing is gathered and no index copied.
            let hidden = if are_all(&hidden, rows) { hidden } else { select_rows(hidden, rows) };
            let selected = adapters.of_rows(rows);
            let adapters = Adapters::of(&selected);
            let mut logits = match adapters.replace_head() {
                false => self.weight.forward(hidden, adapters),
                true => {
                    let logits = self.weight.forward(hidden.clone(), adapters);
                    adapters.head(logits, &hidden)
                }
            };
            if let Some(factors) = &self.factors {
                logits = logits.mul(factors.clone());
            }
            let LogitsConfig { multiplier, divisor, soft_cap: cap, .. } = self.logits;
            if multiplier != 1.0 || divisor != 1.0 {
                logits = scale(logits, multiplier / divisor);
            }
            match cap {
                None => logits,
                Some(cap) => soft_cap(logits, cap),
            }
        })
    }

    fn mapped_bytes(&self) -> u64 {
        self.weight.mapped_bytes()
    }
}

/// Returns whether `rows` are all rows of `hidden`, in their order.
fn are_all(hidden: &Tensor<2>, rows: &[u32]) -> bool {
    let [num_rows, _] = hidden.dims();
    rows.len() == num_rows && (0..).zip(rows).all(|(index, row): (u32, _)| index == *row)
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;

    #[test]
    fn all_rows_in_their_order_need_no_gather() {
        let hidden = Tensor::<2>::zeros([3, 2], &Device::flex());
        assert!(are_all(&hidden, &[0, 1, 2]));
        let others: [&[u32]; 5] = [&[0, 1], &[0, 2, 1], &[0, 1, 1], &[0, 1, 2, 2], &[]];
        for rows in others {
            assert!(!are_all(&hidden, rows), "{rows:?}");
        }
        assert!(are_all(&Tensor::zeros([0, 2], &Device::flex()), &[]));
    }
}
