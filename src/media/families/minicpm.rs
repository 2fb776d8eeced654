//! Images of MiniCPM-V 4.6: any size, in whole squares of patches. Slices of a large image follow a
//! smaller form of it (HF `MiniCPMV4_6ImageProcessor`, `MiniCPMV4_6Processor`). Each of them is
//! encoded by itself.

use std::sync::Arc;

use image::RgbImage;
use playhouse_actors::{
    logic::request::{
        ids::TokenId,
        media::{MediaTensor, Modality, ProcessedMedia},
    },
    ports::{ExpandedPrompt, MediaError},
};
use serde_json::{Map, Value};

use super::llava::invalid;
use super::resize::{Filter, Pixels};
use super::{Encode, fields, item, tiles, token_of};
use crate::media::processor::FamilyProcessor;
use crate::model::ConfigError;
use crate::model::config::Fields;
use crate::model::vision::{MiniCpmImages, ProcessorConfig};

/// The most slices that a config may ask for.
const SLICES_MAX: usize = 64;
/// How many times the embeddings of a square image a narrow one may have.
const NARROW: usize = 4;

/// The processor of one model.
pub(super) struct MiniCpm {
    image_token: [TokenId; 1],
    /// The tokens before and after an image, and those before and after a slice.
    marks: [[TokenId; 2]; 2],
    /// The tokens around the number of an image, if it has one.
    numbers: Option<[TokenId; 2]>,
    /// Pixels on a side of a square, which is one embedding.
    square: usize,
    /// Pixels on a side of a slice, if it is as high as wide.
    side: usize,
    /// The most slices of an image; one if none is cut.
    most_slices: usize,
    filter: Filter,
    encode: Arc<Encode>,
}

impl MiniCpm {
    /// Reads the processor of a model whose `config.json` has the fields `outer`.
    pub(super) fn read(
        outer: &Fields,
        processor: &ProcessorConfig,
        encode: Arc<Encode>,
    ) -> Result<Self, ConfigError> {
        const PATCH: &str = "patch_size";
        const SIDE: &str = "scale_resolution";
        const SLICES: &str = "max_slice_nums";
        let (fields, whole) = (&processor.image, &processor.whole);
        let images = MiniCpmImages::read(outer, fields)?;
        if fields.size(PATCH)?.unwrap_or(14) != images.patch {
            return Err(fields.invalid(PATCH, &format!("{}, that of the tower", images.patch)));
        }
        fields::require_resize(fields)?;
        let (side, square) = (fields.size(SIDE)?.unwrap_or(448), images.side());
        if side < square {
            return Err(fields.invalid(SIDE, &format!("at least {square}, a square")));
        }
        let most_slices = fields.size(SLICES)?.unwrap_or(9);
        if most_slices > SLICES_MAX {
            return Err(fields.invalid(SLICES, &format!("1 to {SLICES_MAX}")));
        }
        let mark = |field: &str, text: &str| token_of(whole, field, text, &*encode);
        let numbers = match fields.flag_or("use_image_id", true)? {
            true => Some([
                mark("image_id_start_token", "<image_id>")?,
                mark("image_id_end_token", "</image_id>")?,
            ]),
            false => None,
        };
        Ok(Self {
            image_token: [images.placeholder],
            marks: [
                [mark("image_start_token", "<image>")?, mark("image_end_token", "</image>")?],
                [mark("slice_start_token", "<slice>")?, mark("slice_end_token", "</slice>")?],
            ],
            numbers,
            square,
            side,
            most_slices: if fields.flag_or("slice_mode", true)? { most_slices } else { 1 },
            filter: fields::filter(fields, Filter::Bicubic)?,
            encode,
        })
    }

    /// Returns a side in whole parts of `part`, to the nearest one.
    fn rounded(side: f64, part: usize) -> usize {
        ((side / part as f64).round_ties_even() as usize * part).max(part)
    }

    /// Returns the size of an image or a slice of `[height, width]`: HF `find_best_resize`.
    fn target(&self, [height, width]: [f64; 2], may_grow: bool) -> [usize; 2] {
        let side = self.side as f64;
        let is_large = height * width > side * side;
        let size = match is_large || may_grow {
            true => {
                let ratio = width / height;
                let height = (side / ratio.sqrt()).trunc();
                [height, (height * ratio).trunc()]
            }
            false => [height, width],
        };
        size.map(|side| Self::rounded(side, self.square))
    }

    /// Returns the rows and columns of slices of an image of `[height, width]`, if it is cut: HF
    /// `get_sliced_grid`.
    fn grid(&self, [height, width]: [usize; 2]) -> Option<[usize; 2]> {
        let ratio = (width as f64 / height as f64).ln();
        let area = (width * height) as f64 / (self.side * self.side) as f64;
        let count = (area.ceil() as usize).min(self.most_slices);
        if count <= 1 {
            return None;
        }
        let (mut best, mut nearest) = ([1, 1], f64::INFINITY);
        for count in count - 1..=count + 1 {
            if count == 1 || count > self.most_slices {
                continue;
            }
            for rows in (1..=count).filter(|rows| count.is_multiple_of(*rows)) {
                let columns = count / rows;
                let difference = (ratio - (columns as f64 / rows as f64).ln()).abs();
                if difference < nearest || difference == nearest && rows > best[0] {
                    (best, nearest) = ([rows, columns], difference);
                }
            }
        }
        Some(best)
    }

    /// Returns the size of each slice of an image: HF `get_refine_size`.
    fn slice_size(&self, size: [usize; 2], grid: [usize; 2]) -> [usize; 2] {
        let of = |axis: usize| {
            let whole = Self::rounded(size[axis] as f64, grid[axis]);
            whole as f64 / grid[axis] as f64
        };
        self.target([of(0), of(1)], true)
    }

    /// Returns the embeddings of an image or a slice in pixels.
    fn num_embeds(&self, [height, width]: [usize; 2]) -> usize {
        height / self.square * (width / self.square)
    }

    /// Returns the embeddings of a tensor of one image.
    fn embeds_of(&self, tensor: &MediaTensor) -> usize {
        match *tensor.shape {
            [1, height, width, 3] => self.num_embeds([height, width]),
            _ => 0,
        }
    }
}

impl FamilyProcessor for MiniCpm {
    fn modalities(&self) -> &[Modality] {
        &[Modality::Image]
    }

    fn max_item_embeds(&self) -> usize {
        NARROW * (self.side / self.square).pow(2)
    }

    fn placeholder(&self, _modality: Modality) -> &str {
        "<|image_pad|>"
    }

    fn placeholder_tokens(&self, _modality: Modality) -> &[TokenId] {
        &self.image_token
    }

    fn tokens(&self, media: &ProcessedMedia) -> Vec<TokenId> {
        let columns = media.tensors.iter().find_map(|tensor| match *tensor.shape {
            [_, columns, 0] => Some(columns),
            _ => None,
        });
        let mut tokens = Vec::new();
        let images = media.tensors.iter().map(|tensor| self.embeds_of(tensor));
        for (index, count) in images.filter(|count| *count > 0).enumerate() {
            let is_next_row =
                index > 1 && columns.is_some_and(|all| (index - 1).is_multiple_of(all));
            if is_next_row {
                tokens.extend((self.encode)("\n"));
            }
            let [start, end] = self.marks[usize::from(index > 0)];
            tokens.push(start);
            tokens.extend(std::iter::repeat_n(self.image_token[0], count));
            tokens.push(end);
        }
        tokens
    }

    fn is_placeholder(&self, token: TokenId) -> bool {
        token == self.image_token[0]
    }

    fn parts(&self, media: &Arc<ProcessedMedia>) -> Vec<Arc<ProcessedMedia>> {
        if media.tensors.len() <= 1 {
            return vec![Arc::clone(media)];
        }
        let part = |tensor: &MediaTensor| {
            let num_embeds = self.embeds_of(tensor);
            let tensors = vec![tensor.clone()];
            (num_embeds > 0).then(|| {
                Arc::new(ProcessedMedia { tensors, num_embeds, ..ProcessedMedia::clone(media) })
            })
        };
        media.tensors.iter().filter_map(part).collect()
    }

    /// Adds the number of each image in its prompt.
    fn join(&self, prompt: &mut ExpandedPrompt) {
        let Some([start, end]) = self.numbers else { return };
        let tokens = std::mem::take(&mut prompt.tokens);
        let (mut from, mut number) = (0, 0);
        for feature in &mut prompt.features {
            let before = feature.offset.saturating_sub(1);
            // Slices have another mark before them.
            if before >= from && tokens.get(before) == Some(&self.marks[0][0]) {
                prompt.tokens.extend_from_slice(&tokens[from..before]);
                prompt.tokens.push(start);
                prompt.tokens.extend((self.encode)(&number.to_string()));
                prompt.tokens.push(end);
                (from, number) = (before, number + 1);
            }
            feature.offset = prompt.tokens.len() + feature.offset - from;
        }
        prompt.tokens.extend_from_slice(&tokens[from..]);
    }

    fn image(
        &self,
        image: &RgbImage,
        _kwargs: &Map<String, Value>,
    ) -> Result<ProcessedMedia, MediaError> {
        let pixels = Pixels::of(image);
        let before = [pixels.height, pixels.width];
        let grid = self.grid(before);
        let size = self.target(before.map(|side| side as f64), grid.is_none());
        let slice = grid.map(|grid| (grid, self.slice_size(before, grid)));
        let most = self.max_item_embeds();
        for [height, width] in slice.iter().map(|(_, size)| *size).chain([size]) {
            if self.num_embeds([height, width]) > most {
                let reason =
                    format!("it becomes {height} x {width} pixels, more than {most} embeddings");
                return Err(invalid(&reason));
            }
        }
        let one = |pixels: Pixels| {
            let num_embeds = self.num_embeds([pixels.height, pixels.width]);
            item(vec![pixels], num_embeds, None)
        };
        let Some((grid, [height, width])) = slice else {
            return Ok(one(pixels.resized(self.filter, size)));
        };
        let whole = [grid[0] * height, grid[1] * width];
        let refined = pixels.clone().resized(self.filter, whole);
        let mut media = one(pixels.resized(self.filter, size));
        for at in 0..grid[0] * grid[1] {
            let from = [at / grid[1] * height, at % grid[1] * width].map(|at| at as isize);
            let slice = one(refined.part(from, [height, width], [0; 3]));
            media.num_embeds += slice.num_embeds;
            media.tensors.extend(slice.tensors);
        }
        Ok(tiles::with_grid(media, grid))
    }
}
