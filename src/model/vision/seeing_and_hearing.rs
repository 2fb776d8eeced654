//! Two encoders as one: that of a model's images, and that of its sounds.

use std::sync::Arc;

use crate::model::{EncoderOutput, MediaData, MediaEncoder, MediaInput};

/// The encoder of a model that sees and hears.
pub(in crate::model) struct SeeingAndHearing {
    pub(in crate::model) images: Arc<dyn MediaEncoder>,
    pub(in crate::model) sounds: Arc<dyn MediaEncoder>,
}

/// Returns whether an item is a sound: its first tensor is a spectrogram, not one of bytes.
fn is_sound(item: &MediaInput<'_>) -> bool {
    matches!(item.tensors.first().map(|tensor| tensor.data), Some(MediaData::F32(_)))
}

impl MediaEncoder for SeeingAndHearing {
    fn encode(&self, items: &[MediaInput<'_>]) -> Vec<Result<EncoderOutput, String>> {
        let (sounds, images): (Vec<_>, Vec<_>) = items.iter().cloned().partition(is_sound);
        let mut images = self.images.encode(&images).into_iter();
        let mut sounds = self.sounds.encode(&sounds).into_iter();
        let of_item = |item: &MediaInput<'_>| {
            let next = if is_sound(item) { sounds.next() } else { images.next() };
            next.unwrap_or_else(|| Err("the encoder lost an item".to_owned()))
        };
        items.iter().map(of_item).collect()
    }

    fn position_axes(&self) -> usize {
        self.images.position_axes()
    }

    fn frame_positions(&self, item: &MediaInput<'_>) -> Vec<u32> {
        self.images.frame_positions(item)
    }

    fn is_placeholder(&self, token_id: u32) -> bool {
        self.images.is_placeholder(token_id) || self.sounds.is_placeholder(token_id)
    }

    fn mapped_bytes(&self) -> u64 {
        self.images.mapped_bytes() + self.sounds.mapped_bytes()
    }
}
