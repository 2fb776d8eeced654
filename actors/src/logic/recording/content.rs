//! The content of images, sounds and texts for an encoder, of which a recording has each once.

use std::{collections::BTreeSet, sync::Arc};

use super::Entry;
use crate::logic::request::{
    EngineRequest,
    media::{Modality, MultimodalFeature, ProcessedMedia},
};

/// Most bytes of content in one entry, which must fit into a frame.
pub const ENTRY_CONTENT_BYTES_MAX: usize = 64 << 20;

/// Decides which content a recording gets.
///
/// The text for an encoder is the prompt of its request, so it is always recorded. The content of
/// images and sounds is large, and is recorded if the operator wants it.
#[derive(Debug, Default)]
pub struct RecordedContent {
    has_media: bool,
    /// The items that the recording has.
    known: BTreeSet<Arc<str>>,
}

impl RecordedContent {
    /// Returns the content of a recording that has no entry yet. `has_media` says whether it gets
    /// that of images and sounds.
    #[must_use]
    pub fn new(has_media: bool) -> Self {
        Self { has_media, known: BTreeSet::new() }
    }

    /// Returns the request as the recording gets it: without content that it has already or must
    /// not have, and without the name of its answer, by which a client resumes it. `room` is the
    /// number of bytes of content that the entry may still take.
    #[must_use]
    pub fn recorded(
        &mut self,
        request: &Arc<EngineRequest>,
        room: &mut usize,
    ) -> Arc<EngineRequest> {
        if request.answer_id.is_none() && request.mm_features.is_empty() {
            return Arc::clone(request);
        }
        let features = request.mm_features.iter().map(|item| {
            let Some(rest) = room.checked_sub(item.media.num_bytes()) else {
                return without_content(item);
            };
            if !self.takes(item) {
                return without_content(item);
            }
            *room = rest;
            self.known.insert(Arc::clone(&item.identifier));
            item.clone()
        });
        let mm_features = features.collect();
        Arc::new(EngineRequest { answer_id: None, mm_features, ..EngineRequest::clone(request) })
    }

    fn takes(&self, item: &MultimodalFeature) -> bool {
        let is_wanted = self.has_media || item.media.modality == Modality::Text;
        is_wanted && !self.known.contains(&item.identifier)
    }
}

fn without_content(item: &MultimodalFeature) -> MultimodalFeature {
    let ProcessedMedia { modality, num_embeds, grid, .. } = *item.media;
    let media = ProcessedMedia { modality, tensors: Vec::new(), num_embeds, grid };
    MultimodalFeature { media: Arc::new(media), ..item.clone() }
}

impl Entry {
    /// Returns the number of bytes of all content in the entry.
    #[must_use]
    pub fn content_bytes(&self) -> usize {
        let of = |request: &EngineRequest| -> usize {
            request.mm_features.iter().map(|item| item.media.num_bytes()).sum()
        };
        match self {
            Self::Added(requests) => requests.iter().map(|request| of(request)).sum(),
            Self::Recovered { live, .. } => live.iter().map(|live| of(&live.request)).sum(),
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logic::request::media::{MediaDtype, MediaTensor};

    fn image(name: &str, num_bytes: usize) -> MultimodalFeature {
        let tensor = MediaTensor {
            shape: vec![num_bytes],
            dtype: MediaDtype::U8,
            data: vec![7; num_bytes].into(),
        };
        let media = ProcessedMedia { tensors: vec![tensor], ..ProcessedMedia::default() };
        let media = Arc::new(media);
        MultimodalFeature { identifier: name.into(), offset: 0, length: 1, num_embeds: 1, media }
    }

    fn request(items: &[MultimodalFeature]) -> Arc<EngineRequest> {
        Arc::new(EngineRequest {
            mm_features: items.iter().cloned().collect(),
            ..EngineRequest::for_test(1, [1, 2])
        })
    }

    /// The numbers of bytes that the recording gets of each item.
    fn sizes(content: &mut RecordedContent, items: &[MultimodalFeature]) -> Vec<usize> {
        let recorded = content.recorded(&request(items), &mut { ENTRY_CONTENT_BYTES_MAX });
        recorded.mm_features.iter().map(|item| item.media.num_bytes()).collect()
    }

    #[test]
    fn images_are_recorded_once_and_if_they_are_wanted() {
        let (mut with, mut without) = (RecordedContent::new(true), RecordedContent::new(false));
        let items = [image("a", 3), image("b", 4), image("a", 3)];
        assert_eq!(sizes(&mut with, &items), [3, 4, 0]);
        assert_eq!(sizes(&mut with, &[image("b", 4), image("c", 5)]), [0, 5]);
        assert_eq!(sizes(&mut without, &items), [0, 0, 0]);
    }

    #[test]
    fn texts_for_an_encoder_are_always_recorded() {
        let mut content = RecordedContent::new(false);
        assert_eq!(sizes(&mut content, &[MultimodalFeature::of_text(&[1, 2])]), [8]);
    }

    #[test]
    fn an_entry_with_too_much_content_is_recorded_without_the_rest() {
        let mut content = RecordedContent::new(true);
        let items = [image("a", ENTRY_CONTENT_BYTES_MAX), image("b", 1), image("c", 0)];
        assert_eq!(sizes(&mut content, &items), [ENTRY_CONTENT_BYTES_MAX, 0, 0]);
        assert_eq!(sizes(&mut content, &[image("b", 1)]), [1], "it comes with the next request");
    }
}
