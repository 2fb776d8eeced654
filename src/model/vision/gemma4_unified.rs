//! The images of Gemma 4 without a tower (HF `Gemma4UnifiedVisionEmbedder`): each square of pixels
//! becomes one embedding by itself.
//!
//! | tensor | shape |
//! |---|---|
//! | pixels of an item | `[frames, height, width, 3]` |
//! | squares | `[rows, 3 · side²]` |
//! | hidden states | `[rows, mm_embed_dim]` |
//! | embeddings | `[rows, text_hidden_size]` |

use burn::tensor::Device;
use playhouse_kernels::{WeightVector, add, layer_norm, profile::timed};

use super::batch::rows;
use super::encoder::Tower;
use super::gemma4_config;
use super::grid::Grid;
use super::pixels::{PatchSize, Pixels};
use super::qwen::{Patches, apart};
use crate::model::config::{ConfigError, Fields, NormConfig};
use crate::model::family::NormKind;
use crate::model::layers::{Linear, Norm, Part, by_patches};
use crate::model::weight_loader::WeightLoader;
use crate::model::{Adapters, EncoderOutput, MediaInput, ModelError};

const EMBEDDER: &str = "model.vision_embedder";
const PROJECTION: &str = "model.embed_vision.embedding_projection";
/// The numbers of torch's layer norms.
const NORM: NormConfig = NormConfig { kind: NormKind::Layer { has_bias: true }, eps: 1e-5 };

/// The shape of the embedder: HF `Gemma4UnifiedVisionConfig`.
#[derive(Debug, Clone)]
pub(super) struct UnifiedConfig {
    /// Pixels on a side of a patch.
    pub(super) patch: usize,
    /// Patches on a side of a square.
    pub(super) pooling: usize,
    /// Learned positions of squares on each of both axes.
    pub(super) num_positions: usize,
    hidden_size: usize,
    eps: f32,
    outputs: usize,
}

impl UnifiedConfig {
    /// Reads the fields of `vision_config`, for a text model of the width `outputs`.
    ///
    /// # Errors
    /// [`ConfigError`] if a field has no valid value.
    pub(super) fn read(fields: &Fields, outputs: usize) -> Result<Self, ConfigError> {
        const SIDE: &str = "model_patch_size";
        const OUTPUTS: &str = "output_proj_dims";
        let size = |field: &str, default: usize| {
            Ok::<usize, ConfigError>(fields.size(field)?.unwrap_or(default))
        };
        let [patch, pooling] = gemma4_config::square(fields)?;
        let side = patch * pooling;
        if size(SIDE, side)? != side {
            return Err(fields.invalid(SIDE, &format!("{side}: patch_size in squares")));
        }
        let hidden_size = size("mm_embed_dim", 3_840)?;
        if size(OUTPUTS, 3_840)? != hidden_size {
            return Err(fields.invalid(OUTPUTS, &format!("{hidden_size}, as mm_embed_dim")));
        }
        Ok(Self {
            patch,
            pooling,
            num_positions: size("mm_posemb_size", 1_120)?,
            hidden_size,
            eps: fields.positive("rms_norm_eps")?.unwrap_or(1e-6) as f32,
            outputs,
        })
    }

    /// Returns the size of a square, which is one patch here.
    fn square(&self) -> PatchSize {
        PatchSize { side: self.patch * self.pooling, frames: 1 }
    }
}

/// The embedder with its projection.
#[derive(Debug)]
pub(super) struct UnifiedEmbedder {
    /// The weight and the bias of the norm of pixels.
    first_norm: [WeightVector; 2],
    dense: Linear,
    second_norm: Norm,
    /// For each position, those of columns and of rows: `[num_positions, 2, hidden_size]`.
    positions: Vec<f32>,
    position_norm: Norm,
    norm: Norm,
    projection: Linear,
    pixels: Pixels,
    config: UnifiedConfig,
    device: Device,
}

impl Tower for UnifiedEmbedder {
    type Prepared = Patches;

    fn prepare(&self, item: &MediaInput<'_>) -> Result<Patches, String> {
        let patches = Patches::of(item, &self.pixels, self.config.square(), 1, None)?;
        let ([height, width], most) = (patches.grid.size(), self.config.num_positions);
        match height.max(width) <= most {
            true => Ok(patches),
            false => Err(format!("{height} x {width} squares, with {most} positions")),
        }
    }

    fn num_embeds(&self, item: &Patches) -> usize {
        item.grid.order.len()
    }

    fn run(&self, items: Vec<Patches>) -> Result<Vec<EncoderOutput>, String> {
        let (grids, values): (Vec<Grid>, Vec<Vec<f32>>) =
            items.into_iter().map(|item| (item.grid, item.values)).unzip();
        let (none, width) = (Adapters::none(), self.config.hidden_size);
        let squares = rows(values.concat(), self.config.square().len(), &self.device);
        let places = grids.iter().flat_map(Grid::rows_and_columns);
        let positions: Vec<f32> = places.flat_map(|place| self.position(place)).collect();
        let positions = rows(positions, width, &self.device);
        let hidden = timed("patch_embed", || {
            let [weight, bias] = &self.first_norm;
            let normed = layer_norm(squares, Some(weight), Some(bias), NORM.eps);
            let hidden = self.second_norm.forward(self.dense.forward(normed, none));
            self.position_norm.forward(add(hidden, positions))
        });
        let embeddings =
            timed("projector", || self.projection.forward(self.norm.forward(hidden), none));
        Ok(apart(&grids, &embeddings, &[]))
    }

    fn mapped_bytes(&self) -> u64 {
        self.dense.mapped_bytes() + self.projection.mapped_bytes()
    }
}

impl UnifiedEmbedder {
    /// Returns the learned position of a square in this row and column.
    fn position(&self, [row, column]: [u32; 2]) -> Vec<f32> {
        let width = self.config.hidden_size;
        let of_axis = |axis: usize, at: u32| {
            let first = (at as usize * 2 + axis) * width;
            &self.positions[first..first + width]
        };
        of_axis(0, column).iter().zip(of_axis(1, row)).map(|(x, y)| x + y).collect()
    }

    /// Loads the embedder.
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        config: &UnifiedConfig,
        pixels: Pixels,
    ) -> Result<Self, ModelError> {
        let (width, side) = (config.hidden_size, config.square().side);
        let full = |name: &str| format!("{EMBEDDER}.{name}");
        // Stored by pixels, and computed by channels.
        let mut by_channels = |end: &str| {
            let name = full(&format!("patch_ln1.{end}"));
            let stored = loader.values(&name, &[3 * side * side])?;
            loader.on_device(&name, by_patches(&stored, [side * side, 3]))
        };
        let first_norm = [by_channels("weight")?, by_channels("bias")?];
        let shape = [config.num_positions, 2, width];
        let norm = NormConfig { kind: NormKind::RmsUnweighted, eps: config.eps };
        let projection = [Part::new(PROJECTION.to_owned(), config.outputs)];
        Ok(Self {
            first_norm,
            dense: Linear::of_pixels(loader, &full("patch_dense"), [width, side], true)?,
            second_norm: Norm::load(loader, &full("patch_ln2"), width, NORM)?,
            positions: loader.values(&full("pos_embedding"), &shape)?,
            position_norm: Norm::load(loader, &full("pos_norm"), width, NORM)?,
            norm: Norm::load(loader, &full("norm"), width, norm)?,
            projection: Linear::of_media(loader, &projection, width, false)?,
            pixels,
            config: config.clone(),
            device: loader.device().clone(),
        })
    }
}
