//! Images of Molmo 2: the whole image in the size of a crop, and crops that overlap (HF
//! `Molmo2ImageProcessor`, `Molmo2Processor`).

use image::RgbImage;
use playhouse_actors::{
    logic::request::{
        ids::TokenId,
        media::{Modality, ProcessedMedia},
    },
    ports::{ExpandedPrompt, MediaError},
};
use serde_json::{Map, Value};

use super::fields::{self, Size};
use super::plain_resize::bilinear;
use super::resize::Pixels;
use super::{item, tiles};
use crate::media::processor::FamilyProcessor;
use crate::model::ConfigError;
use crate::model::config::{ConfigSource, Fields};
use crate::model::vision::{Molmo2Layout, ProcessorConfig};
use crate::model_files;

/// The text of an image in a message.
const IMAGE: &str = "<|image|>";
/// The file of the folder that has the texts of special tokens.
const TOKENIZER: &str = "tokenizer_config.json";

/// The processor of one model.
#[derive(Debug)]
pub(super) struct Molmo2 {
    image_token: Vec<TokenId>,
    layout: Molmo2Layout,
    /// The token before a prompt with images.
    begin: TokenId,
    /// The rows and columns of crops that an image may have, in the order of HF `select_tiling`.
    grids: Vec<[usize; 2]>,
}

impl Molmo2 {
    /// Reads the processor of a model whose `config.json` has the fields `outer`.
    pub(super) fn read(
        outer: &Fields,
        processor: &ProcessorConfig,
        encode: &dyn Fn(&str) -> Vec<TokenId>,
    ) -> Result<Self, ConfigError> {
        const RESAMPLE: &str = "resample";
        let fields = &processor.image;
        let column = || match *encode(Molmo2Layout::COLUMN) {
            [token] => Ok(token),
            _ => {
                let text = Molmo2Layout::COLUMN;
                Err(outer.missing("image_col_id", &format!("the id of the token {text}")))
            }
        };
        let layout = Molmo2Layout::read(outer, processor, column)?;
        let side = layout.side;
        let square = |side: usize| Size::Exact { height: side, width: side };
        if fields::size(fields, "size", true, square(378))? != square(side) {
            let expected = format!("height and width {side}, the tower's image_size");
            return Err(fields.invalid("size", &expected));
        }
        fields::require_resize(fields)?;
        if fields.count(RESAMPLE)?.is_some_and(|filter| filter != 2) {
            return Err(fields.invalid(RESAMPLE, "2 (bilinear)"));
        }
        let begin = match begin(outer)?.map(|text| encode(&text)).as_deref() {
            Some([token]) => *token,
            _ => {
                let expected = format!("the text of one token in {TOKENIZER}");
                return Err(outer.missing("bos_token", &expected));
            }
        };
        let grids = grids(layout.most_crops);
        Ok(Self { image_token: encode(IMAGE), layout, begin, grids })
    }

    /// Returns the rows and columns of crops of an image of `[height, width]`: those to which it
    /// grows least, or if it must shrink, shrinks least. In floats of 32 bits, as in torch. An
    /// image that is smaller than the margins has a size below 0 there, too.
    fn grid(&self, size: [usize; 2]) -> [usize; 2] {
        let margin = self.layout.margin() as f32;
        tiles::least_scaled_by(self.grids.iter().copied(), |grid| {
            let of = |axis: usize| {
                (grid[axis] * self.layout.step()) as f32 / (size[axis] as f32 - margin)
            };
            of(0).min(of(1)).into()
        })
    }
}

/// Returns the rows and columns of at most `most` crops: fewer crops first, and of as many, fewer
/// rows.
fn grids(most: usize) -> Vec<[usize; 2]> {
    let columns = |rows: usize| (1..=most / rows).map(move |columns| [rows, columns]);
    let mut all: Vec<[usize; 2]> = (1..=most).flat_map(columns).collect();
    all.sort_by_key(|[rows, columns]| (rows * columns, *rows));
    all
}

/// Returns the text of the token before a prompt: that of the tokenizer, or else the one behind an
/// answer.
fn begin(outer: &Fields) -> Result<Option<String>, ConfigError> {
    let Some(folder) = outer.path().parent() else { return Ok(None) };
    let path = folder.join(TOKENIZER);
    if !model_files::exists(&path) {
        return Ok(None);
    }
    let fields = ConfigSource::file(&path)?;
    let text = |field: &str| {
        let value = fields.value(field)?;
        value.as_str().or_else(|| value.get("content")?.as_str()).map(str::to_owned)
    };
    Ok(text("bos_token").or_else(|| text("eos_token")))
}

impl FamilyProcessor for Molmo2 {
    fn modalities(&self) -> &[Modality] {
        &[Modality::Image]
    }

    fn max_item_embeds(&self) -> usize {
        let all = self.grids.iter().map(|grid| self.layout.num_tokens(*grid));
        all.max().unwrap_or_default()
    }

    fn placeholder(&self, _modality: Modality) -> &str {
        IMAGE
    }

    fn placeholder_tokens(&self, modality: Modality) -> &[TokenId] {
        match modality {
            Modality::Image => &self.image_token,
            _ => &[],
        }
    }

    fn tokens(&self, media: &ProcessedMedia) -> Vec<TokenId> {
        let (tokens, marks) = (self.layout.tokens(), self.layout.marks(tiles::grid(media)));
        marks.into_iter().map(|mark| tokens[mark as usize]).collect()
    }

    fn is_placeholder(&self, token: TokenId) -> bool {
        self.layout.tokens().contains(&token)
    }

    /// Puts a token before a prompt with images, as HF `Molmo2Processor` and vLLM do.
    fn join(&self, prompt: &mut ExpandedPrompt) {
        if !prompt.features.is_empty() && prompt.tokens.first() != Some(&self.begin) {
            prompt.tokens.insert(0, self.begin);
            prompt.features.iter_mut().for_each(|item| item.offset += 1);
        }
    }

    fn image(
        &self,
        image: &RgbImage,
        _kwargs: &Map<String, Value>,
    ) -> Result<ProcessedMedia, MediaError> {
        let pixels = Pixels::of(image);
        let (side, step) = (self.layout.side, self.layout.step());
        let grid = self.grid([pixels.height, pixels.width]);
        let canvas = bilinear(&pixels, grid.map(|crops| crops * step + self.layout.margin()));
        let [rows, columns] = grid;
        let crop = |at: usize| {
            let from = [at / columns * step, at % columns * step].map(|at| at as isize);
            canvas.part(from, [side; 2], [0; 3])
        };
        let whole = bilinear(&pixels, [side; 2]);
        let all = std::iter::once(whole).chain((0..rows * columns).map(crop)).collect();
        Ok(tiles::with_grid(item(all, self.layout.num_tokens(grid), None), grid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The list is that of HF `select_tiling`.
    #[test]
    fn grids_of_few_crops_come_first() {
        let four = [[1, 1], [1, 2], [2, 1], [1, 3], [3, 1], [1, 4], [2, 2], [4, 1]];
        assert_eq!(grids(4), four);
    }
}
