//! A tower as the encoder of a model.

use crate::model::{EncoderOutput, MediaData, MediaEncoder, MediaInput, MediaTensorView};

/// A vision tower with its projector.
pub(super) trait Tower: Send + Sync {
    /// The rows of an item.
    type Prepared: Send;

    /// Makes the rows of an item.
    ///
    /// # Errors
    /// The reason why the item cannot be encoded.
    fn prepare(&self, item: &MediaInput<'_>) -> Result<Self::Prepared, String>;

    /// Returns the number of embeddings of an item.
    fn num_embeds(&self, item: &Self::Prepared) -> usize;

    /// Returns the results of all `items`, in order.
    ///
    /// # Errors
    /// The reason why the device rejects the batch.
    fn run(&self, items: Vec<Self::Prepared>) -> Result<Vec<EncoderOutput>, String>;

    /// Returns the bytes of weights that are pages of a file.
    fn mapped_bytes(&self) -> u64;
}

/// The tokens of a prompt that attend to each other, and not only to those before them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ItemAttention {
    None,
    /// Those of an image.
    WithinItems,
    /// All tokens of a prompt with an image.
    WithinPrompts,
}

/// The encoder of a model's images.
#[derive(Debug)]
pub(super) struct VisionEncoder<T> {
    pub(super) vision_tower: T,
    /// The tokens that take embeddings.
    pub(super) placeholders: Vec<u32>,
    /// The axes of the text model's positions.
    pub(super) position_axes: usize,
    /// The tokens that attend to each other.
    pub(super) attention: ItemAttention,
}

impl<T: Tower> VisionEncoder<T> {
    fn prepare(&self, item: &MediaInput<'_>) -> Result<T::Prepared, String> {
        let prepared = self.vision_tower.prepare(item)?;
        let (found, expected) = (self.vision_tower.num_embeds(&prepared), item.num_embeds);
        match found == expected {
            true => Ok(prepared),
            false => Err(format!("the item has {found} embeddings, and {expected} placeholders")),
        }
    }
}

impl<T: Tower> MediaEncoder for VisionEncoder<T> {
    fn encode(&self, items: &[MediaInput<'_>]) -> Vec<Result<EncoderOutput, String>> {
        let (mut accepted, mut results) = (Vec::new(), Vec::with_capacity(items.len()));
        for item in items {
            results.push(self.prepare(item).map(|prepared| accepted.push(prepared)));
        }
        if accepted.is_empty() {
            return results
                .into_iter()
                .map(|result| Err(result.err().unwrap_or_default()))
                .collect();
        }
        match self.vision_tower.run(accepted) {
            Ok(outputs) => {
                let mut outputs = outputs.into_iter();
                let mut next = || outputs.next().ok_or_else(|| "the tower lost an item".to_owned());
                results.into_iter().map(|result| result.and_then(|()| next())).collect()
            }
            Err(why) => results
                .into_iter()
                .map(|result| Err(result.err().unwrap_or_else(|| why.clone())))
                .collect(),
        }
    }

    fn position_axes(&self) -> usize {
        self.position_axes
    }

    fn frame_positions(&self, item: &MediaInput<'_>) -> Vec<u32> {
        let [frames, ..] = item.grid.unwrap_or_default();
        match item.tensors.get(1) {
            // A tensor without elements, whose shape has the positions.
            Some(MediaTensorView { shape, data: MediaData::U8([]) })
                if shape.len() == frames as usize =>
            {
                shape.iter().map(|position| *position as u32).collect()
            }
            _ => (0..frames).collect(),
        }
    }

    fn attends_within_items(&self) -> bool {
        self.attention != ItemAttention::None
    }

    fn attends_within_prompts(&self) -> bool {
        self.attention == ItemAttention::WithinPrompts
    }

    fn is_placeholder(&self, token_id: u32) -> bool {
        self.placeholders.contains(&token_id)
    }

    fn mapped_bytes(&self) -> u64 {
        self.vision_tower.mapped_bytes()
    }
}
