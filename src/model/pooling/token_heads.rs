//! The layers of tokens of BGE-M3 (<https://arxiv.org/abs/2402.03216>), beside the vector of a
//! text: a vector and a weight for each token. They are files of `torch.save` beside the
//! checkpoint.

use std::path::Path;

use super::{
    Dense, DenseActivation, PoolerRequest, encoder_plan::HeadFields, module_weights::TorchFile,
};
use crate::{config::PoolerTask, model::ModelError, weights::WeightsError};

/// The files in a model's folder.
const VECTORS: &str = "colbert_linear.pt";
const WEIGHTS: &str = "sparse_linear.pt";

/// A layer for the vectors of tokens, and one for their weights.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenHeads {
    /// From a hidden state to the vector of its token.
    pub vectors: Dense,
    /// From a hidden state to the weight of its token, before the activation: `max(x, 0)`.
    pub weights: Dense,
    /// The token before a text, which has no vector and no weight.
    pub bos: Option<u32>,
    /// The token behind a text, which has no weight.
    pub eos: Option<u32>,
}

impl TokenHeads {
    /// Reads the layers of the model in a folder.
    pub(super) fn read(fields: HeadFields<'_>) -> Result<Self, ModelError> {
        let HeadFields { folder, config, .. } = fields;
        let id = |field: &str, default: u32| match config.get(field) {
            None => Some(default),
            Some(id) => id.as_u64().and_then(|id| u32::try_from(id).ok()),
        };
        Ok(Self {
            vectors: layer(&folder.join(VECTORS))?,
            weights: layer(&folder.join(WEIGHTS))?,
            // Without the fields, HF's config has those of XLM-RoBERTa.
            bos: id("bos_token_id", 0),
            eos: id("eos_token_id", 2),
        })
    }

    /// Returns the layer of a task, if it has one.
    #[must_use]
    pub fn layer(&self, task: PoolerTask) -> Option<&Dense> {
        match task {
            PoolerTask::TokenEmbed => Some(&self.vectors),
            PoolerTask::TokenClassify => Some(&self.weights),
            PoolerTask::Embed | PoolerTask::Classify => None,
        }
    }

    /// Returns whether the token at `position` has a result.
    pub(super) fn keeps(&self, request: &PoolerRequest<'_>, position: usize) -> bool {
        let token = request.prompt.get(position).copied();
        let is_first = position == 0 && self.bos.is_some() && token == self.bos;
        let is_last = position + 1 == request.prompt.len();
        let is_behind = is_last && self.eos.is_some() && token == self.eos;
        match request.task {
            PoolerTask::TokenEmbed => !is_first,
            PoolerTask::TokenClassify => !is_first && !is_behind,
            PoolerTask::Embed | PoolerTask::Classify => true,
        }
    }
}

/// Reads a linear layer: a matrix `[outputs, inputs]` and its bias.
fn layer(path: &Path) -> Result<Dense, WeightsError> {
    const WEIGHT: &str = "weight";
    let file = TorchFile::read(path)?;
    let &[outputs, inputs] = file.shape(WEIGHT).unwrap_or_default() else {
        let (path, tensor) = (path.to_owned(), WEIGHT.to_owned());
        let reason = "absent, or no matrix".to_owned();
        return Err(WeightsError::Value { path, tensor, reason });
    };
    let weight = file.values(WEIGHT, &[outputs, inputs])?;
    let bias = file.values("bias", &[outputs])?;
    Ok(Dense { weight, bias, inputs, activation: DenseActivation::Identity, norm: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heads() -> TokenHeads {
        let layer = Dense {
            weight: vec![1.0],
            bias: Vec::new(),
            inputs: 1,
            activation: DenseActivation::Identity,
            norm: None,
        };
        TokenHeads { vectors: layer.clone(), weights: layer, bos: Some(0), eos: Some(2) }
    }

    #[test]
    fn special_tokens_at_the_ends_have_no_result() {
        let kept = |task, prompt: &[u32]| {
            let request = PoolerRequest {
                task,
                activation: true,
                dimensions: None,
                prompt,
                chunk_ends: &[],
                num_left_out: 0,
                classifier: None,
            };
            (0..prompt.len()).filter(|&at| heads().keeps(&request, at)).collect::<Vec<_>>()
        };
        assert_eq!(kept(PoolerTask::TokenEmbed, &[0, 0, 2, 2]), [1, 2, 3]);
        assert_eq!(kept(PoolerTask::TokenClassify, &[0, 0, 2, 2]), [1, 2]);
        assert_eq!(kept(PoolerTask::TokenClassify, &[5, 6]), [0, 1]);
        assert_eq!(kept(PoolerTask::Embed, &[0, 2]), [0, 1]);
    }

    #[test]
    fn a_layer_is_a_matrix_with_its_bias() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join(WEIGHTS);
        let absent = layer(&path).unwrap_err().to_string();
        assert!(absent.contains(WEIGHTS), "{absent}");
        let samples = concat!(env!("CARGO_MANIFEST_DIR"), "/src/torch_file/samples/linear.pt");
        std::fs::copy(samples, &path).unwrap();
        let read = layer(&path).unwrap();
        assert_eq!((read.inputs, read.forward(&[1.0, 0.0, 1.0])), (3, vec![2.5, 6.5]));
        std::fs::write(&path, "no archive").unwrap();
        let broken = layer(&path).unwrap_err().to_string();
        assert!(broken.contains("torch.save"), "{broken}");
    }
}
