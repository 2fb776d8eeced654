//! The tensors that checkpoints may have: those that change no result, and AutoAWQ's divisors.

use super::Shapes;
use crate::model::config::{
    AttentionConfig, FeedForward, LatentConfig, Mixer, ModelConfig, OtherNorms,
};
use crate::model::family::{ExpertNames, QkvNames};
use crate::model::{gemma3n, hyper_connections, layers};
use crate::weights::Checkpoint;

/// The modules that choose the tokens of a sparse attention: HF `DeepseekV32Indexer`.
const INDEXER: [&str; 3] =
    ["self_attn.indexer.wq_b", "self_attn.indexer.wk", "self_attn.indexer.weights_proj"];
/// Their norm, which takes no matrices of low rank, and its biases.
const INDEXER_NORM: &str = "self_attn.indexer.k_norm";
const INDEXER_BIAS: &str = "self_attn.indexer.k_norm.bias";

/// The module of the same in an attention over heads, and its norms: HF `Qwen4ExpTextQSAIndexer`.
const HEADS_INDEXER: &str = "self_attn.indexer.index_qk_proj";
const HEADS_INDEXER_NORMS: [&str; 2] =
    ["self_attn.indexer.q_layernorm", "self_attn.indexer.k_layernorm"];

/// Returns the names of the tensors that `checkpoint` may have. Shapes are not compared.
pub(super) fn names(config: &ModelConfig, checkpoint: &Checkpoint) -> Vec<String> {
    let mut names: Vec<String> = unread(config).into_iter().map(|(name, _)| name).collect();
    names.extend(config.optional_pooler_tensors.iter().cloned());
    names.extend(hyper_connections::optional(config));
    if checkpoint.is_awq() {
        names.extend(divisors(config));
    }
    names
}

/// Returns the names of AutoAWQ's divisors, which the layers read if they are there.
fn divisors(config: &ModelConfig) -> impl Iterator<Item = String> {
    config.layers.iter().enumerate().flat_map(move |(index, layer)| {
        let names = match &layer.feed_forward {
            FeedForward::Mlp(mlp) => layers::divisor_names(&config.names.mlp, mlp),
            FeedForward::Moe(_) | FeedForward::None => Vec::new(),
        };
        names.into_iter().map(move |name| config.names.of_layer(index, &name))
    })
}

/// Returns the tensors that a checkpoint may have without use.
fn unread(config: &ModelConfig) -> Shapes {
    let names = &config.names;
    let mut tensors = Vec::new();
    for index in 0..config.layers.len() {
        add(&mut tensors, config, index);
    }
    for (index, layer) in config.layers.iter().enumerate() {
        let Mixer::Attention(attention) = &layer.mixer else { continue };
        let (Some(_), QkvNames::Separate([_, k, v])) = (attention.kv_from, names.attention.qkv)
        else {
            continue;
        };
        for name in [Some(k), Some(v), names.attention.k_norm].into_iter().flatten() {
            for part in ["weight", "bias"] {
                let name = names.of_layer(index, &format!("{name}.{part}"));
                tensors.push((name, Vec::new()));
            }
        }
    }
    tensors.extend(config.altup.iter().flat_map(|altup| gemma3n::optional(config, altup)));
    if let Some(gate) = config.passes.exit_gate {
        let parts = ["weight", "bias"].map(|part| (format!("{gate}.{part}"), Vec::new()));
        tensors.extend(parts);
    }
    tensors
}

/// Returns the linear layers that an adapter may change without effect, because no result depends
/// on them: those of the indexers.
pub(in crate::model) fn unused_modules(config: &ModelConfig) -> Vec<String> {
    let of_layer = |index: usize| {
        let names: &[&str] = match &config.layers[index].mixer {
            Mixer::Latent(LatentConfig { index_topk: Some(_), .. }) => &INDEXER,
            Mixer::Attention(AttentionConfig { indexed_context: Some(_), .. }) => &[HEADS_INDEXER],
            _ => &[],
        };
        names.iter().map(move |name| config.names.of_layer(index, name))
    };
    (0..config.layers.len()).flat_map(of_layer).collect()
}

/// Adds the tensors of layer `index` that published checkpoints have and that change no result: the
/// inner projections of experts that return their input, and the indexer of an attention whose
/// contexts are never longer than its choice.
fn add(tensors: &mut Shapes, config: &ModelConfig, index: usize) {
    let (layer, names) = (&config.layers[index], &config.names);
    let mut weight = |module: String| tensors.push((format!("{module}.weight"), Vec::new()));
    if let (FeedForward::Moe(moe), ExpertNames::Each { module, inner, .. }) =
        (&layer.feed_forward, names.moe.experts)
    {
        for expert in moe.num_experts..moe.num_choices() {
            let projections = inner.iter().map(|name| format!("{module}.{expert}.{name}"));
            projections.for_each(|name| weight(names.of_layer(index, &name)));
        }
    }
    // Checkpoints may have the norms of experts in dense layers, too.
    if let (Some(OtherNorms::OfDense(norms)), FeedForward::Mlp(_)) =
        (config.other_norms, &layer.feed_forward)
    {
        let unused = config.norms.after_mlp.filter(|_| norms.after_mlp.is_none());
        unused.iter().for_each(|name| weight(names.of_layer(index, name)));
    }
    if let Mixer::Attention(AttentionConfig { indexed_context: Some(_), .. }) = &layer.mixer {
        for name in [HEADS_INDEXER].into_iter().chain(HEADS_INDEXER_NORMS) {
            weight(names.of_layer(index, name));
        }
    }
    if let Mixer::Latent(LatentConfig { index_topk: Some(_), .. }) = &layer.mixer {
        for name in INDEXER.into_iter().chain([INDEXER_NORM]) {
            weight(names.of_layer(index, name));
        }
        tensors.push((names.of_layer(index, INDEXER_BIAS), Vec::new()));
    }
}
