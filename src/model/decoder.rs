//! The decoder of all families of this crate. HF `LlamaForCausalLM` is its plainest form.
//!
//! | tensor | shape |
//! |---|---|
//! | hidden state, residual | `[num_tokens, hidden_size]` |
//! | q | `[num_tokens, num_heads * head_dim]` |
//! | k, v | `[num_tokens, num_kv_heads * head_dim]` |
//! | inner projections | `[num_tokens, intermediate_size]`, or twice that with a gate |
//! | logits | `[rows, vocab_size]` |
//!
//! The residual stream is a separate tensor beside the hidden state. So each addition and the norm
//! after it are computed in one pass.

mod layer;
mod passes;

use std::collections::BTreeMap;
use std::sync::Arc;

use burn::tensor::Tensor;
use playhouse_kernels::{EmbeddingTable, add, embedding, recycle, scale};

pub(super) use self::layer::DecoderLayer;
use self::passes::sum_of;
use super::config::{
    AttentionConfig, EmbeddingConfig, EmbeddingProjections, LatentConfig, LayerConfig, Mixer,
    ModelConfig, ParallelConfig, Passes, Section, SkipConnection, SumProjection, TokenTypes,
};
use super::gemma3n::Gemma3n;
use super::gemma4::Gemma4;
use super::hyper_connections::HyperDecoder;
use super::inventory::unused_modules;
use super::layers::rotary::{AxesRotary, RotaryTables};
use super::layers::{
    Embedding, LayerPlace, Linear, LinearHead, Norm, Part, embedding_table, linears, padded_head,
};
use super::shared_blocks::SharedBlocksDecoder;
use super::shortcut::ShortcutDecoder;
use super::weight_loader::WeightLoader;
use super::{Adapters, Backbone, KvLayers, KvWindow, Model, ModelError, Positions, Step};

/// HF `LlamaModel`.
#[derive(Debug)]
struct Decoder {
    embed_tokens: Embedding,
    embedding: EmbeddingConfig,
    embed_norm: Option<Norm>,
    project_in: Option<Linear>,
    embed_positions: Option<LearnedPositions>,
    embed_types: Option<TypeTable>,
    embed_tasks: Option<TypeTable>,
    project_sum: Option<Linear>,
    layers: Vec<DecoderLayer>,
    skips: Vec<SkipConnection>,
    passes: Passes,
    /// The layers of the KV cache that all layers use once.
    kv_layers_of_pass: usize,
    /// Those before the section that a token passes several times, and those of the section.
    kv_layers_of_section: [usize; 2],
    norm: Option<Norm>,
    project_out: Option<Linear>,
    /// The rotary embedding of positions with three axes.
    axes: Option<AxesRotary>,
    /// The border of [`Backbone::short_context`].
    short_context: Option<usize>,
}

/// A vector for each position, which is added to the embedding of the token.
#[derive(Debug)]
struct LearnedPositions {
    table: EmbeddingTable,
    /// The row of position 0.
    offset: usize,
}

/// A vector for each type of tokens, which is added to the embedding of the token.
#[derive(Debug)]
struct TypeTable {
    table: EmbeddingTable,
    count: u32,
}

impl Backbone for Decoder {
    fn embed(&self, token_ids: &[u32], adapters: Adapters<'_>) -> Tensor<2> {
        let hidden = self.embed_tokens.forward(token_ids, adapters);
        let hidden = scaled(hidden, self.embedding.multiplier);
        let hidden = match &self.project_in {
            None => hidden,
            Some(projection) => projection.forward(hidden, adapters),
        };
        match &self.embed_norm {
            Some(norm) if !self.embedding.is_summed_before_norm => norm.forward(hidden),
            _ => hidden,
        }
    }

    fn forward(
        &self,
        hidden: Tensor<2>,
        positions: Positions<'_>,
        step: &mut Step<'_>,
    ) -> Tensor<2> {
        self.forward_with_inputs(hidden, positions, step, &[]).0
    }

    fn short_context(&self) -> Option<usize> {
        self.short_context
    }

    fn num_layers(&self) -> usize {
        self.passes.num_layers(self.layers.len())
    }

    fn forward_with_inputs(
        &self,
        mut hidden: Tensor<2>,
        positions: Positions<'_>,
        step: &mut Step<'_>,
        wanted: &[usize],
    ) -> (Tensor<2>, Vec<Tensor<2>>) {
        hidden = scaled(hidden, self.embedding.input_multiplier);
        let rotary = self.axes.as_ref().and_then(|axes| axes.of_step(positions.axes()));
        let positions = match &rotary {
            None => positions,
            Some(rotary) => positions.turned(&rotary.rows, rotary.table.as_ref()),
        };
        if let Some(learned) = &self.embed_positions {
            hidden = add(hidden, learned.of(positions));
        }
        if let Some(types) = &self.embed_types {
            hidden = add(hidden, types.of(positions));
        }
        if let Some(tasks) = &self.embed_tasks {
            hidden = add(hidden, tasks.first(positions));
        }
        if let Some(norm) =
            self.embed_norm.as_ref().filter(|_| self.embedding.is_summed_before_norm)
        {
            hidden = norm.forward(hidden);
        }
        if let Some(projection) = &self.project_sum {
            hidden = projection.forward(hidden, step.adapters());
        }
        let (mut residual, mut inputs) = (None, Vec::with_capacity(wanted.len()));
        let (mut kept, mut first_input) = (BTreeMap::new(), None);
        for (index, layer) in self.passes.order(self.layers.len()).enumerate() {
            let layer = &self.layers[layer];
            (hidden, residual) = match self.passes.section {
                None => self.entered(index, hidden, residual, step),
                Some(section) => {
                    let stream = (hidden, residual);
                    self.entered_section(section, index, stream, &mut first_input, step)
                }
            };
            (hidden, residual) = self.mixed(index, hidden, residual, &mut kept);
            if wanted.contains(&index) {
                inputs.push(sum_of(&hidden, residual.as_ref()));
            }
            let (output, sum) = layer.forward(hidden, residual, positions, step);
            (hidden, residual) = (step.media().added(index, output), sum);
        }
        step.begin_pass(0);
        if wanted.contains(&self.num_layers()) {
            inputs.push(sum_of(&hidden, residual.as_ref()));
        }
        hidden = match (&self.norm, residual) {
            (Some(norm), residual) => {
                let (hidden, residual) = norm.add_forward(hidden, residual);
                recycle(residual);
                hidden
            }
            (None, Some(residual)) => add(hidden, residual),
            (None, None) => hidden,
        };
        let hidden = match &self.project_out {
            None => hidden,
            Some(projection) => projection.forward(hidden, step.adapters()),
        };
        (hidden, inputs)
    }

    fn mapped_bytes(&self) -> u64 {
        self.layers.iter().map(DecoderLayer::mapped_bytes).sum()
    }
}

fn scaled(hidden: Tensor<2>, factor: f32) -> Tensor<2> {
    if factor == 1.0 { hidden } else { scale(hidden, factor) }
}

impl LearnedPositions {
    /// Returns the vectors of the step's tokens, `[num_tokens, hidden]`.
    fn of(&self, positions: Positions<'_>) -> Tensor<2> {
        match self.offset as u32 {
            0 => embedding(&self.table, positions.in_sequence()),
            offset => {
                let rows: Vec<u32> =
                    positions.in_sequence().iter().map(|position| position + offset).collect();
                embedding(&self.table, &rows)
            }
        }
    }
}

impl TypeTable {
    /// Returns the vectors of the step's tokens, `[num_tokens, hidden]`. A model with one type has
    /// it for all tokens.
    fn of(&self, positions: Positions<'_>) -> Tensor<2> {
        let types = match positions.types() {
            [] => vec![0; positions.in_sequence().len()],
            types => types.iter().map(|kind| (*kind).min(self.count - 1)).collect(),
        };
        embedding(&self.table, &types)
    }

    /// Returns the first row for each of the step's tokens, `[num_tokens, hidden]`.
    fn first(&self, positions: Positions<'_>) -> Tensor<2> {
        embedding(&self.table, &vec![0; positions.in_sequence().len()])
    }

    fn load(
        loader: &mut WeightLoader<'_>,
        TokenTypes { module, count }: TokenTypes,
        hidden: usize,
    ) -> Result<Self, ModelError> {
        let table = embedding_table(loader, module, count, hidden)?;
        Ok(Self { table, count: count as u32 })
    }
}

impl Decoder {
    /// Loads all but the output layer.
    fn load(
        loader: &mut WeightLoader<'_>,
        config: &ModelConfig,
        embed_tokens: Embedding,
    ) -> Result<Self, ModelError> {
        let names = &config.names;
        let (hidden, width) = (config.hidden_size, config.embedding_width());
        let (embedding, summed) = (config.embedding, config.summed_width());
        let embed_norm = embedding
            .has_norm
            .then(|| Norm::load(loader, &names.stored(names.embed_norm), summed, config.norm));
        let embed_norm = embed_norm.transpose()?;
        let mut projection = |part: fn(EmbeddingProjections) -> &'static str, shape: [usize; 2]| {
            let [outputs, inputs] = shape;
            let load = |projections| {
                let part = [Part::new(part(projections).to_owned(), outputs)];
                Linear::load(loader, &part, inputs, false)
            };
            embedding.projections.map(load).transpose()
        };
        let project_in = projection(|projections| projections.project_in, [hidden, width])?;
        let project_out = projection(|projections| projections.project_out, [width, hidden])?;
        let embed_positions = embedding.learned_positions.map(|offset| {
            let rows = config.max_position_embeddings + offset;
            let table =
                embedding_table(loader, &names.stored(names.embed_positions), rows, summed)?;
            Ok::<_, ModelError>(LearnedPositions { table, offset })
        });
        let mut table = |types: Option<TokenTypes>| {
            types.map(|types| TypeTable::load(loader, types, summed)).transpose()
        };
        let (embed_types, embed_tasks) =
            (table(embedding.token_types)?, table(embedding.task_types)?);
        let project_sum = embedding.sum_projection.map(|SumProjection { module, .. }| {
            let part = [Part::new(module.to_owned(), hidden)];
            Linear::load(loader, &part, summed, true)
        });
        let project_sum = project_sum.transpose()?;
        let mut rotary = RotaryTables::new(config, loader.device());
        let layers = (0..config.layers.len())
            .map(|index| DecoderLayer::load(loader, LayerPlace { config, index }, &mut rotary))
            .collect::<Result<_, _>>()?;
        let norm = || Norm::load(loader, &names.stored(names.norm), hidden, config.norm);
        let norm = config.has_final_norm.then(norm).transpose()?;
        Ok(Self {
            embed_tokens,
            embedding,
            embed_norm,
            project_in,
            embed_positions: embed_positions.transpose()?,
            embed_types,
            embed_tasks,
            project_sum,
            layers,
            skips: config.skips.clone(),
            passes: config.passes,
            kv_layers_of_pass: kv_layers(&config.layers).windows.len(),
            kv_layers_of_section: {
                let Section { start, end } = config.passes.section_of(config.layers.len());
                let first = config.first_kv_layer(start);
                [first, config.first_kv_layer(end) - first]
            },
            norm,
            project_out,
            axes: AxesRotary::of(config, loader.device()),
            short_context: config.short_context(),
        })
    }
}

/// Builds the model that `config` describes.
pub(super) fn load(
    config: &ModelConfig,
    loader: &mut WeightLoader<'_>,
) -> Result<Model, ModelError> {
    let names = &config.names;
    let (vocab, width) = (config.vocab_size, config.embedding_width());
    let scored = config.scored_tokens();
    let is_tied = config.tie_word_embeddings;
    let (table, head) = (&*names.stored(names.embed_tokens), &*names.stored(names.lm_head));
    let module = if is_tied { table } else { head };
    if let Some(original) = &config.original {
        match known_modules(config, original) {
            Some(pairs) => loader.adapter_sites().set_names(&pairs),
            None => loader.adapter_sites().refuse("its file divides the layers in another way"),
        }
    }
    let of_class = of_class(config);
    if let Some(pairs) = of_class.and_then(|of_class| known_modules(config, &of_class)) {
        loader.adapter_sites().set_other_names(&pairs);
    }
    if let Some(why) = config.adapters_refused {
        loader.adapter_sites().refuse(why);
    }
    let lm_head = config
        .has_lm_head
        .then(|| LinearHead::load(loader, module, head, [scored, width], config.logits));
    let lm_head = match (lm_head.transpose()?, config.ngpt) {
        (Some(head), Some(ngpt)) => Some(head.with_factors(loader, ngpt.logits, scored)?),
        (head, _) => head,
    };
    let shared = lm_head.as_ref().filter(|_| is_tied).and_then(LinearHead::shared_rows);
    let known = config.original.as_ref().map_or(names, |original| &original.names);
    loader.adapter_sites().set_base(known.base());
    loader.adapter_sites().set_parts_of_names(known.in_adapters);
    if let Some(wrapped) = &config.wrapped {
        loader.adapter_sites().set_other_parts(wrapped.wrapper.unread);
    }
    for module in unused_modules(config.original.as_deref().unwrap_or(config)) {
        loader.adapter_sites().add_unused(module);
    }
    loader.adapter_sites().set_embedding(table, [vocab, config.table_width()]);
    let embed_tokens = match shared {
        Some(weight) => Embedding::Tied(weight),
        None => match config.embedding.table_parts {
            None => Embedding::load(loader, table, vocab, config.table_width())?,
            Some(rows) => Embedding::of_parts(loader, table, rows, config.table_width())?,
        },
    };
    let backbone: Arc<dyn Backbone> = match (config.altup, config.gemma4) {
        (Some(altup), _) => Arc::new(Gemma3n::load(loader, config, altup, embed_tokens)?),
        (None, Some(gemma4)) => Arc::new(Gemma4::load(loader, config, gemma4, embed_tokens)?),
        (None, None) if config.has_shortcuts => {
            Arc::new(ShortcutDecoder::load(loader, config, embed_tokens)?)
        }
        (None, None) => match (config.shared_blocks, config.hyper_connections) {
            (Some(shared), _) => {
                Arc::new(SharedBlocksDecoder::load(loader, config, shared, embed_tokens)?)
            }
            (None, Some(streams)) => {
                Arc::new(HyperDecoder::load(loader, config, streams, embed_tokens)?)
            }
            (None, None) => Arc::new(Decoder::load(loader, config, embed_tokens)?),
        },
    };
    Ok(Model {
        architecture: config.architecture().to_owned(),
        vocab_size: config.vocab_size,
        max_model_len: config.max_model_len,
        eos_token_ids: config.eos_token_ids.clone(),
        kv_layers: kv_layers_of(config),
        dtype: loader.dtype(),
        quantized_weights: loader.quantized_weights().cloned(),
        // The head of a pooler registers some, too.
        adapter_sites: Arc::default(),
        backbone,
        lm_head: lm_head.map(|head| padded_head(head, config.num_unscored)),
        pooler: None,
        media: None,
    })
}

/// Returns the config with the names of the model's class in transformers, if the checkpoint has
/// those of its authors. An adapter that was trained on the class has its names.
fn of_class(config: &ModelConfig) -> Option<ModelConfig> {
    let names = config.family.names;
    let is_of_authors = config.original.is_none()
        && config.family.other_names.is_some()
        && config.names.layer != names.layer;
    is_of_authors.then(|| ModelConfig { names, ..config.clone() })
}

/// Returns the modules of each linear layer by the names of the file, and by those of a Hugging
/// Face folder, which adapters have. `None` if the two do not have the same layers.
fn known_modules(config: &ModelConfig, original: &ModelConfig) -> Option<Vec<[Vec<Part>; 2]>> {
    let whole = |config: &ModelConfig| {
        let (names, vocab) = (&config.names, config.vocab_size);
        let module = |name| vec![Part::new(names.stored(name).into_owned(), vocab)];
        [module(names.embed_tokens), module(names.lm_head)]
    };
    let [[embedding, head], [known_embedding, known_head]] = [whole(config), whole(original)];
    // These first: where one of them is a linear layer, its own pair counts.
    let mut pairs = renamed_modules(config, original);
    pairs.extend([[embedding, known_embedding], [head, known_head]]);
    for index in 0..config.layers.len() {
        let of_layer = |config| linears(LayerPlace { config, index });
        let (stored, known) = (of_layer(config), of_layer(original));
        if stored.len() != known.len() {
            return None;
        }
        pairs.extend(stored.into_iter().zip(known).map(|(stored, known)| [stored, known]));
    }
    let outputs = |parts: &[Part]| parts.iter().map(|part| part.outputs).sum::<usize>();
    pairs.iter().all(|[stored, known]| outputs(stored) == outputs(known)).then_some(pairs)
}

/// Returns the modules whose names are not data, as the file has them and as adapters know them.
fn renamed_modules(config: &ModelConfig, original: &ModelConfig) -> Vec<[Vec<Part>; 2]> {
    let both = [&config.names, &original.names];
    let mut pairs = Vec::new();
    for (name, _) in config.names.renamed {
        pairs.push(both.map(|names| vec![Part::new(names.stored(name).into_owned(), 1)]));
        for index in 0..config.layers.len() {
            pairs.push(both.map(|names| vec![Part::new(names.of_layer(index, name), 1)]));
        }
    }
    pairs
}

/// Returns the layers of the KV cache that all passes of a model use. Those of each layer come
/// first, then those of each further pass.
fn kv_layers_of(config: &ModelConfig) -> KvLayers {
    let mut all = kv_layers(&config.layers);
    let Section { start, end } = config.passes.section_of(config.layers.len());
    let of_pass: Vec<KvWindow> = config.layers[start..end].iter().flat_map(windows).collect();
    (1..config.passes.count).for_each(|_| all.windows.extend_from_slice(&of_pass));
    all
}

/// Returns the layers of the KV cache that these layers of a model use in a pass.
pub(super) fn kv_layers(layers: &[LayerConfig]) -> KvLayers {
    // All attention of these families that keeps keys has the same heads in the cache.
    let mut kept = layers.iter().filter(|layer| layer.mixer.num_kv_layers() > 0);
    let heads = kept.find_map(|layer| match &layer.mixer {
        Mixer::Latent(latent) => {
            let LatentConfig { kv_lora_rank, .. } = *latent;
            Some((1, latent.cached_size(), Some(kv_lora_rank)))
        }
        mixer => {
            let attention = mixer.attention()?;
            Some((attention.num_cached_heads(), attention.cached_head_dim(), None))
        }
    });
    let (num_kv_heads, head_dim, value_prefix) = heads.unwrap_or((0, 0, None));
    let windows = layers.iter().flat_map(windows).collect();
    KvLayers { windows, num_kv_heads, head_dim, value_prefix }
}

/// Returns what a layer reads in each of its layers of the KV cache.
fn windows(layer: &LayerConfig) -> Vec<KvWindow> {
    match &layer.mixer {
        // It reads the keys and values of another layer.
        Mixer::Attention(attention) if attention.kv_from.is_some() => Vec::new(),
        // No later step reads its keys and values.
        Mixer::Attention(attention) if !attention.is_causal => Vec::new(),
        Mixer::Attention(attention) => vec![window(attention)],
        Mixer::Latent(latent) if !latent.is_causal => Vec::new(),
        Mixer::Latent(_) => vec![KvWindow::Full],
        Mixer::Mamba(mamba) => vec![KvWindow::State(mamba.state_len())],
        Mixer::Mamba2(mamba) => vec![KvWindow::State(mamba.state_len())],
        Mixer::Parallel(ParallelConfig { attention, mamba, .. }) => {
            vec![window(attention), KvWindow::State(mamba.state_len())]
        }
        Mixer::Recurrent(mixer) if !mixer.has_state() => Vec::new(),
        Mixer::Recurrent(mixer) => vec![KvWindow::State(mixer.state_len())],
        Mixer::None => Vec::new(),
    }
}

/// Returns the tokens that a token reads.
fn window(attention: &AttentionConfig) -> KvWindow {
    match (attention.sliding_window, attention.chunk) {
        (Some(window), _) => KvWindow::Sliding(window),
        // The largest number of tokens in both chunks.
        (None, Some(chunk)) if attention.sees_chunk_before => {
            KvWindow::Sliding(chunk.saturating_mul(2))
        }
        (None, Some(chunk)) => KvWindow::Chunked(chunk),
        (None, None) => KvWindow::Full,
    }
}
