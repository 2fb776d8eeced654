//! The tower of DeepSeek-OCR 2 (vLLM's `DeepseekOCR2ForCausalLM`, HF `DeepseekOcr2VisionModel`):
//! SAM, and layers of Qwen2 over its features. Learned queries follow the features of a view. They
//! see all features and the queries before them, and their states become embeddings.
//!
//! | tensor | shape |
//! |---|---|
//! | pixels of an item | `[1, base, base, 3]`, and `[tiles, side, side, 3]` |
//! | states of a view | `[squares + squares, width]`: features, then queries |
//! | embeddings | `[tiles · squares + squares + 1, text_hidden_size]`: tiles, whole, a mark |

use burn::tensor::{Device, Tensor};
use playhouse_kernels::{
    Activation, EmbeddingTable, KernelError, RotaryTable, embedding, profile::timed,
};

use super::VisionFamily;
use super::batch::{rows, sequences};
use super::block::{Block, BlockConfig, BlockNames, HeadNorms, Rows, Watchers, sum};
use super::deepseek_ocr::{END, PROJECTOR, SAM, Views};
use super::deepseek_ocr_config::{OcrViews, PATCH, require, require_projector, sam};
use super::encoder::Tower;
use super::pixels::Pixels;
use super::sam::{Sam, SamConfig};
use super::vit::table;
use crate::model::config::{ConfigError, Fields, NormConfig};
use crate::model::family::NormKind;
use crate::model::layers::rotary::default_frequencies;
use crate::model::layers::{Linear, Norm, Part};
use crate::model::weight_loader::{WeightLoader, refused};
use crate::model::{Adapters, EncoderOutput, MediaInput, ModelError};

/// The places of the layers, and of the queries of whole images and of tiles.
const QWEN2: &str = "model.qwen2_model.model.model";
const QUERIES: [&str; 2] = ["model.qwen2_model.query_1024", "model.qwen2_model.query_768"];
/// The rotary base of Qwen2's layers.
const THETA: f64 = 1_000_000.0;

/// HF `Qwen2DecoderLayer`.
const BLOCK: BlockNames = BlockNames {
    attention_norm: "input_layernorm",
    mlp_norm: "post_attention_layernorm",
    qkv: &["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
    o: "self_attn.o_proj",
    inner: &["mlp.gate_proj", "mlp.up_proj"],
    down: "mlp.down_proj",
    factors: None,
    head_norms: None,
};

/// The shape of a tower.
#[derive(Debug, Clone)]
pub(super) struct Ocr2Config {
    sam: SamConfig,
    block: BlockConfig,
    num_layers: usize,
    views: OcrViews,
    /// The width of the text model.
    outputs: usize,
}

impl Ocr2Config {
    /// Reads the fields of `outer` and of its `vision_config` for a text model of the width
    /// `outputs`. `processor` are the fields of the processor.
    ///
    /// # Errors
    /// [`ConfigError`] if a field has no valid value.
    pub(super) fn read(
        outer: &Fields,
        vision: &Fields,
        processor: &Fields,
        outputs: usize,
    ) -> Result<Self, ConfigError> {
        const HEADS: &str = "heads";
        const KV_HEADS: &str = "kv_heads";
        require(outer, "tile_tag", "2D")?;
        let or_empty = |nested: Option<Fields>| nested.unwrap_or_else(|| Fields::empty_in(vision));
        let widths = or_empty(vision.nested("width")?);
        let mut sam = sam(vision, &or_empty(widths.nested("sam_vit_b")?))?;
        let fields = or_empty(widths.nested("qwen2-0-5b")?);
        let size = |field: &str, default: usize| {
            Ok::<usize, ConfigError>(fields.size(field)?.unwrap_or(default))
        };
        let (hidden_size, num_heads) = (size("dim", 896)?, size(HEADS, 14)?);
        if !hidden_size.is_multiple_of(2 * num_heads) {
            let expected = format!("a divisor of half of {hidden_size}");
            return Err(fields.invalid(HEADS, &expected));
        }
        let num_kv_heads = size(KV_HEADS, 2)?;
        if !num_heads.is_multiple_of(num_kv_heads) {
            return Err(fields.invalid(KV_HEADS, &format!("a divisor of {num_heads}")));
        }
        // As in vLLM: the last of `downsample_channels` does not count.
        sam.channels[2] = hidden_size;
        require_projector(outer, [hidden_size, outputs])?;
        Ok(Self {
            sam,
            block: BlockConfig {
                names: &BLOCK,
                hidden_size,
                intermediate_size: size("intermediate_size", 4_864)?,
                num_heads,
                num_kv_heads,
                norm: NormConfig { kind: NormKind::Rms, eps: 1e-6 },
                activation: Activation::Silu,
                qkv_bias: true,
                o_bias: false,
                mlp_bias: false,
                head_norms: HeadNorms::None,
                has_neighbour_pairs: false,
            },
            num_layers: size("layers", 24)?,
            views: OcrViews::read(VisionFamily::DeepseekOcr2, processor)?,
            outputs,
        })
    }
}

/// The two encoders with the projector behind them.
#[derive(Debug)]
pub(super) struct Ocr2Tower {
    sam: Sam,
    /// The queries of a whole image and of a tile.
    queries: [EmbeddingTable; 2],
    /// A line for each place of a view and for each of its queries.
    rotary: RotaryTable,
    blocks: Vec<Block>,
    last_norm: Norm,
    projector: Linear,
    end: EmbeddingTable,
    pixels: Pixels,
    config: Ocr2Config,
    device: Device,
}

impl Tower for Ocr2Tower {
    type Prepared = Views;

    fn prepare(&self, item: &MediaInput<'_>) -> Result<Views, String> {
        Views::read(item, &self.pixels, self.config.sam.patch, self.config.views)
    }

    fn num_embeds(&self, item: &Views) -> usize {
        self.config.views.num_embeds(item.grid)
    }

    fn run(&self, items: Vec<Views>) -> Result<Vec<EncoderOutput>, String> {
        let wholes: Vec<f32> = items.iter().flat_map(|item| &item.whole).copied().collect();
        let tiles: Vec<f32> = items.iter().flat_map(|item| &item.tiles).copied().collect();
        let mut wholes = self.views(wholes, 0).into_iter();
        let mut tiles =
            if tiles.is_empty() { Vec::new() } else { self.views(tiles, 1) }.into_iter();
        let end = embedding(&self.end, &[0]);
        let output = |item: &Views| {
            let views = tiles.by_ref().take(item.num_tiles()).chain(wholes.next());
            let parts = views.chain(std::iter::once(end.clone())).collect();
            EncoderOutput { embeddings: Tensor::cat(parts, 0), by_layer: Vec::new() }
        };
        Ok(items.iter().map(output).collect())
    }

    fn mapped_bytes(&self) -> u64 {
        let blocks = self.blocks.iter().map(Block::mapped_bytes).sum::<u64>();
        self.sam.mapped_bytes() + blocks + self.projector.mapped_bytes()
    }
}

impl Ocr2Tower {
    /// Returns the embeddings of each of the views with these patches, `[squares, outputs]`. `size`
    /// is 0 for whole images, and 1 for tiles.
    fn views(&self, patches: Vec<f32>, size: usize) -> Vec<Tensor<2>> {
        let patches = rows(patches, self.config.sam.patch.len(), &self.device);
        let seen = self.sam.forward(patches, size);
        let squares = self.config.views.squares()[size].pow(2);
        let ids: Vec<u32> = (0..squares as u32).collect();
        let queries = embedding(&self.queries[size], &ids);
        let [count, width] = seen.dims();
        let view = |at: usize| {
            let own = seen.clone().slice([at * squares..(at + 1) * squares, 0..width]);
            self.embeddings(Tensor::cat(vec![own, queries.clone()], 0), squares)
        };
        (0..count / squares).map(view).collect()
    }

    /// Returns the embeddings of a view with as many features as queries.
    fn embeddings(&self, mut hidden: Tensor<2>, squares: usize) -> Tensor<2> {
        let [count, width] = hidden.dims();
        let lines: Vec<u32> = (0..count as u32).collect();
        let watchers: Vec<Watchers> = (squares..count)
            .map(|query| Watchers { rows: query..query + 1, seen: 0..query + 1 })
            .collect();
        let sequences = sequences([squares]);
        let mut residual = None;
        for block in &self.blocks {
            let rotary = Some((&*lines, &self.rotary));
            let seen = Rows { sequences: &sequences, rotary, watchers: &watchers };
            let (output, stream) = block.forward(hidden, residual, seen);
            (hidden, residual) = (output, Some(stream));
        }
        let states = self.last_norm.forward(sum(hidden, residual));
        let queries = states.slice([squares..count, 0..width]);
        timed("projector", || self.projector.forward(queries, Adapters::none()))
    }

    /// Loads the tower.
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        config: &Ocr2Config,
        pixels: Pixels,
    ) -> Result<Self, ModelError> {
        let Ocr2Config { ref sam, ref block, views, outputs, .. } = *config;
        let width = block.hidden_size;
        let sides = [views.base, views.tile].map(|side| side / PATCH);
        let behind = ["net_2", "net_3"].map(|name| format!("{SAM}.{name}"));
        let projector = [Part::new(PROJECTOR.to_owned(), outputs)];
        let counts = views.squares().map(|side| side.pow(2));
        let queries = |loader: &mut WeightLoader<'_>, size: usize| {
            table(loader, &format!("{}.weight", QUERIES[size]), 2, [counts[size], width])
        };
        let rotary = rotary(2 * counts[0].max(counts[1]), block.head_dim(), loader.device());
        Ok(Self {
            sam: Sam::load(loader, SAM, [&behind[0], &behind[1]], &sides, sam)?,
            queries: [queries(loader, 0)?, queries(loader, 1)?],
            rotary: rotary.map_err(refused(QWEN2))?,
            blocks: (0..config.num_layers)
                .map(|index| Block::load(loader, &format!("{QWEN2}.layers.{index}"), block))
                .collect::<Result<_, _>>()?,
            last_norm: Norm::load(loader, &format!("{QWEN2}.norm"), width, block.norm)?,
            projector: Linear::of_media(loader, &projector, width, true)?,
            end: table(loader, END, 1, [1, outputs])?,
            pixels,
            config: config.clone(),
            device: loader.device().clone(),
        })
    }
}

/// Returns a rotary embedding with a line for each of `count` positions.
fn rotary(count: usize, head_dim: usize, device: &Device) -> Result<RotaryTable, KernelError> {
    let frequencies = default_frequencies(THETA, head_dim);
    let table = |function: fn(f64) -> f64| -> Vec<f32> {
        let line = |at: usize| {
            let angles = frequencies.iter().map(move |frequency| at as f32 * frequency);
            angles.map(|angle| function(f64::from(angle)) as f32).collect::<Vec<f32>>()
        };
        (0..count).flat_map(line).collect()
    };
    RotaryTable::new(table(f64::cos), table(f64::sin), head_dim, device)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::model::config::fields;

    #[test]
    fn the_parts_of_a_tower_fit_each_other() {
        let read = |outer: Value, width: Value| {
            let vision = fields(json!({ "width": width }));
            let read = Ocr2Config::read(&fields(outer), &vision, &fields(json!({})), 1_280);
            read.map_err(|error| error.to_string())
        };
        let whole = read(json!({}), json!({})).unwrap();
        assert_eq!(whole.sam.channels, [256, 512, 896]);
        assert_eq!((whole.block.head_dim(), whole.num_layers), (64, 24));
        for (field, value) in [("heads", 5), ("kv_heads", 3)] {
            let why = read(json!({}), json!({ "qwen2-0-5b": { field: value } })).unwrap_err();
            assert!(why.contains(field), "{why}");
        }
        let other = json!({ "projector_config": { "input_dim": 2_048 } });
        let why = read(other, json!({})).unwrap_err();
        assert!(why.contains("`projector_config.input_dim` is 2048; expected 896"), "{why}");
    }

    #[test]
    fn a_line_has_the_angles_of_its_position() {
        // As many elements as half of a head has.
        assert_eq!(default_frequencies(THETA, 8).len(), 4);
        assert!(rotary(3, 8, &Device::flex()).is_ok());
    }
}
