//! A decoder with blocks of attention and an MLP that several layers share: HF `Zamba2Model`
//! (<https://arxiv.org/abs/2411.15242>).
//!
//! All layers have Mamba 2. Some use a block before it, which reads the layer's input beside the
//! embeddings of the tokens. The block's output is an input of Mamba 2 alone: the stream goes on
//! without it. Each use of a block has keys and values of its own.
//!
//! | tensor | shape |
//! |---|---|
//! | hidden state, embeddings | `[num_tokens, hidden_size]` |
//! | input of a block | `[num_tokens, 2 * hidden_size]` |
//! | q, k, v | `[num_tokens, num_heads * head_dim]`, as wide as that input |

use std::sync::Arc;

use burn::tensor::Tensor;
use playhouse_kernels::{
    Activation, AttentionMask, AttentionParams, QkvHeads, RotaryTable, WeightDtype, add, gated,
    paged_attention, profile::timed, qk_norm_rope_and_cache,
};

use super::config::{
    AttentionConfig, FeedForward, Mixer, MlpConfig, ModelConfig, ParallelConfig, SharedBlocks,
};
use super::family::WeightNames;
use super::layers::rotary::RotaryTables;
use super::layers::{Embedding, LayerPlace, Linear, Mamba2, Norm, Part, load_activation};
use super::weight_loader::{WeightLoader, refused};
use super::{Adapters, Backbone, ModelError, Positions, Step};

/// The modules of a layer that uses a block.
pub(super) const BLOCK: &str = "shared_transformer";
pub(super) const LINEAR: &str = "linear";
/// The module of Mamba 2 and its norm there. Other layers have both by themselves.
pub(super) const MAMBA: &str = "mamba_decoder";

/// The modules of a block.
pub(super) const INPUT_NORM: &str = "input_layernorm";
pub(super) const QKV: [&str; 3] = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"];
pub(super) const O: &str = "self_attn.o_proj";
pub(super) const MLP_NORM: &str = "pre_ff_layernorm";
pub(super) const GATE_UP: &str = "feed_forward.gate_up_proj";
pub(super) const DOWN: &str = "feed_forward.down_proj";
/// Those of the products of low rank for the uses, which each list has by the number of the use.
pub(super) const QKV_ADAPTERS: [&str; 3] = [
    "self_attn.linear_q_adapter_list",
    "self_attn.linear_k_adapter_list",
    "self_attn.linear_v_adapter_list",
];
pub(super) const MLP_ADAPTERS: &str = "feed_forward.gate_up_proj_adapter_list";

/// HF `Zamba2Model`.
#[derive(Debug)]
pub(super) struct SharedBlocksDecoder {
    embed_tokens: Embedding,
    blocks: Vec<Arc<Block>>,
    layers: Vec<Layer>,
    norm: Norm,
    /// The border of [`Backbone::short_context`].
    short_context: Option<usize>,
}

/// HF `Zamba2MambaDecoderLayer`, or `Zamba2HybridLayer`.
#[derive(Debug)]
struct Layer {
    block: Option<BlockUse>,
    input_norm: Norm,
    mamba: Mamba2,
}

/// A block without the products of its uses.
#[derive(Debug)]
struct Block {
    input_norm: Norm,
    qkv: Linear,
    heads: QkvHeads,
    rotary: Option<Arc<RotaryTable>>,
    params: AttentionParams,
    o: Linear,
    mlp_norm: Norm,
    gate_up: Linear,
    activation: Activation,
    down: Linear,
}

/// The use of a block by a layer.
#[derive(Debug)]
struct BlockUse {
    block: Arc<Block>,
    qkv: Option<[LowRank; 3]>,
    gate_up: LowRank,
    linear: Linear,
    /// The layer of the KV cache that holds its keys and values.
    kv_layer: usize,
}

/// A product of low rank.
#[derive(Debug)]
struct LowRank {
    a: Linear,
    b: Linear,
}

impl SharedBlocksDecoder {
    /// Loads all but the output layer.
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        config: &ModelConfig,
        shared: SharedBlocks,
        embed_tokens: Embedding,
    ) -> Result<Self, ModelError> {
        let mut rotary = RotaryTables::new(config, loader.device());
        let mut blocks: Vec<Arc<Block>> = Vec::new();
        let mut layers = Vec::with_capacity(config.layers.len());
        let in_users = ModelConfig { names: names_in_users(config), ..config.clone() };
        for index in 0..config.layers.len() {
            let (place, names) = (LayerPlace { config, index }, &config.names);
            let norm = |loader: &mut WeightLoader<'_>, module: &str| {
                Norm::load(loader, &place.module(module), config.hidden_size, config.norm)
            };
            let layer = match (&place.layer().mixer, &place.layer().feed_forward) {
                (Mixer::Parallel(both), FeedForward::Mlp(mlp)) => {
                    let ParallelConfig { attention, mamba, .. } = both;
                    let (number, holder) = shared.use_of(&config.layers, index);
                    if blocks.len() < shared.count && holder == index {
                        let block = Block::load(loader, place, attention, mlp, &mut rotary)?;
                        blocks.push(Arc::new(block));
                    }
                    let block = blocks.get(number % shared.count).cloned();
                    let block = block.ok_or_else(|| missing("block"))?;
                    let sizes = [attention.q_size(), mlp.intermediate_size];
                    let block = BlockUse::load(loader, place, shared, sizes, block)?;
                    let kv_layer = block.kv_layer + 1;
                    let of_user = LayerPlace { config: &in_users, index };
                    Layer {
                        block: Some(block),
                        input_norm: norm(loader, &format!("{MAMBA}.{INPUT_NORM}"))?,
                        mamba: Mamba2::load(loader, of_user, mamba, kv_layer)?,
                    }
                }
                (Mixer::Mamba2(mamba), _) => Layer {
                    block: None,
                    input_norm: norm(loader, names.norms.before_attention.unwrap_or(INPUT_NORM))?,
                    mamba: Mamba2::load(loader, place, mamba, place.kv_layer())?,
                },
                _ => return Err(missing("state-space model")),
            };
            layers.push(layer);
        }
        let norm = config.names.stored(config.names.norm);
        Ok(Self {
            embed_tokens,
            blocks,
            layers,
            norm: Norm::load(loader, &norm, config.hidden_size, config.norm)?,
            short_context: config.short_context(),
        })
    }
}

/// Returns the names of modules in layers that use a block.
pub(super) fn names_in_users(config: &ModelConfig) -> WeightNames {
    WeightNames { mamba: "mamba_decoder.mamba", ..config.names }
}

fn missing(part: &str) -> ModelError {
    ModelError::Family(format!("a layer has no {part}").into())
}

impl Backbone for SharedBlocksDecoder {
    fn embed(&self, token_ids: &[u32], adapters: Adapters<'_>) -> Tensor<2> {
        self.embed_tokens.forward(token_ids, adapters)
    }

    fn short_context(&self) -> Option<usize> {
        self.short_context
    }

    fn forward(
        &self,
        mut hidden: Tensor<2>,
        positions: Positions<'_>,
        step: &mut Step<'_>,
    ) -> Tensor<2> {
        let embeddings = hidden.clone();
        for layer in &self.layers {
            let input = match &layer.block {
                None => hidden.clone(),
                Some(block) => {
                    let beside = Tensor::cat(vec![hidden.clone(), embeddings.clone()], 1);
                    add(hidden.clone(), block.forward(beside, positions, step))
                }
            };
            let mixed = layer.mamba.forward(layer.input_norm.forward(input), step);
            hidden = add(hidden, mixed);
        }
        self.norm.forward(hidden)
    }

    fn mapped_bytes(&self) -> u64 {
        let blocks = self.blocks.iter().map(|block| block.mapped_bytes());
        blocks.chain(self.layers.iter().map(Layer::mapped_bytes)).sum()
    }
}

impl Layer {
    fn mapped_bytes(&self) -> u64 {
        let block = self.block.as_ref().map_or(0, BlockUse::mapped_bytes);
        self.mamba.mapped_bytes() + block
    }
}

impl Block {
    /// Loads the block of the layer at `place`, which is the first one that uses it.
    fn load(
        loader: &mut WeightLoader<'_>,
        place: LayerPlace<'_>,
        attention: &AttentionConfig,
        mlp: &MlpConfig,
        rotary: &mut RotaryTables<'_>,
    ) -> Result<Self, ModelError> {
        let (hidden, norm) = (place.config.hidden_size, place.config.norm);
        let (q_size, inner) = (attention.q_size(), mlp.intermediate_size);
        let module = |name: &str| place.module(&format!("{BLOCK}.{name}"));
        let part = |name: &str, outputs| Part::new(module(name), outputs);
        let params = AttentionParams {
            mask: AttentionMask::Full,
            tensor_cores: loader.tensor_cores(),
            rounds_to_bf16: loader.dtype() == WeightDtype::Bf16,
            ..AttentionParams::new(attention.num_heads, attention.scale)
        };
        params.require_place(loader.device()).map_err(refused(&module(O)))?;
        Ok(Self {
            input_norm: Norm::load(loader, &module(INPUT_NORM), 2 * hidden, norm)?,
            qkv: Linear::load(loader, &QKV.map(|name| part(name, q_size)), 2 * hidden, false)?,
            heads: QkvHeads {
                num_heads: attention.num_heads,
                num_kv_heads: attention.num_kv_heads,
                head_dim: attention.head_dim,
                q_norm: None,
                k_norm: None,
                norms_after_rope: false,
                eps: norm.eps,
                clip: None,
            },
            rotary: rotary.of(attention)?,
            params,
            o: Linear::load(loader, &[part(O, hidden)], q_size, false)?,
            mlp_norm: Norm::load(loader, &module(MLP_NORM), hidden, norm)?,
            gate_up: Linear::load(loader, &[part(GATE_UP, 2 * inner)], hidden, mlp.bias)?,
            activation: load_activation(loader, place, mlp.activation)?,
            down: Linear::load(loader, &[part(DOWN, hidden)], inner, mlp.down_bias)?,
        })
    }

    fn mapped_bytes(&self) -> u64 {
        [&self.qkv, &self.o, &self.gate_up, &self.down].map(Linear::mapped_bytes).iter().sum()
    }
}

impl BlockUse {
    /// Maps `[num_tokens, 2 * hidden]` to `[num_tokens, hidden]`. Writes the keys and values of
    /// these tokens into the step's cache.
    fn forward(&self, x: Tensor<2>, positions: Positions<'_>, step: &mut Step<'_>) -> Tensor<2> {
        let (block, adapters) = (&*self.block, step.adapters());
        let x = block.input_norm.forward(x);
        let qkv = timed("qkv", || {
            let qkv = block.qkv.forward(x.clone(), adapters);
            match &self.qkv {
                None => qkv,
                Some(all) => {
                    let added = all.iter().map(|low_rank| low_rank.forward(x.clone(), adapters));
                    add(qkv, Tensor::cat(added.collect(), 1))
                }
            }
        });
        let (meta, kv) = step.layer(self.kv_layer);
        let (rows, table) = positions.of_table(block.rotary.as_deref());
        let slots = &meta.slot_mapping;
        let q = qk_norm_rope_and_cache(qkv, &block.heads, rows, table, kv, slots);
        let attended = timed("attention", || paged_attention(q, kv, meta, &block.params));
        let x = block.mlp_norm.forward(timed("o", || block.o.forward(attended, adapters)));
        let inner = timed("gate_up", || {
            let inner = block.gate_up.forward(x.clone(), adapters);
            gated(add(inner, self.gate_up.forward(x, adapters)), block.activation)
        });
        let output = timed("down", || block.down.forward(inner, adapters));
        self.linear.forward(output, adapters)
    }

    /// Loads the parts of the layer at `place` that belong to its use of `block`. `sizes` are those
    /// of queries and of the inner width.
    fn load(
        loader: &mut WeightLoader<'_>,
        place: LayerPlace<'_>,
        shared: SharedBlocks,
        [q_size, inner]: [usize; 2],
        block: Arc<Block>,
    ) -> Result<Self, ModelError> {
        let hidden = place.config.hidden_size;
        let mut low_rank = |list: &str, sizes: [usize; 2]| {
            LowRank::load(loader, low_rank_modules(place, shared, list), shared.rank, sizes)
        };
        let qkv = match shared.has_attention_adapters {
            true => {
                let [q, k, v] = QKV_ADAPTERS;
                let sizes = [2 * hidden, q_size];
                Some([low_rank(q, sizes)?, low_rank(k, sizes)?, low_rank(v, sizes)?])
            }
            false => None,
        };
        let gate_up = low_rank(MLP_ADAPTERS, [hidden, 2 * inner])?;
        let linear = [Part::new(place.module(LINEAR), hidden)];
        Ok(Self {
            block,
            qkv,
            gate_up,
            linear: Linear::load(loader, &linear, hidden, false)?,
            kv_layer: place.kv_layer(),
        })
    }

    /// Returns the bytes without those of the block.
    fn mapped_bytes(&self) -> u64 {
        let low_rank = self.qkv.iter().flatten().chain([&self.gate_up]);
        let low_rank: u64 = low_rank.map(LowRank::mapped_bytes).sum();
        low_rank + self.linear.mapped_bytes()
    }
}

/// Returns the modules of the product of low rank in `list` that belongs to the layer at `place`.
pub(super) fn low_rank_modules(
    place: LayerPlace<'_>,
    shared: SharedBlocks,
    list: &str,
) -> [String; 2] {
    let (number, holder) = shared.use_of(&place.config.layers, place.index);
    let holder = LayerPlace { index: holder, ..place };
    ["0", "1"].map(|part| holder.module(&format!("{BLOCK}.{list}.{number}.{part}")))
}

impl LowRank {
    fn forward(&self, x: Tensor<2>, adapters: Adapters<'_>) -> Tensor<2> {
        self.b.forward(self.a.forward(x, adapters), adapters)
    }

    fn load(
        loader: &mut WeightLoader<'_>,
        [a, b]: [String; 2],
        rank: usize,
        [inputs, outputs]: [usize; 2],
    ) -> Result<Self, ModelError> {
        Ok(Self {
            a: Linear::load(loader, &[Part::new(a, rank)], inputs, false)?,
            b: Linear::load(loader, &[Part::new(b, outputs)], rank, false)?,
        })
    }

    fn mapped_bytes(&self) -> u64 {
        self.a.mapped_bytes() + self.b.mapped_bytes()
    }
}
