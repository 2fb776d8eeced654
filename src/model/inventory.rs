//! Compares the tensors that a config implies with those of the checkpoint, before large memory is
//! allocated. All tensors must be present with their shapes. The checkpoint may have no further
//! tensor that would change the results.

use std::collections::BTreeMap;

use super::ModelError;
use super::config::{AttentionConfig, FeedForward, GatedMlpConfig, Mixer, ModelConfig};
use super::family::{AttentionNames, GatedMlpNames};
use crate::weights::{Checkpoint, WeightsError};

/// The last parts of the names of tensors that no result depends on: tables of old checkpoints, and
/// scales of 8-bit KV caches.
const HARMLESS: [&str; 5] = ["inv_freq", "k_scale", "v_scale", "q_scale", "prob_scale"];

/// Checks that `checkpoint` has the tensors of `config`.
///
/// # Errors
/// [`WeightsError::MissingTensor`] and [`WeightsError::Shape`]. [`WeightsError::Unused`] if the
/// checkpoint has a tensor of the decoder that the config does not imply.
pub(super) fn check(config: &ModelConfig, checkpoint: &Checkpoint) -> Result<(), ModelError> {
    let tensors = tensors(config);
    for (name, shape) in &tensors {
        checkpoint.require_shape(name, shape)?;
    }
    let known: BTreeMap<_, _> = tensors.into_iter().collect();
    let mut strangers = Vec::new();
    for name in checkpoint.hugging_face_names() {
        let name = &*name;
        let (module, part) = name.rsplit_once('.').unwrap_or((name, ""));
        let is_known = known.contains_key(&format!("{module}.weight"));
        if HARMLESS.contains(&part) || known.contains_key(name) || is_known && part != "bias" {
            continue;
        }
        if module == config.family.names.lm_head && part != "bias" {
            require_tied(config, checkpoint, name)?;
        } else if part == "bias" && is_known && checkpoint.is_zero(name) {
            // Writers of GPTQ store biases for all layers: zeros if the model has none.
        } else if is_known || name.starts_with(&format!("{}.", config.family.names.layer)) {
            let why = match checkpoint.is_gguf() {
                false => {
                    "the model that config.json describes has none; correct `architectures`, \
                     `num_hidden_layers` or the biases there, or remove the tensor"
                }
                true => {
                    "the model that the metadata describes has none; convert the model again for \
                     its own architecture, or remove the tensor"
                }
            };
            return Err(unused(checkpoint, name, why));
        } else {
            strangers.push(checkpoint.stored_name(name).into_owned());
        }
    }
    if let Some(first) = strangers.first() {
        tracing::warn!(tensors = strangers.len(), first, "tensors of the checkpoint are not used");
    }
    Ok(())
}

/// Checks that a stored output layer is equal to the embedding that it is tied to. If both are
/// stored, transformers 4 uses the embedding, and transformers 5 the output layer.
fn require_tied(
    config: &ModelConfig,
    checkpoint: &Checkpoint,
    name: &str,
) -> Result<(), ModelError> {
    let embedding = format!("{}.weight", config.family.names.embed_tokens);
    if checkpoint.are_equal(name, &embedding) {
        return Ok(());
    }
    let why = "it differs from the embedding, while `tie_word_embeddings` is true in config.json; \
               set that to false to use the tensor, or remove the tensor";
    Err(unused(checkpoint, name, why))
}

fn unused(checkpoint: &Checkpoint, name: &str, why: &'static str) -> ModelError {
    let path = checkpoint.path_of(name).to_owned();
    WeightsError::Unused { path, tensor: checkpoint.stored_name(name).into_owned(), why }.into()
}

/// Tensors by name, with their shapes.
#[derive(Default)]
struct Tensors(Vec<(String, Vec<usize>)>);

impl Tensors {
    fn weight(&mut self, module: &str, shape: &[usize]) {
        self.0.push((format!("{module}.weight"), shape.to_vec()));
    }

    /// Adds a linear layer, `[outputs, inputs]`.
    fn linear(&mut self, module: &str, [outputs, inputs]: [usize; 2], has_bias: bool) {
        self.weight(module, &[outputs, inputs]);
        if has_bias {
            self.0.push((format!("{module}.bias"), vec![outputs]));
        }
    }
}

/// Returns every tensor of the model with its shape.
fn tensors(config: &ModelConfig) -> Vec<(String, Vec<usize>)> {
    let names = &config.family.names;
    let (vocab, hidden) = (config.vocab_size, config.hidden_size);
    let mut tensors = Tensors::default();
    if !config.tie_word_embeddings {
        tensors.weight(names.lm_head, &[vocab, hidden]);
    }
    tensors.weight(names.embed_tokens, &[vocab, hidden]);
    for (index, layer) in config.layers.iter().enumerate() {
        let module = |name: &str| names.of_layer(index, name);
        tensors.weight(&module(names.input_layernorm), &[hidden]);
        match &layer.mixer {
            Mixer::Attention(attention) => {
                add_attention(&mut tensors, attention, &names.attention, hidden, module);
            }
        }
        tensors.weight(&module(names.post_attention_layernorm), &[hidden]);
        match &layer.feed_forward {
            FeedForward::GatedMlp(mlp) => {
                add_gated_mlp(&mut tensors, mlp, &names.mlp, hidden, module);
            }
        }
    }
    tensors.weight(names.norm, &[hidden]);
    tensors.0
}

fn add_attention(
    tensors: &mut Tensors,
    attention: &AttentionConfig,
    names: &AttentionNames,
    hidden: usize,
    module: impl Fn(&str) -> String,
) {
    let (q, kv) = (attention.q_size(), attention.kv_size());
    for norm in [names.q_norm, names.k_norm].into_iter().flatten() {
        tensors.weight(&module(norm), &[attention.head_dim]);
    }
    tensors.linear(&module(names.q_proj), [q, hidden], attention.qkv_bias);
    tensors.linear(&module(names.k_proj), [kv, hidden], attention.qkv_bias);
    tensors.linear(&module(names.v_proj), [kv, hidden], attention.qkv_bias);
    tensors.linear(&module(names.o_proj), [hidden, q], attention.o_bias);
}

fn add_gated_mlp(
    tensors: &mut Tensors,
    mlp: &GatedMlpConfig,
    names: &GatedMlpNames,
    hidden: usize,
    module: impl Fn(&str) -> String,
) {
    let inner = mlp.intermediate_size;
    tensors.linear(&module(names.gate_proj), [inner, hidden], mlp.bias);
    tensors.linear(&module(names.up_proj), [inner, hidden], mlp.bias);
    tensors.linear(&module(names.down_proj), [hidden, inner], mlp.bias);
}
