//! The tower of Ovis 2 as `vision_config` describes it, and the tokens of its images.

use playhouse_kernels::Activation;

use super::block::{BlockConfig, BlockNames, HeadNorms};
use super::llava::{placeholder, side};
use super::pixels::PatchSize;
use super::{VisionFamily, activation};
use crate::model::config::{ConfigError, Fields, NormConfig};
use crate::model::family::NormKind;

/// The marks around an image and its tiles, in the order of their tokens: the begin, the end of the
/// whole image, of a tile and of a row of tiles, and the end.
pub(super) const NUM_MARKS: usize = 5;
const BEGIN: usize = 0;
const END_OF_WHOLE: usize = 1;
const END_OF_TILE: usize = 2;
const END_OF_ROW: usize = 3;
const END: usize = 4;

/// HF `Ovis2VisionEncoderLayer`.
const BLOCK: BlockNames = BlockNames {
    attention_norm: "rms_norm1",
    mlp_norm: "rms_norm2",
    qkv: &["attention.q_proj", "attention.k_proj", "attention.v_proj"],
    o: "attention.out_proj",
    inner: &["ffn.gate_proj", "ffn.up_proj"],
    down: "ffn.down_proj",
    factors: None,
    head_norms: None,
};

/// The shape of a tower: HF `Ovis2VisionConfig`.
#[derive(Debug, Clone)]
pub(super) struct OvisConfig {
    pub(super) block: BlockConfig,
    pub(super) num_layers: usize,
    pub(super) image_size: usize,
    pub(super) patch: PatchSize,
    /// Patches on a side of a square that becomes one embedding.
    pub(super) stride: usize,
    /// Visual words, with the marks behind all others.
    pub(super) vocab_size: usize,
    /// The width of the text model.
    pub(super) outputs: usize,
}

impl OvisConfig {
    /// Reads the fields of `vision_config` for a text model of the width `outputs`.
    ///
    /// # Errors
    /// [`ConfigError`] if a field has no valid value.
    pub(super) fn read(fields: &Fields, outputs: usize) -> Result<Self, ConfigError> {
        const HEADS: &str = "num_attention_heads";
        const PATCH: &str = "patch_size";
        const STRIDE: &str = "hidden_stride";
        const TOKENS: &str = "tokenize_function";
        let size = |field: &str, default: usize| {
            Ok::<usize, ConfigError>(fields.size(field)?.unwrap_or(default))
        };
        let (hidden_size, num_heads) = (size("hidden_size", 1_024)?, size(HEADS, 8)?);
        if !hidden_size.is_multiple_of(num_heads) {
            return Err(fields.invalid(HEADS, &format!("a divisor of {hidden_size}")));
        }
        for (field, only) in [("num_channels", 3), ("num_visual_indicator_tokens", NUM_MARKS)] {
            if fields.size(field)?.is_some_and(|size| size != only) {
                return Err(fields.invalid(field, &only.to_string()));
            }
        }
        if fields.text(TOKENS)?.is_some_and(|name| name != "softmax") {
            return Err(fields.invalid(TOKENS, "\"softmax\""));
        }
        let (image_size, patch) = (side(fields, "image_size", 224)?, side(fields, PATCH, 14)?);
        if patch > image_size {
            return Err(fields.invalid(PATCH, &format!("at most image_size, {image_size}")));
        }
        let (stride, on_side) = (size(STRIDE, 1)?, image_size / patch);
        if !on_side.is_multiple_of(stride) {
            let expected = format!("a divisor of {on_side}, the patches on a side");
            return Err(fields.invalid(STRIDE, &expected));
        }
        let vocab_size = size("vocab_size", 16_384)?;
        if vocab_size <= NUM_MARKS {
            return Err(fields.invalid("vocab_size", &format!("more than {NUM_MARKS}")));
        }
        let eps = fields.positive("rms_norm_eps")?.unwrap_or(1e-5) as f32;
        let qkv_bias = fields.flag_or("qkv_bias", false)?;
        Ok(Self {
            block: BlockConfig {
                names: &BLOCK,
                hidden_size,
                intermediate_size: size("intermediate_size", 2_816)?,
                num_heads,
                num_kv_heads: num_heads,
                norm: NormConfig { kind: NormKind::Rms, eps },
                activation: activation(fields, "hidden_act", Activation::Silu)?,
                qkv_bias,
                // As in transformers.
                o_bias: qkv_bias,
                mlp_bias: fields.flag_or("mlp_bias", false)?,
                head_norms: HeadNorms::None,
                has_neighbour_pairs: false,
            },
            num_layers: size("num_hidden_layers", 24)?,
            image_size,
            patch: PatchSize { side: patch, frames: 1 },
            stride,
            vocab_size,
            outputs,
        })
    }

    /// Returns the patches on a side of an image.
    pub(super) fn side(&self) -> usize {
        self.image_size / self.patch.side
    }

    /// Returns the embeddings of a tile.
    pub(super) fn squares(&self) -> usize {
        (self.side() / self.stride).pow(2)
    }
}

/// The tokens of a part of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OvisToken {
    /// A mark, by its place among the five.
    Mark(usize),
    /// All tokens of the whole image, or of the next tile.
    Image,
}

/// The facts about the images of Ovis 2 that their processor needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OvisImages {
    /// The token in the places of embeddings.
    pub(crate) placeholder: u32,
    /// The tokens of the marks.
    pub(crate) marks: [u32; NUM_MARKS],
    /// The embeddings of a tile.
    pub(crate) squares: usize,
    /// Pixels on a side of a tile.
    pub(crate) image_size: usize,
}

impl OvisImages {
    /// Reads the facts of a model whose `config.json` has the fields `outer`.
    ///
    /// # Errors
    /// [`ConfigError`] if a field has no valid value.
    pub(crate) fn read(outer: &Fields) -> Result<Self, ConfigError> {
        const MARKS: &str = "visual_indicator_token_ids";
        let vision = outer.nested("vision_config")?.unwrap_or_else(|| Fields::empty_in(outer));
        let config = OvisConfig::read(&vision, 1)?;
        let marks = match outer.value(MARKS) {
            None => Some(std::array::from_fn(|at| 151_666 + at as u32)),
            Some(_) => {
                let ids = outer.indices(MARKS)?.into_iter().map(u32::try_from);
                ids.collect::<Result<Vec<u32>, _>>().ok().and_then(|ids| ids.try_into().ok())
            }
        };
        Ok(Self {
            placeholder: placeholder(outer, VisionFamily::Ovis2)?,
            marks: marks.ok_or_else(|| outer.invalid(MARKS, "five token ids"))?,
            squares: config.squares(),
            image_size: config.image_size,
        })
    }

    /// Returns the tokens that take embeddings.
    pub(super) fn placeholders(&self) -> Vec<u32> {
        std::iter::once(self.placeholder).chain(self.marks).collect()
    }

    /// Returns the number of images of an item with so many tiles. A single tile is the whole
    /// image.
    pub(crate) fn with_whole(num_tiles: usize) -> usize {
        if num_tiles > 1 { num_tiles.saturating_add(1) } else { num_tiles }
    }

    /// Returns the embeddings of an image with tiles in these rows and columns. Each tile has
    /// `squares` embeddings.
    pub(crate) fn num_embeds(squares: usize, [rows, columns]: [usize; 2]) -> usize {
        let num_tiles = rows * columns;
        // The begin, the end of the whole image and the end; and marks between tiles.
        let num_marks = 3 + num_tiles.saturating_sub(1);
        Self::with_whole(num_tiles) * squares + num_marks
    }

    /// Returns the parts of an image in order: HF `Ovis2Processor.replace_image_token`.
    pub(crate) fn tokens([rows, columns]: [usize; 2]) -> Vec<OvisToken> {
        let mut tokens =
            vec![OvisToken::Mark(BEGIN), OvisToken::Image, OvisToken::Mark(END_OF_WHOLE)];
        let num_tiles = if rows * columns > 1 { rows * columns } else { 0 };
        for tile in 1..=num_tiles {
            tokens.push(OvisToken::Image);
            match tile {
                last if last == num_tiles => {}
                tile if tile % columns == 0 => tokens.push(OvisToken::Mark(END_OF_ROW)),
                _ => tokens.push(OvisToken::Mark(END_OF_TILE)),
            }
        }
        tokens.push(OvisToken::Mark(END));
        tokens
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::model::config::fields;

    #[test]
    fn an_image_has_marks_around_its_tiles() {
        for grid in [[1, 1], [1, 2], [3, 1], [2, 3]] {
            let tokens = OvisImages::tokens(grid);
            let images = tokens.iter().filter(|token| **token == OvisToken::Image).count();
            assert_eq!(images, OvisImages::with_whole(grid[0] * grid[1]), "{grid:?}");
            let count = images * 9 + tokens.len() - images;
            assert_eq!(OvisImages::num_embeds(9, grid), count, "{grid:?}");
        }
        let marks = OvisImages::tokens([2, 2]).into_iter().filter_map(|token| match token {
            OvisToken::Mark(mark) => Some(mark),
            OvisToken::Image => None,
        });
        assert_eq!(marks.collect::<Vec<_>>(), [0, 1, 2, 3, 2, 4]);
    }

    #[test]
    fn tokens_have_the_numbers_of_the_class() {
        let images = OvisImages::read(&fields(json!({}))).unwrap();
        assert_eq!(images.placeholders(), (151_665..151_671).collect::<Vec<_>>());
        let few = fields(json!({ "visual_indicator_token_ids": [1, 2, 3] }));
        let why = OvisImages::read(&few).unwrap_err().to_string();
        assert!(why.contains("`visual_indicator_token_ids` is [1,2,3]; expected five"), "{why}");
    }

    #[test]
    fn fields_without_a_valid_value_are_named() {
        let refused = |config: Value| OvisConfig::read(&fields(config), 8).unwrap_err().to_string();
        for (field, value) in [
            ("num_attention_heads", json!(7)),
            ("num_channels", json!(1)),
            ("num_visual_indicator_tokens", json!(4)),
            ("tokenize_function", json!("gumbel_argmax")),
            ("patch_size", json!(225)),
            ("hidden_stride", json!(3)),
            ("vocab_size", json!(5)),
        ] {
            let why = refused(json!({ field: value }));
            assert!(why.contains(&format!("`{field}` is")), "{why}");
        }
    }
}
