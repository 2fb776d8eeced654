//! The tower of GLM-4.1V and its successors (HF `Glm4vVisionModel`): images of any size. Their
//! places are in rotary embeddings, and in learned positions that are sampled for each size.
//!
//! | tensor | shape |
//! |---|---|
//! | pixels of an item | `[height, width, 3]` |
//! | patches | `[rows, 3 · temporal_patch_size · patch_size²]` |
//! | hidden states | `[rows, hidden_size]` |
//! | squares | `[rows / merge², out_hidden_size]` |
//! | embeddings | `[rows / merge², out_hidden_size]` |

use burn::tensor::{Device, Tensor};
use playhouse_kernels::{Activation, EmbeddingTable, activate, profile::timed};

use super::activation;
use super::batch::{AxialRotary, rows, sequences};
use super::block::{Block, BlockConfig, BlockNames, Rows, sum};
use super::encoder::Tower;
use super::grid::Grid;
use super::pixels::{PatchSize, Pixels};
use super::qwen::{Patches, add_positions, apart};
use crate::model::config::{ConfigError, Fields, NormConfig};
use crate::model::family::NormKind;
use crate::model::layers::{Linear, Norm, Part, embedding_table};
use crate::model::weight_loader::WeightLoader;
use crate::model::{Adapters, EncoderOutput, MediaInput, ModelError};

const BLOCK: BlockNames = BlockNames {
    attention_norm: "norm1",
    mlp_norm: "norm2",
    qkv: &["attn.qkv"],
    o: "attn.proj",
    inner: &["mlp.gate_proj", "mlp.up_proj"],
    down: "mlp.down_proj",
    factors: None,
    head_norms: None,
};

/// The norm of a merger: torch's own numbers.
const MERGER_NORM: NormConfig = NormConfig { kind: NormKind::Layer { has_bias: true }, eps: 1e-5 };

/// The shape of a tower: HF `Glm4vVisionConfig`.
#[derive(Debug, Clone)]
pub(super) struct GlmConfig {
    block: BlockConfig,
    depth: usize,
    patch: PatchSize,
    /// Patches on a side of a square.
    merge: usize,
    out_hidden_size: usize,
    /// The inner width of the merger.
    merger_size: usize,
    rope_theta: f64,
    /// Places on a side of the grid of learned positions.
    positions_side: usize,
}

impl GlmConfig {
    /// Reads the fields of `vision_config`.
    ///
    /// # Errors
    /// [`ConfigError`] if a field has no valid value.
    pub(super) fn read(fields: &Fields) -> Result<Self, ConfigError> {
        const HEADS: &str = "num_heads";
        const IMAGE: &str = "image_size";
        let size = |field: &str, default: usize| {
            Ok::<usize, ConfigError>(fields.size(field)?.unwrap_or(default))
        };
        let (hidden_size, num_heads) = (size("hidden_size", 1_536)?, size(HEADS, 12)?);
        if !hidden_size.is_multiple_of(4 * num_heads) {
            let expected = format!("a divisor of {hidden_size}, with heads of a multiple of 4");
            return Err(fields.invalid(HEADS, &expected));
        }
        if fields.size("in_channels")?.is_some_and(|channels| channels != 3) {
            return Err(fields.invalid("in_channels", "3"));
        }
        let rope = fields.nested("rope_parameters")?;
        let kind = rope.as_ref().map(|rope| rope.text("rope_type")).transpose()?.flatten();
        if let (Some(rope), Some(kind)) = (&rope, kind)
            && !matches!(kind, "axial" | "default")
        {
            return Err(rope.invalid("rope_type", "\"axial\""));
        }
        let theta = rope.map(|rope| rope.positive("rope_theta")).transpose()?.flatten();
        let out_hidden_size = size("out_hidden_size", 4_096)?;
        let patch_size = size("patch_size", 14)?;
        let positions_side = size(IMAGE, 336)? / patch_size;
        if positions_side == 0 {
            return Err(fields.invalid(IMAGE, &format!("at least patch_size, {patch_size}")));
        }
        let eps = fields.positive("rms_norm_eps")?.unwrap_or(1e-5) as f32;
        Ok(Self {
            block: BlockConfig {
                names: &BLOCK,
                hidden_size,
                // The inner width of a layer is that of the output.
                intermediate_size: out_hidden_size,
                num_heads,
                norm: NormConfig { kind: NormKind::Rms, eps },
                activation: activation(fields, "hidden_act", Activation::Silu)?,
                qkv_bias: fields.flag_or("attention_bias", false)?,
                o_bias: false,
                mlp_bias: false,
                has_head_norms: false,
                has_neighbour_pairs: false,
            },
            depth: size("depth", 24)?,
            patch: PatchSize { side: patch_size, frames: size("temporal_patch_size", 2)? },
            merge: size("spatial_merge_size", 2)?,
            out_hidden_size,
            merger_size: size("intermediate_size", 13_696)?,
            rope_theta: theta.unwrap_or(10_000.0),
            positions_side,
        })
    }
}

/// A tower with its merger.
#[derive(Debug)]
pub(super) struct GlmTower {
    patch_embed: Linear,
    first_norm: Norm,
    pos_embed: EmbeddingTable,
    blocks: Vec<Block>,
    last_norm: Norm,
    merger: Merger,
    rotary: AxialRotary,
    pixels: Pixels,
    config: GlmConfig,
    device: Device,
}

impl Tower for GlmTower {
    type Prepared = Patches;

    fn prepare(&self, item: &MediaInput<'_>) -> Result<Patches, String> {
        let GlmConfig { patch, merge, .. } = self.config;
        Patches::of(item, &self.pixels, patch, merge, None)
    }

    fn num_embeds(&self, item: &Patches) -> usize {
        item.grid.order.len()
    }

    fn run(&self, items: Vec<Patches>) -> Result<Vec<EncoderOutput>, String> {
        let (grids, values): (Vec<Grid>, Vec<Vec<f32>>) =
            items.into_iter().map(|item| (item.grid, item.values)).unzip();
        let frames = sequences(grids.iter().flat_map(|grid| grid.frames.iter().copied()));
        let places: Vec<[u32; 2]> = grids.iter().flat_map(Grid::rows_and_columns).collect();
        let lines: Vec<u32> = (0..places.len() as u32).collect();
        let table = self.rotary.table(&places, &self.device).map_err(|error| error.to_string())?;
        let patches = rows(values.concat(), self.config.patch.len(), &self.device);
        let hidden = timed("patch_embed", || self.patch_embed.forward(patches, Adapters::none()));
        let side = self.config.positions_side;
        let taps: Vec<_> = grids.iter().flat_map(|grid| grid.cubic_taps(side)).collect();
        let mut hidden = add_positions(self.first_norm.forward(hidden), &taps, &self.pos_embed);
        let mut residual = None;
        for block in &self.blocks {
            let seen = Rows { sequences: &frames, rotary: Some((&lines, &table)), watchers: &[] };
            let (output, stream) = block.forward(hidden, residual, seen);
            (hidden, residual) = (output, Some(stream));
        }
        let merged = self.merger.forward(self.last_norm.forward(sum(hidden, residual)));
        Ok(apart(&grids, &merged, &[]))
    }

    fn mapped_bytes(&self) -> u64 {
        let blocks: u64 = self.blocks.iter().map(Block::mapped_bytes).sum();
        self.patch_embed.mapped_bytes() + blocks + self.merger.mapped_bytes()
    }
}

impl GlmTower {
    /// Loads the tower `module`.
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        module: &str,
        config: &GlmConfig,
        pixels: Pixels,
    ) -> Result<Self, ModelError> {
        let GlmConfig { ref block, patch, positions_side, .. } = *config;
        let hidden = block.hidden_size;
        let full = |name: &str| format!("{module}.{name}");
        let shape = [hidden, 3, patch.frames, patch.side, patch.side];
        let positions = positions_side * positions_side;
        let table = full("embeddings.position_embedding");
        let norm = |loader: &mut WeightLoader<'_>, name: &str| {
            Norm::load(loader, &full(name), hidden, block.norm)
        };
        Ok(Self {
            patch_embed: Linear::of_patches(loader, &full("patch_embed.proj"), &shape, true)?,
            first_norm: norm(loader, "post_conv_layernorm")?,
            pos_embed: embedding_table(loader, &table, positions, hidden)?,
            blocks: (0..config.depth)
                .map(|index| Block::load(loader, &full(&format!("blocks.{index}")), block))
                .collect::<Result<_, _>>()?,
            last_norm: norm(loader, "post_layernorm")?,
            merger: Merger::load(loader, module, config)?,
            rotary: AxialRotary::alike(config.rope_theta, block.head_dim()),
            pixels,
            config: config.clone(),
            device: loader.device().clone(),
        })
    }
}

/// Makes one vector of the text model's width of the patches of a square: a convolution, and HF
/// `Glm4vVisionPatchMerger`.
#[derive(Debug)]
struct Merger {
    downsample: Linear,
    proj: Linear,
    norm: Norm,
    inner: Linear,
    activation: Activation,
    down: Linear,
    unit: usize,
}

impl Merger {
    /// Maps `[rows, hidden_size]` to `[rows / unit, out_hidden_size]`.
    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let ([count, width], none) = (x.dims(), Adapters::none());
        timed("merger", || {
            let x = x.reshape([count / self.unit, width * self.unit]);
            let x = self.proj.forward(self.downsample.forward(x, none), none);
            let x = activate(self.norm.forward(x), Activation::Gelu);
            let inner = self.inner.forward_gated(x, self.activation, none);
            self.down.forward(inner, none)
        })
    }

    fn load(
        loader: &mut WeightLoader<'_>,
        module: &str,
        config: &GlmConfig,
    ) -> Result<Self, ModelError> {
        let GlmConfig { ref block, merge, out_hidden_size: width, merger_size, .. } = *config;
        let full = |name: &str| format!("{module}.merger.{name}");
        let part = |name: &str, outputs: usize| Part::new(full(name), outputs);
        let inner = [part("gate_proj", merger_size), part("up_proj", merger_size)];
        let shape = [width, block.hidden_size, merge];
        Ok(Self {
            downsample: Linear::of_squares(loader, &format!("{module}.downsample"), shape)?,
            proj: Linear::of_media(loader, &[part("proj", width)], width, false)?,
            norm: Norm::load(loader, &full("post_projection_norm"), width, MERGER_NORM)?,
            inner: Linear::of_media(loader, &inner, width, false)?,
            activation: block.activation,
            down: Linear::of_media(loader, &[part("down_proj", width)], merger_size, false)?,
            unit: merge * merge,
        })
    }

    fn mapped_bytes(&self) -> u64 {
        let layers = [&self.downsample, &self.proj, &self.inner, &self.down];
        layers.into_iter().map(Linear::mapped_bytes).sum()
    }
}
