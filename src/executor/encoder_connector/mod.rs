//! Results of encoders that engines exchange (vLLM's EC connector). An engine takes a result only
//! if it is the one that the engine itself would compute, so answers do not depend on it.

mod disk;

use std::sync::Arc;

use burn::tensor::{Device, Tensor, TensorData};
use playhouse_actors::logic::request::media::ProcessedMedia;
use sha2::{Digest, Sha256};

pub(crate) use self::disk::DiskConnector;
use crate::model::EncoderOutput;

/// Carries results of encoders from one engine to another.
pub(crate) trait EncoderConnector: Send + Sync {
    /// Returns the result for this content, if it is there and undamaged.
    fn load(&self, key: &ContentKey) -> Option<Vec<StoredRows>>;

    /// Stores the result for this content. A failure is logged: the next engine encodes again.
    fn save(&self, key: &ContentKey, result: &[StoredRows]);
}

/// The digest of an item in the form that the encoder takes. A client's name for an item is no part
/// of it, because engines share no names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ContentKey(String);

impl ContentKey {
    /// Returns the key of an item.
    pub(super) fn of(media: &ProcessedMedia) -> Self {
        let ProcessedMedia { modality, tensors, num_embeds, grid } = media;
        let mut digest = Sha256::new();
        digest.update(format!("{modality:?} {num_embeds} {grid:?} {}", tensors.len()));
        for tensor in tensors {
            digest.update(format!("{:?} {:?} {}", tensor.shape, tensor.dtype, tensor.data.len()));
            digest.update(&tensor.data);
        }
        Self(hex(&digest.finalize()))
    }

    /// Returns the key as text: 64 digits.
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

/// A tensor of a result: f32, `[rows, width]`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StoredRows {
    pub(super) rows: usize,
    pub(super) width: usize,
    /// `rows * width` numbers.
    pub(super) values: Vec<f32>,
}

/// The connector with the part of this engine.
#[derive(Clone)]
pub(crate) struct EncoderExchange {
    pub(crate) connector: Arc<dyn EncoderConnector>,
    /// Whether this engine stores its results.
    pub(crate) stores: bool,
    /// Whether this engine takes results.
    pub(crate) takes: bool,
}

impl EncoderExchange {
    /// Returns the stored result for an item that has this many embeddings.
    pub(super) fn load(&self, media: &ProcessedMedia, device: &Device) -> Option<EncoderOutput> {
        if !self.takes {
            return None;
        }
        let result = self.connector.load(&ContentKey::of(media))?;
        let is_of_item = result.first().is_some_and(|first| first.rows == media.num_embeds);
        if !is_of_item {
            return None;
        }
        let mut tensors = result.into_iter().map(|StoredRows { rows, width, values }| {
            Tensor::from_data(TensorData::new(values, [rows, width]), device)
        });
        let embeddings = tensors.next()?;
        Some(EncoderOutput { embeddings, by_layer: tensors.collect() })
    }

    /// Stores a result.
    pub(super) fn save(&self, media: &ProcessedMedia, output: &EncoderOutput) {
        if !self.stores {
            return;
        }
        let tensors = std::iter::once(&output.embeddings).chain(&output.by_layer);
        let read = |tensor: &Tensor<2>| {
            let [rows, width] = tensor.dims();
            let values = tensor.clone().into_data().try_into_vec::<f32>().ok()?;
            Some(StoredRows { rows, width, values })
        };
        match tensors.map(read).collect::<Option<Vec<_>>>() {
            Some(result) => self.connector.save(&ContentKey::of(media), &result),
            None => tracing::warn!("an encoder's result is not stored, because it is not f32"),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
