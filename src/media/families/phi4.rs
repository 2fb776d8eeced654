//! Images and sounds of Phi-4-multimodal (HF `Phi4MultimodalImageProcessor`,
//! `Phi4MultimodalProcessor`). An image becomes tiles, with white at the end of its last ones, and
//! once more a whole in the size of a tile.

use std::sync::Arc;

use image::RgbImage;
use playhouse_actors::{
    logic::request::{
        ids::TokenId,
        media::{MediaDtype, MediaTensor, Modality, ProcessedMedia},
    },
    ports::{ExpandedPrompt, MediaError},
};
use serde_json::{Map, Value};

use super::fields::{self, Size};
use super::phi4_sounds::{SoundProcessor, beside_images};
use super::resize::{Filter, Pixels};
use super::unfiltered::{Neighbours, resized};
use super::{item, tiles};
use crate::media::processor::FamilyProcessor;
use crate::model::ConfigError;
use crate::model::config::Fields;
use crate::model::vision::{Phi4Config, Phi4Tiles, PixelScale, ProcessorConfig, UNIT_SCALE};

/// The most tiles that a config may allow.
const TILES_MAX: usize = 1_024;
/// The shortest side of a resized image.
const SIDE_MIN: usize = 10;
const WHITE: [u8; 3] = [255; 3];
/// The processor of the authors' code. Its tiles are those of Pillow up to its version 12.
const CLASS_OF_AUTHORS: &str = "Phi4MMImageProcessor";

/// The possible texts of the token in the places of an item: that of transformers, and the name of
/// the token in the authors' folder.
const IMAGE_TEXTS: [&str; 2] = ["<|image|>", "<|endoftext10|>"];
const SOUND_TEXTS: [&str; 2] = ["<|audio|>", "<|endoftext11|>"];

/// The processor of one model.
pub(super) struct Phi4 {
    image_token: [TokenId; 1],
    sound_token: [TokenId; 1],
    /// The texts of both tokens.
    texts: [&'static str; 2],
    /// Pixels on a side of a tile, and patches.
    side: usize,
    patches: usize,
    patch_size: usize,
    most_tiles: usize,
    scale: PixelScale,
    /// The filter of the tiles, and the pixels of the whole image.
    filter: Filter,
    neighbours: Neighbours,
    sounds: SoundProcessor,
}

impl Phi4 {
    /// Reads the processor of a model whose `config.json` has the fields `outer`.
    pub(super) fn read(
        outer: &Fields,
        processor: &ProcessorConfig,
        encode: &dyn Fn(&str) -> Vec<TokenId>,
    ) -> Result<Self, ConfigError> {
        const SIZE: &str = "size";
        const TILES: &str = "dynamic_hd";
        const PATCH: &str = "patch_size";
        const RESAMPLE: &str = "resample";
        let images = Phi4Config::read(outer, 1)?;
        let (fields, side) = (&processor.image, images.image_size);
        let size = fields::size(fields, SIZE, true, Size::Exact { height: 448, width: 448 })?;
        if size != (Size::Exact { height: side, width: side }) {
            return Err(fields.invalid(SIZE, &format!("{side} x {side}, the tower's image_size")));
        }
        if fields.size(PATCH)?.unwrap_or(14) != images.patch_size() {
            let expected = format!("{}, that of the tower", images.patch_size());
            return Err(fields.invalid(PATCH, &expected));
        }
        let most_tiles = fields.size(TILES)?.unwrap_or(36);
        if most_tiles > TILES_MAX {
            return Err(fields.invalid(TILES, &format!("an integer from 1 to {TILES_MAX}")));
        }
        let neighbours = match fields::filter(fields, Filter::Bicubic)? {
            Filter::Bilinear => Neighbours::Bilinear,
            Filter::Bicubic => Neighbours::Bicubic,
            Filter::Lanczos | Filter::BilinearOfPillow | Filter::BicubicOfPillow => {
                return Err(fields.invalid(RESAMPLE, "2 (bilinear) or 3 (bicubic)"));
            }
        };
        let sounds = SoundProcessor::read(outer, processor)?;
        let text = |texts: [&'static str; 2], token: TokenId| {
            let is_it = |text: &&str| *encode(text) == [token];
            texts.into_iter().find(is_it).unwrap_or(texts[0])
        };
        let (image_token, sound_token) = (images.placeholder, sounds.placeholder());
        Ok(Self {
            image_token: [image_token],
            sound_token: [sound_token],
            texts: [text(IMAGE_TEXTS, image_token), text(SOUND_TEXTS, sound_token)],
            side,
            patches: images.patches(),
            patch_size: images.patch_size(),
            most_tiles,
            scale: processor.scale(UNIT_SCALE)?,
            filter: match fields::class(fields)?.as_deref() {
                Some(CLASS_OF_AUTHORS) => Filter::BilinearOfPillow,
                _ => Filter::Bilinear,
            },
            neighbours,
            sounds,
        })
    }

    /// Returns the tiles of an image of `[height, width]`, and its size in them.
    fn tiles(&self, size: [usize; 2]) -> Result<(Phi4Tiles, [usize; 2]), MediaError> {
        let grid = size.map(|side| side.div_ceil(self.side));
        let grid = match grid[0] * grid[1] > self.most_tiles {
            true => tiles::nearest_ratio(size, self.side, [1, self.most_tiles]),
            false => grid,
        };
        let whole = grid.map(|tiles| tiles * self.side);
        let inner = fitted(size, whole);
        if inner[0].min(inner[1]) < SIDE_MIN {
            let reason = format!(
                "an image of {} x {} pixels becomes one of {} x {}; expected at least {SIDE_MIN} \
                 on each side",
                size[1], size[0], inner[1], inner[0]
            );
            return Err(MediaError::Invalid { modality: Modality::Image, reason });
        }
        let padding = [0, 1].map(|axis| (whole[axis] - inner[axis]) / self.patch_size);
        let used = [0, 1].map(|axis| grid[axis] * self.patches - padding[axis]);
        Ok((Phi4Tiles { grid, used }, inner))
    }
}

/// Returns the size of an image of `[height, width]` that fills one side of `whole`.
fn fitted([height, width]: [usize; 2], whole: [usize; 2]) -> [usize; 2] {
    let of_height = whole[0] as f64 / height as f64;
    let of_width = whole[1] as f64 / width as f64;
    match of_width < of_height {
        true => [(height as f64 * of_width) as usize, whole[1]],
        false => [whole[0], (width as f64 * of_height) as usize],
    }
}

impl FamilyProcessor for Phi4 {
    fn modalities(&self) -> &[Modality] {
        &[Modality::Image, Modality::Audio]
    }

    fn max_item_embeds(&self) -> usize {
        // One column of tiles has the most ends of rows.
        let grid = [self.most_tiles, 1];
        let tiles = Phi4Tiles { grid, used: grid.map(|tiles| tiles * self.patches) };
        tiles.num_embeds(self.patches).max(self.sounds.most_embeds())
    }

    fn placeholder(&self, modality: Modality) -> &str {
        match modality {
            Modality::Audio => self.texts[1],
            _ => self.texts[0],
        }
    }

    fn placeholder_tokens(&self, modality: Modality) -> &[TokenId] {
        match modality {
            Modality::Audio => &self.sound_token,
            _ => &self.image_token,
        }
    }

    fn tokens(&self, media: &ProcessedMedia) -> Vec<TokenId> {
        vec![self.placeholder_tokens(media.modality)[0]; media.num_embeds]
    }

    fn is_placeholder(&self, token: TokenId) -> bool {
        [self.image_token, self.sound_token].contains(&[token])
    }

    fn join(&self, prompt: &mut ExpandedPrompt) {
        if !prompt.features.iter().any(|it| it.media.modality == Modality::Image) {
            return;
        }
        for feature in &mut prompt.features {
            if feature.media.modality == Modality::Audio && !feature.media.is_embedded() {
                feature.media = Arc::new(beside_images(&feature.media));
                feature.identifier = format!("beside_images:{}", feature.identifier).into();
            }
        }
    }

    fn image(
        &self,
        image: &RgbImage,
        _kwargs: &Map<String, Value>,
    ) -> Result<ProcessedMedia, MediaError> {
        let pixels = Pixels::of(image);
        let (tiles, size) = self.tiles([pixels.height, pixels.width])?;
        let whole = tiles.grid.map(|count| count * self.side);
        let padded = pixels.resized(self.filter, size).part([0, 0], whole, WHITE);
        let small = resized(&padded, &self.scale, self.neighbours, self.side);
        let cut = tiles::cut(&padded, tiles.grid, self.side);
        let mut media = item(cut, tiles.num_embeds(self.patches), None);
        let (shape, data) = (tiles.shape(), Vec::new().into());
        media.tensors.push(MediaTensor { shape, dtype: MediaDtype::U8, data });
        media.tensors.push(MediaTensor {
            shape: vec![3, self.side, self.side],
            dtype: MediaDtype::F32,
            data: small.iter().flat_map(|value| value.to_le_bytes()).collect(),
        });
        Ok(media)
    }

    fn sampling_rate(&self) -> u32 {
        self.sounds.rate()
    }

    fn audio(&self, samples: &[f32], _: &Map<String, Value>) -> Result<ProcessedMedia, MediaError> {
        self.sounds.process(samples)
    }
}

#[cfg(test)]
#[path = "phi4_tests.rs"]
mod tests;
