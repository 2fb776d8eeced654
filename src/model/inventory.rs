//! The tensors of a model by its config, compared with those of its checkpoint before anything of
//! their size is allocated: all must be there in their shapes, and none may be left that would have
//! changed the results.

use std::collections::BTreeMap;

use super::ModelError;
use super::config::ModelConfig;
use crate::weights::{Checkpoint, WeightsError};

/// Parts of names of tensors that no result depends on: tables that old checkpoints stored, and the
/// scales of KV caches in eight bits.
const HARMLESS: [&str; 5] = ["inv_freq", "k_scale", "v_scale", "q_scale", "prob_scale"];

/// Compares `checkpoint` with what `config` says it holds.
///
/// # Errors
/// [`WeightsError::MissingTensor`] and [`WeightsError::Shape`]; [`WeightsError::Unused`] for a
/// tensor of the decoder that the config has no use for.
pub(super) fn check(config: &ModelConfig, checkpoint: &Checkpoint) -> Result<(), ModelError> {
    let tensors = tensors(config);
    for (name, shape) in &tensors {
        checkpoint.require_shape(name, shape)?;
    }
    let known: BTreeMap<_, _> = tensors.into_iter().collect();
    let mut strangers = Vec::new();
    for name in checkpoint.hugging_face_names() {
        let (module, part) = name.rsplit_once('.').unwrap_or((name, ""));
        let is_known = known.contains_key(&format!("{module}.weight"));
        if HARMLESS.contains(&part) || known.contains_key(name) || is_known && part != "bias" {
            continue;
        }
        if module == config.family.names.lm_head && part != "bias" {
            require_tied(config, checkpoint, name)?;
        } else if part == "bias" && is_known && checkpoint.is_zero(name) {
            // Writers of GPTQ give all layers biases, of zeros where the model has none.
        } else if is_known || name.starts_with(&format!("{}.", config.family.names.layer)) {
            let why = "the model that config.json describes has none; correct `architectures`, \
                       `num_hidden_layers` or the biases there, or remove the tensor";
            return Err(unused(checkpoint, name, why));
        } else {
            strangers.push(name);
        }
    }
    if let Some(first) = strangers.first() {
        tracing::warn!(tensors = strangers.len(), first, "tensors of the checkpoint are not used");
    }
    Ok(())
}

/// An output layer beside an embedding that it is tied to must be equal to it: transformers 4 takes
/// the embedding then, transformers 5 the output layer.
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
    WeightsError::Unused { path, tensor: name.to_owned(), why }.into()
}

/// Every tensor of the decoder with its shape, in the order of loading.
fn tensors(config: &ModelConfig) -> Vec<(String, Vec<usize>)> {
    let names = &config.family.names;
    let (hidden, head_dim) = (config.hidden_size, config.head_dim);
    let q = config.num_attention_heads * head_dim;
    let kv = config.num_key_value_heads * head_dim;
    let mlp = config.intermediate_size;
    let mut tensors = Vec::new();
    let mut add = |module: &str, part: &str, shape: &[usize]| {
        tensors.push((format!("{module}.{part}"), shape.to_vec()));
    };
    if !config.tie_word_embeddings {
        add(names.lm_head, "weight", &[config.vocab_size, hidden]);
    }
    add(names.embed_tokens, "weight", &[config.vocab_size, hidden]);
    for index in 0..config.layers.len() {
        let module = |name: &str| format!("{}.{index}.{name}", names.layer);
        add(&module(names.input_layernorm), "weight", &[hidden]);
        for norm in [names.q_norm, names.k_norm].into_iter().flatten() {
            add(&module(norm), "weight", &[head_dim]);
        }
        for (name, [outputs, inputs], has_bias) in [
            (names.q_proj, [q, hidden], config.qkv_bias),
            (names.k_proj, [kv, hidden], config.qkv_bias),
            (names.v_proj, [kv, hidden], config.qkv_bias),
            (names.o_proj, [hidden, q], config.o_bias),
            (names.gate_proj, [mlp, hidden], config.mlp_bias),
            (names.up_proj, [mlp, hidden], config.mlp_bias),
            (names.down_proj, [hidden, mlp], config.mlp_bias),
        ] {
            add(&module(name), "weight", &[outputs, inputs]);
            if has_bias {
                add(&module(name), "bias", &[outputs]);
            }
        }
        add(&module(names.post_attention_layernorm), "weight", &[hidden]);
    }
    add(names.norm, "weight", &[hidden]);
    tensors
}
