//! The parts that heads share: embeddings and output layers, their own or those of the model.

use std::iter;
use std::sync::Arc;

use burn::tensor::{Tensor, TensorData};
use playhouse_kernels::select_rows;

use super::{HeadRows, Loaded};
use crate::model::config::{ConfigError, LogitsConfig, ModelConfig};
use crate::model::families::Entry;
use crate::model::family::Family;
use crate::model::layers::{Embedding, LinearHead};
use crate::model::source::Expected;
use crate::model::weight_loader::WeightLoader;
use crate::model::{Adapters, LmHead, Model, ModelError, ModelSource, Positions, Step};
use crate::weights::{Checkpoint, StoredDtype, WeightsError};

/// The arithmetic of one method.
pub(super) trait HeadLayers: Send + Sync {
    /// Returns the states of rows, `[num_rows, state_width]`.
    fn forward(
        &self,
        rows: HeadRows<'_>,
        positions: Positions<'_>,
        step: &mut Step<'_>,
    ) -> Tensor<2>;

    /// Returns the logits of some rows of states, `[rows.len(), vocab_size]`.
    fn logits(&self, num_guesses: usize, states: Tensor<2>, rows: &[u32]) -> Tensor<2>;

    /// Returns the bytes of weights that are pages of a file.
    fn mapped_bytes(&self) -> u64;
}

/// The model that a head is loaded for.
pub(super) struct Target<'a> {
    pub(super) model: &'a Arc<Model>,
    pub(super) hidden_size: usize,
}

impl Target<'_> {
    /// Checks that the head has the model's width of hidden states and its vocabulary.
    pub(super) fn require(
        &self,
        source: &ModelSource<'_>,
        hidden_size: usize,
        vocab_size: usize,
    ) -> Result<(), ModelError> {
        let facts = [
            ("hidden states have", hidden_size, self.hidden_size, "elements"),
            ("vocabulary has", vocab_size, self.model.vocab_size, "tokens"),
        ];
        match facts.into_iter().find(|(_, own, of_model, _)| own != of_model) {
            None => Ok(()),
            Some((fact, own, of_model, unit)) => {
                let what = format!("its {fact} {own} {unit}, and the model's {of_model}");
                Err(refused(source, what))
            }
        }
    }

    /// Returns the embedding of tokens, of vectors of `hidden_size` elements: that of `module` if
    /// the head has one, or the model's.
    pub(super) fn embedding(
        &self,
        loader: &mut WeightLoader<'_>,
        module: &str,
        hidden_size: usize,
    ) -> Result<HeadEmbedding, ModelError> {
        let is_own = loader.has(&format!("{module}.weight")) || hidden_size != self.hidden_size;
        let load = || Embedding::load(loader, module, self.model.vocab_size, hidden_size);
        let own = is_own.then(load).transpose()?;
        Ok(HeadEmbedding { own, model: Arc::clone(self.model) })
    }

    /// Returns the output layer of `[num_tokens, hidden_size]`: that of `module` if the head has
    /// one, or the model's.
    pub(super) fn output(
        &self,
        loader: &mut WeightLoader<'_>,
        module: &str,
        shape: [usize; 2],
    ) -> Result<HeadOutput, ModelError> {
        let of_model = [self.model.vocab_size, self.hidden_size];
        let is_own = loader.has(&format!("{module}.weight")) || shape != of_model;
        let logits =
            LogitsConfig { multiplier: 1.0, divisor: 1.0, soft_cap: None, has_bias: false };
        let lm_head: Option<Arc<dyn LmHead>> = match is_own {
            true => Some(Arc::new(LinearHead::load(loader, module, module, shape, logits)?)),
            false => self.model.lm_head.clone(),
        };
        let vocab_size = self.model.vocab_size;
        Ok(HeadOutput { lm_head, token_ids: None, vocab_size })
    }

    /// Returns the output layer of the model.
    pub(super) fn model_output(&self) -> HeadOutput {
        let lm_head = self.model.lm_head.clone();
        HeadOutput { lm_head, token_ids: None, vocab_size: self.model.vocab_size }
    }
}

/// An embedding of tokens.
pub(super) struct HeadEmbedding {
    own: Option<Embedding>,
    model: Arc<Model>,
}

impl HeadEmbedding {
    /// Returns the vectors of `token_ids`, `[num_tokens, hidden_size]`.
    pub(super) fn forward(&self, token_ids: &[u32]) -> Tensor<2> {
        match &self.own {
            Some(own) => own.forward(token_ids, Adapters::none()),
            None => self.model.backbone.embed(token_ids, Adapters::none()),
        }
    }
}

/// An output layer.
pub(super) struct HeadOutput {
    /// The start has checked that there is one.
    lm_head: Option<Arc<dyn LmHead>>,
    /// The token of each logit, if the head guesses only some tokens.
    pub(super) token_ids: Option<Vec<u32>>,
    vocab_size: usize,
}

impl HeadOutput {
    /// Returns the logits of states, `[num_rows, vocab_size]`, after `norm`.
    pub(super) fn logits(
        &self,
        states: Tensor<2>,
        rows: &[u32],
        norm: impl FnOnce(Tensor<2>) -> Tensor<2>,
    ) -> Tensor<2> {
        let states = norm(select_rows(states, rows));
        let all: Vec<u32> = (0..rows.len() as u32).collect();
        let device = states.device();
        let Some(lm_head) = &self.lm_head else {
            return Tensor::zeros([rows.len(), self.vocab_size], &device);
        };
        let logits = lm_head.logits(states, &all, Adapters::none());
        let Some(token_ids) = &self.token_ids else { return logits };
        let mut of_all = vec![f32::NEG_INFINITY; rows.len() * self.vocab_size];
        let values: Vec<f32> = logits.into_data().iter::<f32>().collect();
        let rows = of_all.chunks_mut(self.vocab_size).zip(values.chunks(token_ids.len().max(1)));
        for (of_all, values) in rows {
            for (&token, &value) in iter::zip(token_ids, values) {
                of_all[token as usize] = value;
            }
        }
        let shape = [all.len(), self.vocab_size];
        Tensor::from_data(TensorData::new(of_all, shape), &device)
    }

    pub(super) fn mapped_bytes(&self) -> u64 {
        self.lm_head.as_ref().map_or(0, |head| head.mapped_bytes())
    }
}

/// Reads the config of a head. `forms` has the families whose layers it may have, each with its
/// entries of `architectures`.
pub(super) fn config_of(
    source: &ModelSource<'_>,
    target: &Target<'_>,
    forms: &[(&'static Family, &[&str])],
) -> Result<ModelConfig, ModelError> {
    let listed = source.config().get("architectures").and_then(|listed| listed.as_array());
    let listed = listed.into_iter().flatten().filter_map(|name| name.as_str());
    let listed: Vec<&str> = listed.collect();
    let is_listed = |names: &[&str]| listed.iter().any(|name| names.contains(name));
    let Some(&(family, _)) = forms.iter().find(|(_, names)| is_listed(names)) else {
        let names: Vec<&str> = forms.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let expected = format!("a list with one of {}", names.join(", "));
        return Err(source.config.fields().invalid("architectures", &expected).into());
    };
    let entry = Entry::Family(family);
    let mut config = ModelConfig::of_entry(source.config, entry, None)?;
    // As in vLLM, a head guesses in all texts of the model, also in longer ones than it was trained
    // with. Published heads often have 2,048 positions. The field itself stays, because scales of
    // rotations depend on it.
    config.max_model_len = config.max_model_len.max(target.model.max_model_len);
    Ok(config)
}

/// Loads a head whose tensors are checked as `build` asks for them. `probe` is a tensor by whose
/// type the weights are kept, if the config names none.
pub(super) fn load_with(
    source: &mut ModelSource<'_>,
    config: ModelConfig,
    probe: &str,
    renamed: Option<(&'static str, &'static str)>,
    build: impl FnOnce(&ModelConfig, &mut WeightLoader<'_>) -> Result<Loaded, ModelError>,
) -> Result<Loaded, ModelError> {
    let quantization = config.quantization.clone();
    let expected = Expected {
        quantization: quantization.as_ref(),
        dummy: config.dtype.unwrap_or(StoredDtype::Bf16),
        base: "model",
        renamed,
        gguf_name: None,
        task_adapters: None,
        may_be_wrapped: false,
        merged: None,
        unit_vectors: None,
    };
    let dtype = config.dtype;
    let check = |checkpoint: &Checkpoint| Ok(((), stored_dtype(dtype, checkpoint, probe)?));
    source.load_checkpoint(expected, check, |(), loader| build(&config, loader))
}

/// Returns the type of the weights: that of the config, or that of the tensor `probe`.
pub(super) fn stored_dtype(
    by_config: Option<StoredDtype>,
    checkpoint: &Checkpoint,
    probe: &str,
) -> Result<StoredDtype, WeightsError> {
    match (by_config, checkpoint.shape(probe)) {
        (Some(dtype), _) => Ok(dtype),
        (None, Some(shape)) => Ok(checkpoint.tensor(probe, shape)?.dtype()),
        (None, None) => Ok(StoredDtype::Bf16),
    }
}

/// Returns the error that a head does not fit.
pub(super) fn refused(source: &ModelSource<'_>, what: String) -> ModelError {
    ModelError::DraftHead { path: source.path().to_owned(), what }
}

/// Returns an integer of the config, if it has one.
pub(super) fn size(source: &ModelSource<'_>, field: &str) -> Result<Option<usize>, ConfigError> {
    source.config.fields().size(field)
}
