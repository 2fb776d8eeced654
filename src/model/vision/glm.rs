//! The towers of GLM-4.1V and its successors (HF `Glm4vVisionModel`) and of GLM-OCR (HF
//! `GlmOcrVisionModel`): images of any size. Their places are in rotary embeddings. All but GLM-OCR
//! have learned positions, too, which are sampled for each size.
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

use super::batch::{AxialRotary, rows, sequences};
use super::block::{Block, BlockConfig, BlockNames, HeadNorms, Rows, sum};
use super::encoder::Tower;
use super::grid::Grid;
use super::pixels::{PatchSize, Pixels};
use super::qwen::{Patches, add_positions, apart};
use super::{VisionFamily, activation};
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
    head_norms: Some(["attn.q_norm", "attn.k_norm"]),
};

/// The norm of a merger: torch's own numbers.
const MERGER_NORM: NormConfig = NormConfig { kind: NormKind::Layer { has_bias: true }, eps: 1e-5 };

/// The shape of a tower: HF `Glm4vVisionConfig`, `GlmOcrVisionConfig`.
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
    /// Places on a side of the grid of learned positions, if there are some.
    positions_side: Option<usize>,
}

impl GlmConfig {
    /// Reads the fields of `vision_config`.
    ///
    /// # Errors
    /// [`ConfigError`] if a field has no valid value.
    pub(super) fn read(fields: &Fields, family: VisionFamily) -> Result<Self, ConfigError> {
        const HEADS: &str = "num_heads";
        let is_ocr = family == VisionFamily::GlmOcr;
        let size = |field: &str, default: usize| {
            Ok::<usize, ConfigError>(fields.size(field)?.unwrap_or(default))
        };
        let [hidden_size, num_heads, out_hidden_size, inner_size] = match is_ocr {
            true => [1_024, 16, 1_536, 4_096],
            false => [1_536, 12, 4_096, 13_696],
        };
        let (hidden_size, num_heads) = (size("hidden_size", hidden_size)?, size(HEADS, num_heads)?);
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
        let out_hidden_size = size("out_hidden_size", out_hidden_size)?;
        let inner_size = size("intermediate_size", inner_size)?;
        let patch_size = size("patch_size", 14)?;
        let has_bias = fields.flag_or("attention_bias", is_ocr)?;
        let eps = fields.positive("rms_norm_eps")?.unwrap_or(1e-5) as f32;
        Ok(Self {
            block: BlockConfig {
                names: &BLOCK,
                hidden_size,
                // But in GLM-OCR, the inner width of a layer is that of the output.
                intermediate_size: if is_ocr { inner_size } else { out_hidden_size },
                num_heads,
                num_kv_heads: num_heads,
                norm: NormConfig { kind: NormKind::Rms, eps },
                activation: activation(fields, "hidden_act", Activation::Silu)?,
                qkv_bias: has_bias,
                o_bias: is_ocr && has_bias,
                mlp_bias: is_ocr && has_bias,
                head_norms: if is_ocr { HeadNorms::OfEach { eps } } else { HeadNorms::None },
                has_neighbour_pairs: false,
            },
            depth: size("depth", 24)?,
            patch: PatchSize { side: patch_size, frames: size("temporal_patch_size", 2)? },
            merge: size("spatial_merge_size", 2)?,
            out_hidden_size,
            merger_size: if is_ocr { 3 * out_hidden_size } else { inner_size },
            rope_theta: theta.unwrap_or(10_000.0),
            positions_side: match is_ocr {
                true => None,
                false => Some(positions_side(fields, patch_size)?),
            },
        })
    }
}

/// Returns the places on a side of the grid of learned positions.
fn positions_side(fields: &Fields, patch_size: usize) -> Result<usize, ConfigError> {
    const IMAGE: &str = "image_size";
    match fields.size(IMAGE)?.unwrap_or(336) / patch_size {
        0 => Err(fields.invalid(IMAGE, &format!("at least patch_size, {patch_size}"))),
        side => Ok(side),
    }
}

/// The learned positions of a tower, and the norm before them.
#[derive(Debug)]
struct Positions {
    norm: Norm,
    table: EmbeddingTable,
    /// Places on a side of the grid.
    side: usize,
}

/// A tower with its merger.
#[derive(Debug)]
pub(super) struct GlmTower {
    patch_embed: Linear,
    positions: Option<Positions>,
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
        let mut hidden =
            timed("patch_embed", || self.patch_embed.forward(patches, Adapters::none()));
        if let Some(Positions { norm, table, side }) = &self.positions {
            let taps: Vec<_> = grids.iter().flat_map(|grid| grid.cubic_taps(*side)).collect();
            hidden = add_positions(norm.forward(hidden), &taps, table);
        }
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
        let norm = |loader: &mut WeightLoader<'_>, name: &str| {
            Norm::load(loader, &full(name), hidden, block.norm)
        };
        let positions = |side: usize| {
            let table = full("embeddings.position_embedding");
            Ok::<_, ModelError>(Positions {
                norm: norm(loader, "post_conv_layernorm")?,
                table: embedding_table(loader, &table, side * side, hidden)?,
                side,
            })
        };
        let positions = positions_side.map(positions).transpose()?;
        Ok(Self {
            patch_embed: Linear::of_patches(loader, &full("patch_embed.proj"), &shape, true)?,
            positions,
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
