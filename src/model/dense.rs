//! The decoders of this crate as entries of the registry: data for one shared decoder.

use std::sync::Arc;

use burn::tensor::Device;

use super::audio::SoundPlan;
use super::config::{ConfigError, MixerKind, ModelConfig, TABLE_PARTS, kinds};
use super::families::Entry;
use super::pooling::{self, ClassifierPlan, HeadPlan, Origin};
use super::registry::ModelFamily;
use super::source::Expected;
use super::vision::{SeeingAndHearing, VisionPlan};
use super::{Model, ModelError, ModelSource, decoder, inventory, layer_mean};
use crate::weights::{Checkpoint, StoredDtype};

/// A family whose models are the decoder of [`decoder`], or a multimodal class with a model of one,
/// with the heads of an architecture.
pub(super) struct DenseFamily {
    pub(super) entry: Entry,
    /// The entry of `architectures`.
    pub(super) architecture: String,
    pub(super) origin: Origin,
}

impl DenseFamily {
    /// Returns the family of causal language models.
    pub(super) fn of_language(architecture: &str, entry: Entry) -> Self {
        Self { entry, architecture: architecture.to_owned(), origin: Origin::CausalLm }
    }
}

impl ModelFamily for DenseFamily {
    fn load(&self, source: &mut ModelSource<'_>) -> Result<Model, ModelError> {
        let heads = HeadPlan::new(source.path(), source.config(), self.origin, source.options)?;
        let length = max_model_len(source, heads.max_seq_length)?;
        let mut config = ModelConfig::of_entry(source.config, self.entry, length)?;
        if let (None, Some(limit)) = (length, heads.max_seq_length.or(heads.tokenizer_limit)) {
            config.max_model_len = config.max_model_len.min(limit);
        }
        config.has_lm_head = heads.lm_head;
        let width = config.embedding_width();
        if let Some(pooler) = &heads.pooler {
            let classifier = pooler.classifier.as_ref();
            config.is_classified_by_output =
                classifier.is_some_and(ClassifierPlan::is_of_output_layer);
            config.pooler_tensors = pooler.tensors(width, config.norm.kind, config.vocab_size);
            config.optional_pooler_tensors = pooler.optional_tensors();
        }
        let (path, outer) = (source.path(), source.config.fields());
        let tokenizer = source.options.tokenizer.as_deref().unwrap_or(path);
        // A classifier of tokens over a multimodal class reads texts alone.
        let takes_media = !matches!(self.origin, Origin::TokenClassifier(_));
        let vision = takes_media.then(|| VisionPlan::read(path, tokenizer, outer, &config));
        let vision = vision.transpose()?.flatten();
        let audio = takes_media.then(|| SoundPlan::read(path, outer, config.hidden_size));
        let audio = audio.transpose()?.flatten();
        require_causal(&config)?;
        require_device(&config, *source.device() == Device::flex())?;
        let quantization = config.quantization.clone();
        let merged = config.merged_adapter.clone();
        let expected = Expected {
            quantization: quantization.as_ref(),
            dummy: config.dtype.unwrap_or(StoredDtype::Bf16),
            base: if config.wrapped.is_some() { "" } else { config.names.base() },
            renamed: None,
            gguf_name: None,
            task_adapters: config.task_adapters,
            may_be_wrapped: config.wrapped.as_ref().is_some_and(|it| it.wrapper.may_be_wrapped()),
            merged: merged.as_ref(),
            unit_vectors: config.unit_head.map(|vectors| (config.names.lm_head, vectors)),
        };
        let check = |checkpoint: &Checkpoint| {
            let config = config.fit(checkpoint);
            inventory::check(&config, checkpoint)?;
            let dtype = stored_dtype(&config, checkpoint)?;
            Ok((config, dtype))
        };
        let pooler = heads.pooler;
        let layer_weights = pooler.as_ref().and_then(|it| it.layer_weights(source.config()));
        source.load_checkpoint(expected, check, |config, loader| {
            let mut model = decoder::load(&config, loader)?;
            if let Some(weights) = layer_weights {
                model.backbone = layer_mean::over(model.backbone, weights)?;
            }
            model.architecture.clone_from(&self.architecture);
            let towers = vision.as_ref().and_then(VisionPlan::towers);
            if let Some(towers) = towers {
                model.backbone = towers.over(model.backbone, loader)?;
            }
            let pooler = pooler.map(|plan| match towers {
                Some(towers) => pooling::of_vectors(plan, towers.outputs, config.max_model_len),
                None => pooling::load(plan, &config, loader),
            });
            model.pooler = pooler.transpose()?.map(Arc::new);
            if let Some(vision) = &vision {
                model.media = Some(vision.load(loader, &*model.backbone)?);
            }
            if let Some(audio) = &audio {
                let sounds = audio.load(loader)?;
                model.media = Some(match model.media.take() {
                    Some(images) => Arc::new(SeeingAndHearing { images, sounds }),
                    None => sounds,
                });
            }
            model.adapter_sites = Arc::new(loader.adapter_sites().clone());
            Ok(model)
        })
    }
}

/// Refuses to generate with attention to both sides, which a token after the prompt would change.
fn require_causal(config: &ModelConfig) -> Result<(), ModelError> {
    let mut attentions = config.layers.iter().filter_map(|layer| layer.mixer.attention());
    let is_causal = attentions.all(|attention| attention.is_causal);
    match is_causal || !config.has_lm_head {
        true => Ok(()),
        false => Err(ModelError::Heads {
            setting: "runner",
            value: "generate",
            why: "the model's attention is to both sides",
        }),
    }
}

/// Returns the context that the setting asks for, which the limit of sentence-transformers allows.
fn max_model_len(
    source: &ModelSource<'_>,
    limit: Option<usize>,
) -> Result<Option<usize>, ModelError> {
    match (source.options.max_model_len, limit) {
        (Some(requested), Some(limit)) if requested > limit => {
            let path = source.path().join("sentence_bert_config.json");
            Err(ConfigError::MaxModelLen { path, requested, limit }.into())
        }
        (requested, _) => Ok(requested),
    }
}

/// Checks that the device has kernels for all layers, before any weight is read.
fn require_device(config: &ModelConfig, is_cpu: bool) -> Result<(), ModelError> {
    let mut kinds = kinds(&config.layers);
    kinds.retain(|kind| !is_cpu && !kind.runs_on_gpus());
    if kinds.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = kinds.into_iter().map(MixerKind::name).collect();
    Err(ModelError::CpuOnly { mixers: names.join(" and ") })
}

/// Returns the dtype of the weights by `config.json`, or by default the dtype of the embedding.
fn stored_dtype(config: &ModelConfig, checkpoint: &Checkpoint) -> Result<StoredDtype, ModelError> {
    let embedding = config.names.stored(config.names.embed_tokens);
    match config.dtype {
        // The three bits of precision that float16 has more than bfloat16 do not matter beside
        // quantized weights.
        _ if config.quantization.is_some() || checkpoint.is_quantized(&embedding) => {
            Ok(config.dtype.filter(|dtype| *dtype == StoredDtype::F32).unwrap_or(StoredDtype::Bf16))
        }
        Some(dtype) => Ok(dtype),
        None => {
            let (name, rows) = match config.embedding.table_parts {
                None => (format!("{embedding}.weight"), config.vocab_size),
                Some([rows, _]) => (format!("{embedding}.{}", TABLE_PARTS[0]), rows),
            };
            let shape = [rows, config.table_width()];
            Ok(checkpoint.tensor(&name, &shape)?.dtype())
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::{
        config::ConfigSource,
        families::{by_architecture, encoders},
    };

    /// Returns the entry of a family, or of an encoder.
    fn entry(architecture: &str) -> Entry {
        let mut encoders = encoders::classes();
        let encoder = encoders.find(|class| class.architecture == architecture);
        let encoder = encoder.map(|class| Entry::Family(class.family));
        encoder.or_else(|| by_architecture(architecture)).unwrap()
    }

    /// Returns the config of a model of this architecture with further fields.
    fn config(architecture: &str, more: serde_json::Value) -> Result<ModelConfig, ConfigError> {
        let mut config = json!({
            "architectures": [architecture], "vocab_size": 512, "hidden_size": 64,
            "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_key_value_heads": 4, "max_position_embeddings": 128,
        });
        for (field, value) in more.as_object().into_iter().flatten() {
            config[field] = value.clone();
        }
        let folder = tempfile::TempDir::new().unwrap();
        std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
        let source = ConfigSource::read(folder.path()).unwrap();
        ModelConfig::of_entry(&source, entry(architecture), None)
    }

    /// Returns the message about a model of this architecture on a GPU. Every model runs on the
    /// CPU.
    fn on_a_gpu(architecture: &str, more: serde_json::Value) -> Option<String> {
        let config = config(architecture, more).unwrap();
        assert!(require_device(&config, true).is_ok());
        require_device(&config, false).err().map(|error| error.to_string())
    }

    #[test]
    fn layers_without_kernels_for_gpus_are_refused_by_their_names() {
        let alibi = json!({ "alibi": true });
        let refused = "layers with ALiBi rounded to bfloat16 run on CPUs only; \
                       start with --device cpu";
        assert_eq!(on_a_gpu("FalconForCausalLM", alibi).as_deref(), Some(refused));
        let refused = "layers with latent attention (MLA) to both sides run on CPUs only; \
                       start with --device cpu";
        let latents = on_a_gpu("DeepseekV3BidirectionalModel", json!({}));
        assert_eq!(latents.as_deref(), Some(refused));
        let mut ngrams = json!({
            "layer_types": ["linear_attention", "full_attention"], "ple_layer_ids": [1],
            "heads_per_ngram": 2, "ngram_vocab_size_base": 90, "eos_token_id": 2,
        });
        let refused = "layers with embeddings of n-grams run on CPUs only; start with --device cpu";
        assert_eq!(on_a_gpu("Qwen4ExpForCausalLM", ngrams.clone()).as_deref(), Some(refused));
        ngrams["ple_layer_ids"] = json!(null);
        assert_eq!(on_a_gpu("Qwen4ExpForCausalLM", ngrams), None);
        for encoder in ["MPNetModel", "T5EncoderModel"] {
            assert_eq!(on_a_gpu(encoder, fields_of(encoder)), None);
        }
    }

    /// Returns the fields of T5 that other models name otherwise.
    fn fields_of(encoder: &str) -> serde_json::Value {
        match encoder {
            "T5EncoderModel" => {
                json!({ "d_model": 64, "d_ff": 96, "d_kv": 16, "num_layers": 2, "num_heads": 4 })
            }
            _ => json!({ "layer_norm_eps": 1e-12 }),
        }
    }

    /// With fewer buckets, or a smaller distance, there is no range whose logarithm grows.
    #[test]
    fn buckets_of_distances_without_a_range_are_refused() {
        const BUCKETS: &str = "relative_attention_num_buckets";
        const DISTANCE: &str = "relative_attention_max_distance";
        let read = |encoder: &str, buckets: usize, distance: Option<usize>| {
            let mut fields = fields_of(encoder);
            fields[BUCKETS] = json!(buckets);
            if let Some(distance) = distance {
                fields[DISTANCE] = json!(distance);
            }
            config(encoder, fields).map(drop).map_err(|error| error.to_string())
        };
        for encoder in ["MPNetModel", "T5EncoderModel"] {
            for buckets in 1..4 {
                let why = read(encoder, buckets, None).unwrap_err();
                assert!(why.contains(BUCKETS) && why.contains("config.json"), "{why}");
                assert!(why.contains("at least 4"), "{why}");
            }
            for buckets in [4, 5, 32, 511] {
                assert_eq!(read(encoder, buckets, None), Ok(()), "{encoder}: {buckets}");
            }
            let why = read(encoder, 512, None).unwrap_err();
            assert!(why.contains(BUCKETS) && why.contains("less than 512"), "{why}");
        }
        assert_eq!(read("T5EncoderModel", 32, Some(9)), Ok(()));
        let why = read("T5EncoderModel", 32, Some(8)).unwrap_err();
        assert!(why.contains(DISTANCE) && why.contains("more than 8"), "{why}");
    }

    /// A family may have layers that GPUs lack, and this model none of them.
    #[test]
    fn other_layers_run_everywhere() {
        assert_eq!(on_a_gpu("LlamaForCausalLM", json!({})), None);
        assert_eq!(on_a_gpu("FalconForCausalLM", json!({})), None);
        let mamba2 = json!({ "num_heads": 8, "head_dim": 16 });
        assert_eq!(on_a_gpu("Mamba2ForCausalLM", mamba2), None);
        let latent = json!({ "num_experts_per_tok": 2, "first_k_dense_replace": 2 });
        assert_eq!(on_a_gpu("DeepseekV2ForCausalLM", latent), None);
        let convolution = json!({ "layer_types": ["conv", "full_attention"] });
        assert_eq!(on_a_gpu("Lfm2ForCausalLM", convolution), None);
    }

    /// The numbers come from the formula of vLLM's `NTKScalingRotaryEmbedding`, in float32. vLLM
    /// itself was not run, and transformers does not have this scaling.
    #[test]
    fn frequencies_of_gtes_authors_follow_vllms_formula() {
        let config = |scaling: serde_json::Value| {
            let fields = json!({
                "model_type": "new", "hidden_size": 8, "num_attention_heads": 1,
                "num_key_value_heads": 1, "max_position_embeddings": 1024,
                "rope_theta": 160_000.0, "rope_scaling": scaling,
            });
            config("NewModel", fields)
        };
        let found = config(json!({"type": "ntk", "factor": 8.0})).unwrap();
        assert_eq!(found.max_model_len, 8 * 1024);
        let rope = found.layers[0].mixer.attention().unwrap().rope.as_ref().unwrap();
        let ours = crate::model::inverse_frequencies(rope, 1024, found.max_model_len).inv_freq;
        let theirs = [0.594_603_54_f32, 0.017_677_67, 0.000_525_560_3, 1.562_499_9e-5];
        assert_eq!(ours.len(), theirs.len());
        for (ours, theirs) in ours.iter().zip(theirs) {
            assert!((ours / theirs - 1.0).abs() < 1e-6, "{ours} and {theirs}");
        }
        let mixed = config(json!({"type": "ntk", "factor": 8.0, "mixed_b": 0.5})).unwrap_err();
        assert!(mixed.to_string().contains("mixed_b"), "{mixed}");
    }
}
