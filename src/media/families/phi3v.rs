//! Images of Phi-3-vision (`Phi3VImageProcessor` of its authors' code). An image becomes tiles,
//! with white around its shorter side, and once more a whole in the size of a tile. Pixels are
//! those of Pillow up to its version 12.

use image::RgbImage;
use playhouse_actors::{
    logic::request::{
        ids::TokenId,
        media::{MediaDtype, MediaTensor, Modality, ProcessedMedia},
    },
    ports::MediaError,
};
use serde_json::{Map, Value};

use super::resize::{Filter, Pixels};
use super::unfiltered::{Neighbours, resized};
use super::{item, tiles};
use crate::media::processor::FamilyProcessor;
use crate::model::ConfigError;
use crate::model::config::Fields;
use crate::model::vision::{PixelScale, ProcessorConfig, TileImages, VisionFamily};

/// The most tiles that a config may allow.
const TILES_MAX: usize = 1_024;
const WHITE: [u8; 3] = [255; 3];

/// The processor of one model.
#[derive(Debug)]
pub(super) struct Phi3V {
    image_token: [TokenId; 1],
    /// Pixels on a side of a tile, and embeddings.
    side: usize,
    squares: usize,
    most_tiles: usize,
    scale: PixelScale,
}

impl Phi3V {
    /// Reads the processor of a model whose `config.json` has the fields `outer`.
    pub(super) fn read(
        family: VisionFamily,
        outer: &Fields,
        processor: &ProcessorConfig,
    ) -> Result<Self, ConfigError> {
        const TILES: &str = "num_crops";
        let images = TileImages::read(family, outer)?;
        let fields = &processor.image;
        let most_tiles = fields.size(TILES)?.unwrap_or(1);
        if most_tiles > TILES_MAX {
            return Err(fields.invalid(TILES, &format!("an integer from 1 to {TILES_MAX}")));
        }
        Ok(Self {
            image_token: [images.placeholder],
            side: images.image_size,
            squares: images.num_embeds.isqrt(),
            most_tiles,
            scale: processor.scale(images.scale)?,
        })
    }

    /// Returns the rows and columns of tiles of an image of `[height, width]`, and its size in
    /// them.
    fn tiles(&self, [height, width]: [usize; 2]) -> Result<[[usize; 2]; 2], MediaError> {
        let is_high = width < height;
        let (long, short) = if is_high { (height, width) } else { (width, height) };
        let ratio = long as f64 / short as f64;
        let across = |along: usize| (along as f64 / ratio).ceil() as usize;
        let along = (1..).take_while(|along| along * across(*along) <= self.most_tiles).count();
        let inner = (along * self.side) as f64 / ratio;
        let size = [inner as usize, along * self.side];
        if size[0] == 0 {
            let reason = format!("an image of {width} x {height} pixels is too narrow");
            return Err(MediaError::Invalid { modality: Modality::Image, reason });
        }
        let grid = [size[0].div_ceil(self.side), along];
        let oriented =
            |[short, long]: [usize; 2]| if is_high { [long, short] } else { [short, long] };
        Ok([oriented(grid), oriented(size)])
    }

    /// Returns the embeddings of an image of `rows` and `columns` of tiles.
    fn num_embeds(&self, [rows, columns]: [usize; 2]) -> usize {
        let of = |rows: usize, columns: usize| rows * self.squares * (columns * self.squares + 1);
        of(rows, columns) + 1 + of(1, 1)
    }
}

impl FamilyProcessor for Phi3V {
    fn modalities(&self) -> &[Modality] {
        &[Modality::Image]
    }

    fn max_item_embeds(&self) -> usize {
        // One column of tiles has the most ends of rows.
        self.num_embeds([self.most_tiles, 1])
    }

    fn placeholder(&self, _modality: Modality) -> &str {
        "<|image|>"
    }

    fn placeholder_tokens(&self, _modality: Modality) -> &[TokenId] {
        &self.image_token
    }

    fn tokens(&self, media: &ProcessedMedia) -> Vec<TokenId> {
        vec![self.image_token[0]; media.num_embeds]
    }

    fn is_placeholder(&self, token: TokenId) -> bool {
        token == self.image_token[0]
    }

    fn image(
        &self,
        image: &RgbImage,
        _kwargs: &Map<String, Value>,
    ) -> Result<ProcessedMedia, MediaError> {
        let pixels = Pixels::of(image);
        let is_high = pixels.width < pixels.height;
        let [grid, size] = self.tiles([pixels.height, pixels.width])?;
        let whole = grid.map(|count| count * self.side);
        let filter = Filter::BilinearOfPillow;
        // A high image is resized as a wide one.
        let inner = match is_high {
            true => pixels.transposed().resized(filter, [size[1], size[0]]).transposed(),
            false => pixels.resized(filter, size),
        };
        let before = [0, 1].map(|axis| -(((whole[axis] - size[axis]) / 2) as isize));
        let padded = inner.part(before, whole, WHITE);
        let small = resized(&padded, &self.scale, Neighbours::Bicubic, self.side);
        let cut = tiles::cut(&padded, grid, self.side);
        let mut media = tiles::with_grid(item(cut, self.num_embeds(grid), None), grid);
        media.tensors.push(MediaTensor {
            shape: vec![3, self.side, self.side],
            dtype: MediaDtype::F32,
            data: small.iter().flat_map(|value| value.to_le_bytes()).collect(),
        });
        Ok(media)
    }
}
