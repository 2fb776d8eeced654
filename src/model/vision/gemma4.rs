//! The tower of Gemma 4 and EmbeddingGemma 2 (HF `Gemma4VisionModel`, `Gemma4MultimodalEmbedder`,
//! `EmbeddingGemma2MultimodalEmbedder`): images of any size, whose patches have learned positions
//! of rows and columns, and rotary ones. Squares of patches become their mean.
//!
//! | tensor | shape |
//! |---|---|
//! | pixels of an item | `[frames, height, width, 3]` |
//! | patches | `[rows, 3 · patch_size²]` |
//! | hidden states | `[rows, hidden_size]` |
//! | embeddings | `[rows / pooling², text_hidden_size]` |

use burn::tensor::{Device, Tensor};
use playhouse_kernels::{Activation, add, profile::timed, scale};

use super::batch::{AxialRotary, rows, sequences};
use super::encoder::Tower;
use super::gemma4_config::square;
use super::gemma4_layer::{Layer, LayerShape};
use super::grid::Grid;
use super::pixels::{PatchSize, Pixels};
use super::qwen::{Patches, apart};
use super::{activation, stored};
use crate::model::config::{ConfigError, Fields, NormConfig};
use crate::model::family::NormKind;
use crate::model::layers::{Linear, Norm, Part};
use crate::model::weight_loader::WeightLoader;
use crate::model::{Adapters, EncoderOutput, MediaInput, ModelError};

/// The places of the tower and of its projection: those of Gemma 4, and of EmbeddingGemma 2.
const TOWERS: &[&str] = &["model.vision_tower", "vision_tower"];
const EMBEDDERS: &[&str] = &["model.embed_vision", "embed_vision"];
/// The learned positions.
const POSITIONS: &str = "patch_embedder.position_embedding_table";

/// The shape of a tower: HF `Gemma4VisionConfig`.
#[derive(Debug, Clone)]
pub(super) struct Gemma4Config {
    layer: LayerShape,
    num_layers: usize,
    pub(super) patch: PatchSize,
    /// Patches on a side of a square, which is one embedding.
    pub(super) pooling: usize,
    /// Learned positions on each of both axes.
    pub(super) num_positions: usize,
    rope_theta: f64,
    /// Whether embeddings are shifted and scaled by learned numbers.
    standardizes: bool,
    outputs: usize,
}

impl Gemma4Config {
    /// Reads the fields of `vision_config`, for a text model of the width `outputs`.
    ///
    /// # Errors
    /// [`ConfigError`] if a field has no valid value.
    pub(super) fn read(fields: &Fields, outputs: usize) -> Result<Self, ConfigError> {
        const HEAD: &str = "head_dim";
        const HEADS: &str = "num_attention_heads";
        const KV_HEADS: &str = "num_key_value_heads";
        let size = |field: &str, default: usize| {
            Ok::<usize, ConfigError>(fields.size(field)?.unwrap_or(default))
        };
        let (num_heads, num_kv_heads) = (size(HEADS, 12)?, size(KV_HEADS, 12)?);
        if !num_heads.is_multiple_of(num_kv_heads) {
            return Err(fields.invalid(KV_HEADS, &format!("a divisor of {num_heads}")));
        }
        let head_dim = size(HEAD, 64)?;
        if !head_dim.is_multiple_of(4) {
            return Err(fields.invalid(HEAD, "a multiple of 4: half of a head for each axis"));
        }
        let [patch, pooling] = square(fields)?;
        Ok(Self {
            layer: LayerShape {
                hidden_size: size("hidden_size", 768)?,
                intermediate_size: size("intermediate_size", 3_072)?,
                num_heads,
                num_kv_heads,
                head_dim,
                eps: fields.positive("rms_norm_eps")?.unwrap_or(1e-6) as f32,
                activation: activation(fields, "hidden_activation", Activation::GeluTanh)?,
                clips: fields.flag_or("use_clipped_linears", false)?,
            },
            num_layers: size("num_hidden_layers", 16)?,
            patch: PatchSize { side: patch, frames: 1 },
            pooling,
            num_positions: size("position_embedding_size", 10_240)?,
            rope_theta: rope_theta(fields)?,
            standardizes: fields.flag_or("standardize", false)?,
            outputs,
        })
    }
}

/// Returns the base of the wavelengths. Each axis turns half of a head.
fn rope_theta(fields: &Fields) -> Result<f64, ConfigError> {
    const TYPE: &str = "rope_type";
    let rope = fields.nested("rope_parameters")?.unwrap_or_else(|| Fields::empty_in(fields));
    // As transformers, which reads "default" as the type of the class.
    if rope.text(TYPE)?.is_some_and(|name| !["axial", "default"].contains(&name)) {
        return Err(rope.invalid(TYPE, "\"axial\""));
    }
    Ok(rope.positive("rope_theta")?.unwrap_or(100.0))
}

/// A tower with its projection.
#[derive(Debug)]
pub(super) struct Gemma4Tower {
    patch_embed: Linear,
    /// For columns and for rows, the learned positions: `[num_positions, hidden_size]`.
    positions: [Vec<f32>; 2],
    layers: Vec<Layer>,
    /// The numbers that are taken from an embedding, and the factors of the rest.
    standard: Option<[Vec<f32>; 2]>,
    norm: Norm,
    projection: Linear,
    rotary: AxialRotary,
    pixels: Pixels,
    config: Gemma4Config,
    device: Device,
}

impl Tower for Gemma4Tower {
    type Prepared = Patches;

    fn prepare(&self, item: &MediaInput<'_>) -> Result<Patches, String> {
        let Gemma4Config { patch, pooling, num_positions, .. } = self.config;
        let patches = Patches::of(item, &self.pixels, patch, pooling, None)?;
        let [height, width] = patches.grid.size();
        match height.max(width) <= num_positions {
            true => Ok(patches),
            false => Err(format!("{height} x {width} patches, with {num_positions} positions")),
        }
    }

    fn num_embeds(&self, item: &Patches) -> usize {
        item.grid.order.len()
    }

    fn run(&self, items: Vec<Patches>) -> Result<Vec<EncoderOutput>, String> {
        let (grids, values): (Vec<Grid>, Vec<Vec<f32>>) =
            items.into_iter().map(|item| (item.grid, item.values)).unzip();
        let frames = sequences(grids.iter().flat_map(|grid| grid.frames.iter().copied()));
        let places = grids.iter().flat_map(Grid::rows_and_columns);
        let places: Vec<[u32; 2]> = places.map(|[row, column]| [column, row]).collect();
        let lines: Vec<u32> = (0..places.len() as u32).collect();
        let table = self.rotary.table(&places, &self.device).map_err(|error| error.to_string())?;
        let patches = rows(values.concat(), self.config.patch.len(), &self.device);
        let hidden = timed("patch_embed", || self.patch_embed.forward(patches, Adapters::none()));
        let width = self.config.layer.hidden_size;
        let positions = rows(self.positions_of(&places), width, &self.device);
        let hidden = self.layers.iter().fold(add(hidden, positions), |hidden, layer| {
            layer.forward(hidden, &frames, &lines, &table)
        });
        Ok(apart(&grids, &self.projected(hidden), &[]))
    }

    fn mapped_bytes(&self) -> u64 {
        let outer = self.patch_embed.mapped_bytes() + self.projection.mapped_bytes();
        outer + self.layers.iter().map(Layer::mapped_bytes).sum::<u64>()
    }
}

impl Gemma4Tower {
    /// Returns the learned positions of patches in these columns and rows, one after the other.
    fn positions_of(&self, places: &[[u32; 2]]) -> Vec<f32> {
        let width = self.config.layer.hidden_size;
        let row = |axis: usize, at: u32| {
            let first = at as usize * width;
            &self.positions[axis][first..first + width]
        };
        let of_place = |place: &[u32; 2]| {
            let sum = row(0, place[0]).iter().zip(row(1, place[1]));
            sum.map(|(of_column, of_row)| of_column + of_row).collect::<Vec<f32>>()
        };
        places.iter().flat_map(of_place).collect()
    }

    /// Maps the states of patches, whose squares follow each other, to embeddings.
    fn projected(&self, hidden: Tensor<2>) -> Tensor<2> {
        let ([count, width], unit) = (hidden.dims(), self.config.pooling.pow(2));
        timed("projector", || {
            let squares = hidden.reshape([count / unit, unit, width]);
            let means = squares.mean_dim(1).reshape([count / unit, width]);
            let scaled = scale(means, (width as f32).sqrt());
            let scaled = match &self.standard {
                None => scaled,
                Some([bias, factor]) => {
                    let row = |values: &[f32]| rows(values.to_vec(), width, &self.device);
                    scaled.sub(row(bias)).mul(row(factor))
                }
            };
            self.projection.forward(self.norm.forward(scaled), Adapters::none())
        })
    }

    /// Loads the tower.
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        config: &Gemma4Config,
        pixels: Pixels,
    ) -> Result<Self, ModelError> {
        let Gemma4Config { ref layer, patch, num_positions, outputs, .. } = *config;
        let width = layer.hidden_size;
        let module = stored(loader, TOWERS, POSITIONS);
        let embedder = stored(loader, EMBEDDERS, "embedding_projection.weight");
        let full = |name: &str| format!("{module}.{name}");
        let tables = full(POSITIONS);
        let mut of_columns = loader.values(&tables, &[2, num_positions, width])?;
        let of_rows = of_columns.split_off(num_positions * width);
        let standard = config.standardizes.then(|| {
            let [bias, factor] =
                ["std_bias", "std_scale"].map(|name| loader.values(&full(name), &[width]));
            Ok::<_, ModelError>([bias?, factor?])
        });
        let norm = NormConfig { kind: NormKind::RmsUnweighted, eps: layer.eps };
        let projection = [Part::new(format!("{embedder}.embedding_projection"), outputs)];
        Ok(Self {
            patch_embed: {
                let module = full("patch_embedder.input_proj");
                Linear::of_pixels(loader, &module, [width, patch.side], false)?
            },
            positions: [of_columns, of_rows],
            layers: (0..config.num_layers)
                .map(|index| Layer::load(loader, &full(&format!("encoder.layers.{index}")), layer))
                .collect::<Result<_, _>>()?,
            standard: standard.transpose()?,
            norm: Norm::load(loader, &format!("{embedder}.norm"), width, norm)?,
            projection: Linear::of_media(loader, &projection, width, false)?,
            rotary: AxialRotary::alike(config.rope_theta, layer.head_dim),
            // HF `Gemma4VisionPatchEmbedder` maps 0 to 1 to -1 to 1.
            pixels: pixels.mapped(|number| 2.0 * (number - 0.5)),
            config: config.clone(),
            device: loader.device().clone(),
        })
    }
}
