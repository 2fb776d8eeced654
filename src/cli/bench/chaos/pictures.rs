//! Pictures in the requests of a storm.

use std::sync::Arc;

use serde_json::Map;

use crate::api::{MediaProcessor, MediaSource, Modality, Prompt, RawMedia, RawRequest};

/// Number of different pictures. Requests share them, so that some are in the encoder cache.
const PICTURES: usize = 12;
/// Bytes of the head of a BMP file.
const HEAD_BYTES: u32 = 54;

/// The share of requests with a picture.
#[derive(Debug, Clone)]
pub(super) struct Pictures {
    /// The text that stands for a picture in a prompt.
    placeholder: String,
    percent: usize,
}

impl Pictures {
    /// Returns a share for the model that `processor` belongs to.
    ///
    /// # Errors
    /// The reason why the model has no pictures.
    pub(super) fn new(
        processor: Option<&Arc<dyn MediaProcessor>>,
        percent: usize,
    ) -> Result<Option<Self>, String> {
        if percent == 0 {
            return Ok(None);
        }
        let placeholder = processor.and_then(|it| it.placeholder(Modality::Image, 0));
        let placeholder = placeholder.ok_or("--media-percent: the model takes no images")?;
        Ok(Some(Self { placeholder, percent }))
    }

    /// Returns the request `number` about a picture, if it is one of the share.
    pub(super) fn in_request(&self, number: usize, request: RawRequest) -> RawRequest {
        // Requests with a picture are spread evenly over the numbers.
        if number * 37 % 100 >= self.percent {
            return request;
        }
        let item = RawMedia {
            modality: Modality::Image,
            source: MediaSource::File(picture(number % PICTURES).into()),
            uuid: None,
            kwargs: Map::new(),
        };
        let text = format!("{number}: {} and a lantern", self.placeholder);
        RawRequest { prompt: Prompt::Text(text), media: [item].into(), ..request }
    }
}

/// Returns a picture as a BMP file. Pictures have several sizes.
fn picture(number: usize) -> Vec<u8> {
    let (width, height) = (56 + 28 * (number % 4) as u32, 56 + 28 * (number % 3) as u32);
    let row_bytes = (3 * width).next_multiple_of(4);
    let mut file = b"BM".to_vec();
    let head = [HEAD_BYTES + row_bytes * height, 0, HEAD_BYTES, 40, width, height];
    file.extend(head.into_iter().flat_map(u32::to_le_bytes));
    // One plane of 24 bits a pixel, not compressed.
    file.extend([1, 0, 24, 0]);
    file.resize(HEAD_BYTES as usize, 0);
    for y in 0..height {
        let row = (0..row_bytes).map(|x| (x * (3 + number as u32) + y * 5) as u8);
        file.extend(row);
    }
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_requests_has_a_picture() {
        let pictures = Pictures { placeholder: "<image>".to_owned(), percent: 30 };
        let request = || RawRequest::new(Prompt::Tokens(vec![1]));
        let with = (0..200).filter(|number| {
            let request = pictures.in_request(*number, request());
            matches!(&request.prompt, Prompt::Text(text) if text.contains("<image>"))
                && request.media.len() == 1
        });
        assert_eq!(with.count(), 60);
        assert!(Pictures::new(None, 30).is_err());
        assert!(Pictures::new(None, 0).unwrap().is_none());
    }

    #[test]
    fn pictures_differ() {
        let all: std::collections::BTreeSet<Vec<u8>> = (0..PICTURES).map(picture).collect();
        assert_eq!(all.len(), PICTURES);
        assert!(all.iter().all(|file| file.starts_with(b"BM")));
    }
}
