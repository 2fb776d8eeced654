//! Compares the tensors that a config implies with those of the checkpoint, before large memory is
//! allocated. All tensors must be present with their shapes. The checkpoint may have no further
//! tensor that would change the results.

mod mamba;
mod ngpt;
mod optional;
mod recurrent;
mod shared_blocks;
mod tensors;

use std::collections::BTreeSet;
use std::iter;

use super::ModelError;
use super::config::{
    ActivationName, AttentionConfig, DisentangledConfig, EmbeddingConfig, EmbeddingProjections,
    FeedForward, LatentConfig, Mixer, MlpConfig, ModelConfig, MoeConfig, ParallelConfig,
    PositionProjection, SumProjection, TABLE_PARTS, TokenTypes,
};
use super::family::{HeadNormRule, LayerNorms, MlpNames, QkvNames, WeightNames};
use super::layers::{
    KvParts, LatentParts, LayerPlace, Part, QueryParts, XIELU_WEIGHTS, expert_parts, inner_parts,
    latent_parts, lightning, qkv_parts, shared_mlp,
};
use super::{gemma3n, gemma4, hyper_connections};
use crate::weights::{Checkpoint, WeightsError};
pub(super) use optional::unused_modules;
use tensors::{Shapes, Tensors};

/// The last parts of the names of tensors that no result depends on: tables of old checkpoints, and
/// scales of 8-bit KV caches.
const HARMLESS: [&str; 7] =
    ["inv_freq", "position_ids", "k_scale", "v_scale", "kv_scale", "q_scale", "prob_scale"];

/// The ends of the names of BERT's pooler, which stays in a checkpoint whose vectors are pooled in
/// another way.
const POOLER: [&str; 2] = ["pooler.dense.weight", "pooler.dense.bias"];

/// The ends of the names of causal masks, which old checkpoints of GPT-2, GPT-NeoX and CodeGen
/// hold.
const MASKS: [&str; 5] = [
    ".attn.bias",
    ".attn.masked_bias",
    ".attn.causal_mask",
    ".attention.bias",
    ".attention.masked_bias",
];

/// The tensors beside a weight of bitsandbytes: the first part of their names behind that of the
/// weight.
const BESIDE_WEIGHTS: [&str; 5] =
    ["absmax", "quant_map", "nested_absmax", "nested_quant_map", "quant_state"];

/// The ends of the names of the tensors that hold a tensor of MXFP4 experts.
const MXFP4_PARTS: [&str; 2] = ["_blocks", "_scales"];

/// Checks that `checkpoint` has the tensors of `config`.
///
/// # Errors
/// [`WeightsError::MissingTensor`] and [`WeightsError::Shape`]. [`WeightsError::Unused`] if the
/// checkpoint has a tensor of the decoder that the config does not imply.
pub(super) fn check(config: &ModelConfig, checkpoint: &Checkpoint) -> Result<(), ModelError> {
    let mut known = BTreeSet::new();
    // Layer by layer: names of a config that does not fit are not all made.
    for (name, shape) in tensors(config).flatten() {
        checkpoint.require_shape(&name, &shape)?;
        known.insert(name);
    }
    known.extend(optional::names(config, checkpoint));
    let layers = format!("{}.", config.names.stored(config.names.layer));
    let head = config.names.stored(config.names.lm_head);
    let wrapper = config.wrapped.as_ref().map(|wrapped| wrapped.wrapper);
    let (mut strangers, mut num_unread, mut num_media) = (Vec::new(), 0, 0);
    for name in checkpoint.names() {
        let name = &*name;
        let (module, part) = name.rsplit_once('.').unwrap_or((name, ""));
        let is_known = known.contains(&format!("{module}.weight"));
        let is_mask = MASKS.iter().any(|mask| name.ends_with(mask));
        let is_table = lightning::STORED_TABLES.contains(&part);
        let is_pooler = POOLER.iter().any(|end| name.ends_with(end));
        let is_statistic = hyper_connections::is_statistic(config, part);
        let is_harmless =
            HARMLESS.contains(&part) || is_mask || is_table || is_pooler || is_statistic;
        let whole = MXFP4_PARTS.iter().find_map(|part| name.strip_suffix(part));
        let is_known = is_known || whole.is_some_and(|name| known.contains(name));
        let is_known = is_known || weight_beside(name).is_some_and(|name| known.contains(&name));
        if is_harmless || known.contains(name) || is_known && part != "bias" {
            continue;
        }
        let is_head = module == head;
        if is_head && !config.has_lm_head {
            continue;
        }
        if is_head && part != "bias" {
            require_tied(config, checkpoint, name)?;
        } else if part == "bias" && (is_known || is_head) && checkpoint.is_zero(name) {
            // Writers of GPTQ store biases for all layers: zeros if the model has none.
        } else if is_nextn(config, name) {
            num_unread += 1;
        } else if is_known || is_head || name.starts_with(&layers) {
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
        } else if let Some(wrapper) = wrapper {
            if !wrapper.is_unread(name) {
                let why = "it is in no module that the model's class is known to have; correct \
                           `architectures` in config.json, or remove the tensor";
                return Err(unused(checkpoint, name, why));
            }
            num_media += 1;
        } else {
            strangers.push(checkpoint.stored_name(name).into_owned());
        }
    }
    if num_unread > 0 {
        let field = "num_nextn_predict_layers";
        tracing::info!(tensors = num_unread, field, "layers after the last are not read");
    }
    if wrapper.is_some_and(|wrapper| wrapper.vision.is_empty()) {
        let tensors = num_media;
        tracing::info!(tensors, "text only: the parts of the model for media are not read");
    }
    if let Some(first) = strangers.first() {
        tracing::warn!(tensors = strangers.len(), first, "tensors of the checkpoint are not used");
    }
    Ok(())
}

/// Returns the weight that a tensor of bitsandbytes stands beside.
fn weight_beside(name: &str) -> Option<String> {
    let (module, part) = name.split_once(".weight.")?;
    let first = part.split('.').next()?;
    BESIDE_WEIGHTS.contains(&first).then(|| format!("{module}.weight"))
}

/// Returns whether a tensor belongs to a layer after the last.
fn is_nextn(config: &ModelConfig, name: &str) -> bool {
    let count = config.layers.len();
    let layers = config.names.stored(config.names.layer);
    let index = || name.strip_prefix(&*layers)?.strip_prefix('.')?.split_once('.');
    let index = index().and_then(|(index, _)| index.parse::<usize>().ok());
    index.is_some_and(|index| (count..count + config.num_nextn_layers).contains(&index))
}

/// Checks that a stored output layer is equal to the embedding that it is tied to. If both are
/// stored, transformers 4 uses the embedding, and transformers 5 the output layer.
fn require_tied(
    config: &ModelConfig,
    checkpoint: &Checkpoint,
    name: &str,
) -> Result<(), ModelError> {
    let embedding = format!("{}.weight", config.names.stored(config.names.embed_tokens));
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

/// Returns every tensor of the model with its shape: those outside of layers, then those of each
/// layer.
fn tensors(config: &ModelConfig) -> impl Iterator<Item = Shapes> {
    let layers = (0..config.layers.len()).map(|index| of_layer(config, index));
    iter::once_with(|| outside(config)).chain(layers)
}

/// Returns the tensors outside of layers.
fn outside(config: &ModelConfig) -> Shapes {
    let names = &config.names;
    let (scored, hidden) = (config.scored_tokens(), config.hidden_size);
    let width = config.embedding_width();
    let mut tensors = Tensors::default();
    if config.has_lm_head && !config.tie_word_embeddings {
        tensors.weight(&names.stored(names.lm_head), &[scored, width]);
    }
    if config.is_classified_by_output && !config.has_lm_head && !config.tie_word_embeddings {
        tensors.weight(&names.stored(names.lm_head), &[scored, width]);
    }
    tensors.0.extend(config.pooler_tensors.iter().cloned());
    let table = names.stored(names.embed_tokens);
    match config.embedding.table_parts {
        None => tensors.weight(&table, &[config.vocab_size, config.table_width()]),
        Some(rows) => {
            let parts = TABLE_PARTS.iter().zip(rows);
            let shape = |rows: usize| vec![rows, config.table_width()];
            tensors.0.extend(parts.map(|(part, rows)| (format!("{table}.{part}"), shape(rows))));
        }
    }
    let summed = config.summed_width();
    let EmbeddingConfig { learned_positions, has_norm, projections, .. } = config.embedding;
    if let Some(EmbeddingProjections { project_in, project_out, .. }) = projections {
        tensors.weight(project_in, &[hidden, width]);
        tensors.weight(project_out, &[width, hidden]);
    }
    if let Some(offset) = learned_positions {
        let rows = config.max_position_embeddings + offset;
        tensors.weight(&names.stored(names.embed_positions), &[rows, summed]);
    }
    let types = [config.embedding.token_types, config.embedding.task_types];
    for TokenTypes { module, count } in types.into_iter().flatten() {
        tensors.weight(module, &[count, summed]);
    }
    if let Some(SumProjection { module, .. }) = config.embedding.sum_projection {
        tensors.part(&Part::new(module.to_owned(), hidden), summed, true);
    }
    let biases = config.layers.iter().find_map(|layer| {
        let attention = layer.mixer.attention()?;
        Some((attention.distance_biases?, attention.num_heads))
    });
    if let Some((biases, num_heads)) = biases {
        tensors.weight(biases.module, &[biases.num_buckets, num_heads]);
    }
    let terms = config.layers.iter().find_map(|layer| layer.mixer.attention()?.disentangled);
    if let Some(DisentangledConfig { table, norm, span, .. }) = terms {
        tensors.weight(table, &[2 * span, hidden]);
        norm.iter().for_each(|norm| tensors.norm(norm, config));
    }
    if let Some(ngpt) = config.ngpt.filter(|_| config.has_lm_head) {
        tensors.0.push((ngpt.logits.tensor.to_owned(), vec![config.scored_tokens()]));
    }
    if has_norm {
        tensors.norm_of(&names.stored(names.embed_norm), config, summed);
    }
    if config.has_final_norm {
        tensors.norm(&names.stored(names.norm), config);
    }
    if let Some(altup) = &config.altup {
        tensors.0.extend(gemma3n::tensors(config, altup));
    }
    if let Some(gemma4) = &config.gemma4 {
        tensors.0.extend(gemma4::outside(config, gemma4));
    }
    if let Some(streams) = config.hyper_connections {
        tensors.0.extend(hyper_connections::outside(config, streams));
    }
    if config.has_lm_head && config.logits.has_bias {
        tensors.0.push((format!("{}.bias", names.stored(names.lm_head)), vec![scored]));
    }
    tensors.0
}

/// Returns the tensors of layer `index`.
fn of_layer(config: &ModelConfig, index: usize) -> Shapes {
    if let Some(shared) = config.shared_blocks {
        return shared_blocks::of_layer(config, index, shared);
    }
    let (layer, names, hidden) = (&config.layers[index], &config.names, config.hidden_size);
    let mut tensors = Tensors::default();
    let module = |name: &str| names.of_layer(index, name);
    let LayerNorms { before_attention, after_attention, before_mlp, after_mlp } =
        config.norms_of(index);
    for norm in [before_attention, after_attention, before_mlp, after_mlp] {
        norm.iter().for_each(|norm| tensors.norm(&module(norm), config));
    }
    names.attention_norm.iter().for_each(|norm| tensors.norm(&module(norm), config));
    let of_mamba = |name: &str| module(&format!("{}.{name}", names.mamba));
    match &layer.mixer {
        Mixer::Attention(attention) => {
            add_attention(&mut tensors, attention, names, hidden, module);
        }
        Mixer::Latent(latent) => {
            let parts = LatentParts::of(LayerPlace { config, index }, latent);
            add_latent(&mut tensors, latent, parts, hidden);
        }
        Mixer::Mamba(mamba) => mamba::add(&mut tensors, mamba, hidden, of_mamba),
        Mixer::Mamba2(mamba) => mamba::add_2(&mut tensors, mamba, hidden, of_mamba),
        Mixer::Parallel(ParallelConfig { attention, mamba, .. }) => {
            add_attention(&mut tensors, attention, names, hidden, module);
            mamba::add_2(&mut tensors, mamba, hidden, of_mamba);
        }
        Mixer::Recurrent(mixer) => recurrent::add(&mut tensors, mixer, hidden, module),
        Mixer::None => {}
    }
    match &layer.feed_forward {
        FeedForward::Mlp(mlp) => {
            add_mlp(&mut tensors, mlp, names, &names.mlp, hidden, module);
        }
        FeedForward::Moe(moe) => add_moe(&mut tensors, moe, names, hidden, module),
        FeedForward::None => {}
    }
    if config.gemma4.is_some() {
        tensors.0.extend(gemma4::of_layer(config, index));
    }
    if let Some(ngpt) = &config.ngpt {
        tensors.0.extend(ngpt::of_layer(config, ngpt, index));
    }
    if let Some(streams) = config.hyper_connections {
        tensors.0.extend(hyper_connections::of_layer(config, index, streams));
    }
    tensors.0
}

fn add_attention(
    tensors: &mut Tensors,
    attention: &AttentionConfig,
    names: &WeightNames,
    hidden: usize,
    module: impl Fn(&str) -> String,
) {
    let AttentionConfig { num_heads, num_kv_heads, head_dim, .. } = *attention;
    let k_norm = names.attention.k_norm.filter(|_| attention.kv_from.is_none());
    let head_norms = [(names.attention.q_norm, num_heads), (k_norm, num_kv_heads)];
    for (norm, heads) in head_norms {
        let (Some(norm), Some(rule)) = (norm.map(&module), attention.head_norm) else { continue };
        match rule {
            HeadNormRule::Rms | HeadNormRule::RmsPlusOne => tensors.weight(&norm, &[head_dim]),
            HeadNormRule::LayerBiased => {
                tensors.weight(&norm, &[head_dim]);
                tensors.0.push((format!("{norm}.bias"), vec![head_dim]));
            }
            HeadNormRule::RmsAcrossHeads => tensors.weight(&norm, &[heads * head_dim]),
            HeadNormRule::LayerAcrossHeads => {
                tensors.weight(&norm, &[heads * head_dim]);
                tensors.0.push((format!("{norm}.bias"), vec![heads * head_dim]));
            }
            HeadNormRule::Layer => tensors.weight(&norm, &[heads, head_dim]),
            HeadNormRule::Unit => {}
            HeadNormRule::LayerByHead => (0..heads)
                .for_each(|head| tensors.weight(&format!("{norm}.norms.{head}"), &[head_dim])),
        }
    }
    // A norm of lengths has no weight, and no name.
    if let Some(norm) = attention.output_norm.filter(|norm| !norm.is_empty()) {
        tensors.weight(&module(norm), &[attention.o_size()]);
    }
    if let Some(low_rank) = attention.low_rank {
        tensors.weight(&module(low_rank.norm), &[low_rank.rank]);
        tensors.weight(&module(low_rank.output), &[attention.q_size(), low_rank.rank]);
    }
    if let Some(sinks) = attention.sinks {
        tensors.0.push((module(sinks), vec![num_heads]));
    }
    for part in qkv_parts(&names.attention.qkv, attention, names.is_transposed, &module) {
        tensors.part(&part, hidden, attention.qkv_bias);
    }
    if let QkvNames::Gated { gate, .. } = names.attention.qkv {
        tensors.part(&Part::new(module(gate), attention.gate_size()), hidden, false);
    }
    let of_positions = attention.disentangled.map(|terms| [terms.keys, terms.queries]);
    for projection in of_positions.into_iter().flatten().flatten() {
        if let PositionProjection::Module { name, has_bias } = projection {
            tensors.part(&Part::new(module(name), attention.q_size()), hidden, has_bias);
        }
    }
    for name in attention.disentangled.and_then(|terms| terms.biases).into_iter().flatten() {
        tensors.0.push((module(name), vec![attention.q_size()]));
    }
    let o = Part::new(module(names.attention.o_proj), hidden).transposed(names.is_transposed);
    tensors.part(&o, attention.o_size(), attention.o_bias);
}

fn add_latent(tensors: &mut Tensors, latent: &LatentConfig, parts: LatentParts, hidden: usize) {
    let LatentConfig { num_heads, kv_lora_rank, v_head_dim, bias, .. } = *latent;
    match parts.queries {
        QueryParts::One(part) => tensors.part(&part, hidden, false),
        QueryParts::LowRank { a, norm, b } => {
            tensors.part(&a, hidden, bias);
            tensors.weight(&norm, &[a.outputs]);
            tensors.part(&b, a.outputs, false);
        }
    }
    tensors.part(&parts.kv_a, hidden, bias);
    parts.gate.iter().for_each(|gate| tensors.part(gate, hidden, false));
    tensors.weight(&parts.kv_a_norm, &[kv_lora_rank]);
    match &parts.kv_b {
        KvParts::One(part) => tensors.part(part, kv_lora_rank, false),
        KvParts::Halves([keys, values]) => {
            tensors.part(keys, latent.qk_nope_head_dim, false);
            tensors.part(values, kv_lora_rank, false);
        }
    }
    tensors.part(&parts.o, num_heads * v_head_dim, bias);
}

/// Adds a convolution with a window over tokens.
fn add_conv(tensors: &mut Tensors, module: &str, [channels, kernel]: [usize; 2], has_bias: bool) {
    tensors.weight(module, &[channels, 1, kernel]);
    if has_bias {
        tensors.0.push((format!("{module}.bias"), vec![channels]));
    }
}

fn add_mlp(
    tensors: &mut Tensors,
    mlp: &MlpConfig,
    names: &WeightNames,
    mlp_names: &MlpNames,
    hidden: usize,
    module: impl Fn(&str) -> String,
) {
    for (name, outputs) in inner_parts(mlp_names.inner, mlp) {
        let part = Part::new(module(name), outputs).transposed(names.is_transposed);
        tensors.part(&part, hidden, mlp.bias);
    }
    let down = Part::new(module(mlp_names.down_proj), hidden).transposed(names.is_transposed);
    tensors.part(&down, mlp.intermediate_size, mlp.down_bias);
    if let Some(norm) = mlp.inner_norm.filter(|norm| !norm.is_empty()) {
        tensors.weight(&module(norm), &[mlp.intermediate_size]);
    }
    if mlp.activation == ActivationName::XIelu {
        let numbers = XIELU_WEIGHTS.iter().map(|(name, shape)| (module(name), shape.to_vec()));
        tensors.0.extend(numbers);
    }
}

fn add_moe(
    tensors: &mut Tensors,
    moe: &MoeConfig,
    names: &WeightNames,
    hidden: usize,
    module: impl Fn(&str) -> String,
) {
    let router = Part::new(module(names.moe.router), moe.num_choices());
    tensors.part(&router, hidden, moe.has_router_bias);
    if let Some(shape) = &moe.correction_bias {
        tensors.0.push((module(names.moe.correction_bias), shape.clone()));
    }
    if let Some(scales) = moe.expert_scales {
        tensors.0.push((module(scales), vec![moe.num_experts]));
    }
    for expert in 0..moe.num_experts {
        let [inner, down] = expert_parts(&names.moe, moe, hidden, expert, &module);
        let has_biases = moe.has_expert_biases;
        inner.iter().for_each(|part| tensors.part(part, moe.width(hidden), has_biases));
        down.iter().for_each(|part| tensors.part(part, moe.intermediate_size, has_biases));
    }
    if moe.has_output_bias {
        tensors.0.push((module(names.moe.output_bias), vec![hidden]));
    }
    for (part, inputs) in latent_parts(&names.moe, moe, hidden, &module).iter().flatten() {
        tensors.part(part, *inputs, moe.bias);
    }
    if let Some(shared) = moe.shared {
        let mlp = shared_mlp(moe, shared.intermediate_size);
        add_mlp(tensors, &mlp, names, &names.moe.shared, hidden, &module);
        if shared.has_gate {
            tensors.weight(&module(names.moe.shared_gate), &[1, hidden]);
        }
    }
}
