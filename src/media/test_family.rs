//! A small family for tests: an image has an embedding for each of its rows.

use image::RgbImage;
use playhouse_actors::{
    logic::request::{
        ids::TokenId,
        media::{MediaDtype, MediaTensor, Modality, ProcessedMedia},
    },
    ports::MediaError,
};
use serde_json::{Map, Value};

use super::frames::Video;
use super::processor::FamilyProcessor;

/// The mark before an image's embeddings, the place of one, and the mark behind them.
pub(crate) const MARKS: [TokenId; 3] = [90, 91, 92];
/// The placeholder of a video.
pub(crate) const VIDEO: TokenId = 93;

/// The family. Its items have at most this many embeddings.
pub(crate) struct TestFamily(pub(crate) usize);

impl FamilyProcessor for TestFamily {
    fn modalities(&self) -> &[Modality] {
        &[Modality::Image, Modality::Video]
    }

    fn max_item_embeds(&self) -> usize {
        self.0
    }

    fn placeholder(&self, modality: Modality) -> &str {
        match modality {
            Modality::Video => "<video>",
            _ => "<image>",
        }
    }

    fn placeholder_tokens(&self, modality: Modality) -> &[TokenId] {
        match modality {
            Modality::Image => &MARKS[1..2],
            Modality::Video => &[VIDEO],
            Modality::Audio | Modality::Text => &[],
        }
    }

    fn tokens(&self, media: &ProcessedMedia) -> Vec<TokenId> {
        let [begin, place, end] = MARKS;
        let mut tokens = vec![begin];
        tokens.extend((0..media.num_embeds).map(|_| place));
        tokens.push(end);
        tokens
    }

    fn is_placeholder(&self, token: TokenId) -> bool {
        token == MARKS[1]
    }

    fn image(
        &self,
        image: &RgbImage,
        _kwargs: &Map<String, Value>,
    ) -> Result<ProcessedMedia, MediaError> {
        let shape = vec![image.height() as usize, image.width() as usize, 3];
        let data = image.as_raw().as_slice().into();
        Ok(ProcessedMedia {
            modality: Modality::Image,
            tensors: vec![MediaTensor { shape, dtype: MediaDtype::U8, data }],
            num_embeds: image.height() as usize,
            grid: None,
        })
    }

    fn video(
        &self,
        video: &Video,
        _kwargs: &Map<String, Value>,
    ) -> Result<ProcessedMedia, MediaError> {
        let frames = &video.frames;
        let data: Vec<u8> = frames.iter().flat_map(|frame| frame.as_raw().clone()).collect();
        let shape = vec![data.len()];
        Ok(ProcessedMedia {
            modality: Modality::Video,
            tensors: vec![MediaTensor { shape, dtype: MediaDtype::U8, data: data.into() }],
            num_embeds: frames.len(),
            grid: None,
        })
    }
}
