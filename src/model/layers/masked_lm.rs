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
    pub(in crate::model) transform: Option<LmTransformPlan>,
    /// The matrix to the vocabulary.
    pub(in crate::model) decoder: &'static str,
    /// Whether that is the embedding.
    pub(in crate::model) is_tied: bool,
    /// The module of the bias, if there is one.
    pub(in crate::model) bias: Option<&'static str>,
}

/// The modules before the matrix to the vocabulary.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::model) struct LmTransformPlan {
    pub(in crate::model) dense: &'static str,
    pub(in crate::model) has_bias: bool,
    pub(in crate::model) activation: ActivationName,
    pub(in crate::model) norm: &'static str,
}

/// `decoder(norm(act(dense(x)))) + bias`, or `decoder(x) + bias`.
#[derive(Debug)]
pub(in crate::model) struct MaskedLm {
    transform: Option<LmTransform>,
    decoder: Linear,
}

/// `norm(act(dense(x)))`.
#[derive(Debug)]
struct LmTransform {
    dense: Linear,
    activation: Activation,
    norm: Norm,
}

impl MaskedLm {
    /// Loads the head of `model`.
    pub(in crate::model) fn load(
        loader: &mut WeightLoader<'_>,
        plan: MaskedLmPlan,
        model: &ModelConfig,
    ) -> Result<Self, ModelError> {
        let (hidden, vocab) = (model.hidden_size, model.vocab_size);
        let MaskedLmPlan { transform, decoder, is_tied, bias } = plan;
        let table = if is_tied { model.names.embed_tokens } else { decoder };
        // The matrix has a bias of its own where HF ties neither of them to another tensor.
        let own = !is_tied && loader.has(&format!("{decoder}.bias"));
        let bias = if own { bias.map(|_| decoder) } else { bias };
        let transform = transform.map(|plan| LmTransform::load(loader, plan, model)).transpose()?;
        let decoder = Linear::lm_head(loader, table, decoder, hidden, vocab)?;
        let decoder = match bias {
            Some(bias) => decoder.with_bias(loader, &[Part::new(bias.to_owned(), vocab)])?,
            None => decoder,
        };
        Ok(Self { transform, decoder })
    }
}

impl LmTransform {
    fn load(
        loader: &mut WeightLoader<'_>,
        plan: LmTransformPlan,
        model: &ModelConfig,
    ) -> Result<Self, ModelError> {
        let LmTransformPlan { dense, has_bias, activation, norm } = plan;
        let hidden = model.hidden_size;
        let dense = [Part::new(dense.to_owned(), hidden)];
        Ok(Self {
            dense: Linear::load(loader, &dense, hidden, has_bias)?,
            // No activation of these classes has weights of its own.
            activation: activation::plain(activation).unwrap_or(Activation::Gelu),
            norm: Norm::load(loader, norm, hidden, model.norm)?,
        })
    }

    fn forward(&self, x: Tensor<2>, adapters: Adapters<'_>) -> Tensor<2> {
        self.norm.forward(activate(self.dense.forward(x, adapters), self.activation))
    }
}

impl LmHead for MaskedLm {
    fn logits(&self, hidden: Tensor<2>, rows: &[u32], adapters: Adapters<'_>) -> Tensor<2> {
        timed("lm_head", || {
            let selected = adapters.of_rows(rows);
            let adapters = Adapters::of(&selected);
            let x = select_rows(hidden, rows);
            let x = match &self.transform {
                Some(transform) => transform.forward(x, adapters),
                None => x,
            };
            self.decoder.forward(x, adapters)
        })
    }

    fn mapped_bytes(&self) -> u64 {
        let transform = self.transform.as_ref();
        transform.map_or(0, |it| it.dense.mapped_bytes()) + self.decoder.mapped_bytes()
    }
}
