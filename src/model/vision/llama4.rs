//! The tower of Llama 4 (HF `Llama4VisionModel`, `Llama4MultiModalProjector`): tiles of one size,
//! whose places are in rotary embeddings and in learned positions.
//!
//! | tensor | shape |
//! |---|---|
//! | pixels of an item | `[tiles, image_size, image_size, 3]` |
//! | patches | `[tiles · patches, 3 · patch_size²]` |
//! | hidden states | `[tiles · (patches + 1), hidden_size]`; the class token comes last |
//! | embeddings | `[tiles · patches / merge², text_hidden_size]` |

use burn::tensor::{Device, Tensor};
use playhouse_kernels::{
    Activation, EmbeddingTable, activate, add, embedding, profile::timed, select_rows,
};

use super::batch::{AxialRotary, rows, sequences};
use super::block::{Block, BlockConfig, BlockNames, HeadNorms, Rows, sum};
use super::encoder::Tower;
use super::llava::side;
use super::pixels::{Images, PatchSize, Pixels};
use super::vit::table;
use crate::model::config::{ConfigError, Fields, NormConfig};
use crate::model::family::NormKind;
use crate::model::layers::{Linear, Norm, Part};
use crate::model::weight_loader::WeightLoader;
use crate::model::{Adapters, EncoderOutput, MediaInput, ModelError};

const BLOCK: BlockNames = BlockNames {
    attention_norm: "input_layernorm",
    mlp_norm: "post_attention_layernorm",
    qkv: &["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
    o: "self_attn.o_proj",
    inner: &["mlp.fc1"],
    down: "mlp.fc2",
    factors: None,
    head_norms: None,
};
/// HF `Llama4VisionModel` has torch's own numbers, whatever `norm_eps` is.
const NORM: NormConfig = NormConfig { kind: NormKind::Layer { has_bias: true }, eps: 1e-5 };
const MODULE: &str = "vision_model";

/// The shape of a tower: HF `Llama4VisionConfig`.
#[derive(Debug, Clone)]
pub(super) struct Llama4Config {
    block: BlockConfig,
    num_layers: usize,
    pub(super) image_size: usize,
    patch: PatchSize,
    /// Patches on a side of a square, which is one embedding.
    merge: usize,
    projector_inputs: usize,
    projector_outputs: usize,
    rope_theta: f64,
    /// The width of the text model.
    outputs: usize,
}

impl Llama4Config {
    /// Reads the fields of `vision_config`, for a text model of the width `outputs`.
    ///
    /// # Errors
    /// [`ConfigError`] if a field has no valid value.
    pub(super) fn read(fields: &Fields, outputs: usize) -> Result<Self, ConfigError> {
        const HEADS: &str = "num_attention_heads";
        const RATIO: &str = "pixel_shuffle_ratio";
        let size = |field: &str, default: usize| {
            Ok::<usize, ConfigError>(fields.size(field)?.unwrap_or(default))
        };
        let (hidden_size, num_heads) = (size("hidden_size", 768)?, size(HEADS, 16)?);
        if !hidden_size.is_multiple_of(4 * num_heads) {
            let expected = format!("a divisor of {hidden_size}, with heads of a multiple of 4");
            return Err(fields.invalid(HEADS, &expected));
        }
        if fields.size("num_channels")?.is_some_and(|channels| channels != 3) {
            return Err(fields.invalid("num_channels", "3"));
        }
        if fields.text("hidden_act")?.is_some_and(|name| name != "gelu") {
            return Err(fields.invalid("hidden_act", "\"gelu\""));
        }
        if fields.flag_or("multi_modal_projector_bias", false)? {
            return Err(fields.invalid("multi_modal_projector_bias", "false"));
        }
        let (image_size, patch_size) =
            (side(fields, "image_size", 448)?, side(fields, "patch_size", 14)?);
        let merge = 1.0 / fields.positive(RATIO)?.unwrap_or(0.5);
        let patches = image_size / patch_size;
        let is_whole = merge.fract() == 0.0 && (1.0..=64.0).contains(&merge);
        if !is_whole || patches == 0 || !patches.is_multiple_of(merge as usize) {
            let expected = format!("1 divided by a divisor of {patches}, the patches on a side");
            return Err(fields.invalid(RATIO, &expected));
        }
        let rope = fields.nested("rope_parameters")?;
        let theta = match &rope {
            Some(rope) => rope.positive("rope_theta")?,
            None => fields.positive("rope_theta")?,
        };
        let kind = rope.as_ref().map(|rope| rope.text("rope_type")).transpose()?.flatten();
        if let (Some(rope), Some(kind)) = (&rope, kind)
            && !matches!(kind, "axial" | "default")
        {
            return Err(rope.invalid("rope_type", "\"default\""));
        }
        Ok(Self {
            block: BlockConfig {
                names: &BLOCK,
                hidden_size,
                intermediate_size: size("intermediate_size", 5_632)?,
                num_heads,
                num_kv_heads: num_heads,
                norm: NORM,
                activation: Activation::Gelu,
                qkv_bias: true,
                o_bias: true,
                mlp_bias: true,
                head_norms: HeadNorms::None,
                has_neighbour_pairs: true,
            },
            num_layers: size("num_hidden_layers", 34)?,
            image_size,
            patch: PatchSize { side: patch_size, frames: 1 },
            merge: merge as usize,
            projector_inputs: size("projector_input_dim", 4_096)?,
            projector_outputs: size("projector_output_dim", 4_096)?,
            rope_theta: theta.unwrap_or(10_000.0),
            outputs,
        })
    }

    /// Returns the patches on a side of a tile.
    fn side(&self) -> usize {
        self.image_size / self.patch.side
    }

    /// Returns the embeddings of a tile.
    pub(super) fn num_embeds(&self) -> usize {
        (self.side() / self.merge).pow(2)
    }

    /// Returns the patches of a tile in squares that become one embedding.
    fn in_squares(&self) -> impl Iterator<Item = u32> + '_ {
        let (side, merge) = (self.side(), self.merge);
        let (squares, unit) = (side / merge, merge * merge);
        (0..side * side).map(move |at| {
            let (square, inside) = (at / unit, at % unit);
            let row = square / squares * merge + inside / merge;
            let column = square % squares * merge + inside % merge;
            (row * side + column) as u32
        })
    }

    /// Returns the places of a tile's rows: columns first, counted from 1. The class token has
    /// none.
    fn places(&self) -> Vec<[u32; 2]> {
        let side = self.side() as u32;
        let patches = (0..side * side).map(|at| [at % side + 1, at / side + 1]);
        patches.chain([[0, 0]]).collect()
    }
}

/// A tower with its projector.
#[derive(Debug)]
pub(super) struct Llama4Tower {
    patch_embed: Linear,
    class_embed: EmbeddingTable,
    pos_embed: EmbeddingTable,
    first_norm: Norm,
    blocks: Vec<Block>,
    last_norm: Norm,
    adapter: [Linear; 2],
    projector: Linear,
    rotary: AxialRotary,
    pixels: Pixels,
    config: Llama4Config,
    device: Device,
}

/// The patches of an item's tiles.
#[derive(Debug)]
pub(super) struct Tiles {
    count: usize,
    values: Vec<f32>,
}

impl Tower for Llama4Tower {
    type Prepared = Tiles;

    fn prepare(&self, item: &MediaInput<'_>) -> Result<Tiles, String> {
        let images = Images::read(item.tensors.first())?;
        let Llama4Config { image_size, patch, .. } = self.config;
        let values = self.pixels.tiles(images, patch, image_size)?;
        Ok(Tiles { count: images.count, values })
    }

    fn num_embeds(&self, item: &Tiles) -> usize {
        item.count * self.config.num_embeds()
    }

    fn run(&self, items: Vec<Tiles>) -> Result<Vec<EncoderOutput>, String> {
        let (counts, values): (Vec<usize>, Vec<Vec<f32>>) =
            items.into_iter().map(|item| (item.count, item.values)).unzip();
        let tiles = counts.iter().sum();
        let patches = rows(values.concat(), self.config.patch.len(), &self.device);
        let all = self.projected(self.features(patches, tiles)?);
        let ([_, width], num_embeds, mut first) = (all.dims(), self.config.num_embeds(), 0);
        let of_item = |count: usize| {
            let from = first;
            first += count * num_embeds;
            let embeddings = all.clone().slice([from..first, 0..width]);
            EncoderOutput { embeddings, by_layer: Vec::new() }
        };
        Ok(counts.into_iter().map(of_item).collect())
    }

    fn mapped_bytes(&self) -> u64 {
        let blocks: u64 = self.blocks.iter().map(Block::mapped_bytes).sum();
        let [fc1, fc2] = &self.adapter;
        let layers = [&self.patch_embed, fc1, fc2, &self.projector];
        blocks + layers.into_iter().map(Linear::mapped_bytes).sum::<u64>()
    }
}

impl Llama4Tower {
    /// Returns the states after the last layer, in squares.
    fn features(&self, patches: Tensor<2>, tiles: usize) -> Result<Tensor<2>, String> {
        let num_patches = self.config.side().pow(2);
        let rows = num_patches + 1;
        let hidden = timed("patch_embed", || self.patch_embed.forward(patches, Adapters::none()));
        // The class token is a row behind all patches, and comes last in each tile.
        let class = (tiles * num_patches) as u32;
        let order = (0..tiles).flat_map(|tile| {
            let patches = tile * num_patches..(tile + 1) * num_patches;
            patches.map(|row| row as u32).chain([class])
        });
        let order: Vec<u32> = order.collect();
        let hidden = Tensor::cat(vec![hidden, embedding(&self.class_embed, &[0])], 0);
        let lines: Vec<u32> = (0..tiles).flat_map(|_| 0..rows as u32).collect();
        let hidden = add(select_rows(hidden, &order), embedding(&self.pos_embed, &lines));
        let table = self.rotary.table(&self.config.places(), &self.device);
        let table = table.map_err(|error| error.to_string())?;
        let sequences = sequences(std::iter::repeat_n(rows, tiles));
        let seen = Rows { sequences: &sequences, rotary: Some((&lines, &table)), watchers: &[] };
        let (mut hidden, mut residual) = (self.first_norm.forward(hidden), None);
        for block in &self.blocks {
            let (output, stream) = block.forward(hidden, residual, seen);
            (hidden, residual) = (output, Some(stream));
        }
        let of_tile =
            |tile: usize| self.config.in_squares().map(move |patch| (tile * rows) as u32 + patch);
        let kept: Vec<u32> = (0..tiles).flat_map(of_tile).collect();
        Ok(self.last_norm.forward(select_rows(sum(hidden, residual), &kept)))
    }

    /// Maps `[rows, hidden_size]` to `[rows / merge², text_hidden_size]`.
    fn projected(&self, x: Tensor<2>) -> Tensor<2> {
        let ([count, width], unit) = (x.dims(), self.config.merge.pow(2));
        timed("projector", || {
            let squares = x.reshape([count / unit, width * unit]);
            let adapted = self.adapter.iter().fold(squares, |x, layer| {
                activate(layer.forward(x, Adapters::none()), Activation::Gelu)
            });
            self.projector.forward(adapted, Adapters::none())
        })
    }

    /// Loads the tower and its projector.
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        config: &Llama4Config,
        pixels: Pixels,
    ) -> Result<Self, ModelError> {
        let Llama4Config { ref block, patch, projector_inputs, projector_outputs, .. } = *config;
        let hidden = block.hidden_size;
        let full = |name: &str| format!("{MODULE}.{name}");
        let linear =
            |loader: &mut WeightLoader<'_>, name: String, [outputs, inputs]: [usize; 2]| {
                Linear::of_media(loader, &[Part::new(name, outputs)], inputs, false)
            };
        let norm =
            |loader: &mut WeightLoader<'_>, name| Norm::load(loader, &full(name), hidden, NORM);
        let positions = config.side().pow(2) + 1;
        let adapter = [
            [projector_inputs, hidden * config.merge.pow(2)],
            [projector_outputs, projector_inputs],
        ];
        let projector = "multi_modal_projector.linear_1".to_owned();
        Ok(Self {
            patch_embed: linear(loader, full("patch_embedding.linear"), [hidden, patch.len()])?,
            class_embed: table(loader, &full("class_embedding"), 1, [1, hidden])?,
            pos_embed: {
                table(loader, &full("positional_embedding_vlm"), 2, [positions, hidden])?
            },
            first_norm: norm(loader, "layernorm_pre")?,
            blocks: (0..config.num_layers)
                .map(|index| Block::load(loader, &full(&format!("model.layers.{index}")), block))
                .collect::<Result<_, _>>()?,
            last_norm: norm(loader, "layernorm_post")?,
            adapter: [
                linear(loader, full("vision_adapter.mlp.fc1"), adapter[0])?,
                linear(loader, full("vision_adapter.mlp.fc2"), adapter[1])?,
            ],
            projector: linear(loader, projector, [config.outputs, projector_outputs])?,
            rotary: AxialRotary::alike(config.rope_theta, block.head_dim()),
            pixels,
            config: config.clone(),
            device: loader.device().clone(),
        })
    }
}
