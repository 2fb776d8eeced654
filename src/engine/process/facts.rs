//! The facts about a loaded model and the progress of its load, as they travel over the link.

use std::sync::Arc;

use playhouse_actors::ports::{ModelInfo, TextCodec};
use playhouse_kernels::{ActivationDtype, DeviceKind, KvDtype, WeightDtype};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    config::EngineConfig,
    engine::{DefaultSampling, LoadedModel, start::PoolerFacts},
    model::QuantizedWeights,
};

/// The facts that the front cannot read from the model's small files.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Facts {
    pub(super) info: ModelInfo,
    architecture: String,
    serves_text_alone: bool,
    #[serde(with = "WeightDtypeName")]
    dtype: WeightDtype,
    quantized_format: Option<String>,
    #[serde(with = "ActivationDtypeName")]
    activations: ActivationDtype,
    device: String,
    #[serde(with = "DeviceKindName")]
    device_kind: DeviceKind,
    #[serde(with = "KvDtypeName")]
    kv_cache_dtype: KvDtype,
    kv_cache_bytes: u64,
    pooler: Option<PoolerFacts>,
}

/// The variants of the kernels' type, which knows no serde.
#[derive(Serialize, Deserialize)]
#[serde(remote = "WeightDtype")]
enum WeightDtypeName {
    F32,
    F16,
    Bf16,
}

/// The variants of the kernels' type, which knows no serde.
#[derive(Serialize, Deserialize)]
#[serde(remote = "KvDtype")]
enum KvDtypeName {
    F32,
    F16,
    Bf16,
    Int8,
}

/// The variants of the kernels' type, which knows no serde.
#[derive(Serialize, Deserialize)]
#[serde(remote = "ActivationDtype")]
enum ActivationDtypeName {
    Int8,
    Bf16,
    F16,
    F32,
}

/// The variants of the kernels' type, which knows no serde.
#[derive(Serialize, Deserialize)]
#[serde(remote = "DeviceKind")]
enum DeviceKindName {
    Gpu,
    IntegratedGpu,
    Cpu,
    Software,
}

impl Facts {
    /// Returns the facts about a loaded model.
    pub(super) fn of(model: &LoadedModel) -> Self {
        let quantized = model.quantized_weights.as_ref();
        Self {
            info: model.info.clone(),
            architecture: model.architecture.clone(),
            serves_text_alone: model.serves_text_alone,
            dtype: model.dtype,
            quantized_format: quantized.map(|weights| weights.format.clone()),
            activations: quantized.map(|weights| weights.activations).unwrap_or_default(),
            device: model.device.clone(),
            device_kind: model.device_kind,
            kv_cache_dtype: model.kv_cache_dtype,
            kv_cache_bytes: model.kv_cache_bytes,
            pooler: model.pooler.clone(),
        }
    }

    /// Returns the loaded model as the front knows it.
    pub(super) fn loaded(
        self,
        config: &EngineConfig,
        codec: Arc<dyn TextCodec>,
        chat_templates: Vec<String>,
        default_sampling: DefaultSampling,
    ) -> LoadedModel {
        let activations = self.activations;
        let quantized_weights =
            self.quantized_format.map(|format| QuantizedWeights { format, activations });
        LoadedModel {
            info: self.info,
            root: config.model_root(),
            architecture: self.architecture,
            serves_text_alone: self.serves_text_alone,
            dtype: self.dtype,
            quantized_weights,
            device: self.device,
            device_kind: self.device_kind,
            kv_cache_dtype: self.kv_cache_dtype,
            kv_cache_bytes: self.kv_cache_bytes,
            default_sampling,
            codec,
            pooler: self.pooler,
            chat_templates,
        }
    }
}

/// Returns a value in the format that [`read`] reads.
pub(super) fn write(value: &impl Serialize) -> Vec<u8> {
    // These types have no form that JSON lacks.
    serde_json::to_vec(value).unwrap_or_default()
}

/// Returns the value, if the bytes are one.
pub(super) fn read<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    serde_json::from_slice(bytes).ok()
}
