//! The head of masked language models: HF `BertLMPredictionHead`.

use burn::tensor::Tensor;
use playhouse_kernels::{Activation, activate, profile::timed, select_rows};

use super::{Linear, Norm, Part, activation};
use crate::model::config::{ActivationName, ModelConfig};
use crate::model::weight_loader::WeightLoader;
use crate::model::{Adapters, LmHead, ModelError};

/// The modules of the head.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::model) struct MaskedLmPlan {
    pub(in crate::model) dense: &'static str,
    pub(in crate::model) has_dense_bias: bool,
    pub(in crate::model) activation: ActivationName,
    pub(in crate::model) norm: &'static str,
    /// The matrix to the vocabulary.
    pub(in crate::model) decoder: &'static str,
    /// Whether that is the embedding.
    pub(in crate::model) is_tied: bool,
    pub(in crate::model) bias: &'static str,
}

/// `decoder(norm(act(dense(x)))) + bias`.
#[derive(Debug)]
pub(in crate::model) struct MaskedLm {
    dense: Linear,
    activation: Activation,
    norm: Norm,
    decoder: Linear,
}

impl MaskedLm {
    /// Loads the head of `model`.
    pub(in crate::model) fn load(
        loader: &mut WeightLoader<'_>,
        plan: MaskedLmPlan,
        model: &ModelConfig,
    ) -> Result<Self, ModelError> {
        let (hidden, vocab) = (model.hidden_size, model.vocab_size);
        let MaskedLmPlan { dense, has_dense_bias, norm, decoder, bias, .. } = plan;
        let table = if plan.is_tied { model.names.embed_tokens } else { decoder };
        let dense = [Part::new(dense.to_owned(), hidden)];
        let bias = [Part::new(bias.to_owned(), vocab)];
        // No activation of these classes has weights of its own.
        let activation = activation::plain(plan.activation).unwrap_or(Activation::Gelu);
        Ok(Self {
            dense: Linear::load(loader, &dense, hidden, has_dense_bias)?,
            activation,
            norm: Norm::load(loader, norm, hidden, model.norm)?,
            decoder: Linear::lm_head(loader, table, decoder, hidden, vocab)?
                .with_bias(loader, &bias)?,
        })
    }
}

impl LmHead for MaskedLm {
    fn logits(&self, hidden: Tensor<2>, rows: &[u32], adapters: Adapters<'_>) -> Tensor<2> {
        timed("lm_head", || {
            let selected = adapters.of_rows(rows);
            let adapters = Adapters::of(&selected);
            let x = self.dense.forward(select_rows(hidden, rows), adapters);
            let x = self.norm.forward(activate(x, self.activation));
            self.decoder.forward(x, adapters)
        })
    }

    fn mapped_bytes(&self) -> u64 {
        self.dense.mapped_bytes() + self.decoder.mapped_bytes()
    }
}
