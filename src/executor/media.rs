//! The images and sounds of a step: which rows take which embeddings, and the positions of tokens
//! on three axes.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use playhouse_actors::{
    logic::request::{EngineRequest, ids::TokenId, media::MultimodalFeature, outputs::RowFailure},
    ports::ExecuteError,
};

use super::{
    batch::{Chunk, PersistentBatch, RaggedBatch},
    encoder::EncoderStore,
};
use crate::model::{EncoderOutput, MediaEncoder, MediaRows, StepMedia};

/// The images and sounds of one request.
#[derive(Debug, Default)]
pub(super) struct SequenceMedia {
    /// The results that its steps read, by index of the item. Those of computed tokens are dropped.
    outputs: BTreeMap<usize, Arc<EncoderOutput>>,
    /// The positions of the prompt's tokens on three axes, if the model's positions have them.
    axes: Option<Axes>,
}

/// The positions of a request's tokens.
#[derive(Debug)]
struct Axes {
    /// Frame, row and column of each token of the prompt.
    prompt: Vec<[u32; 3]>,
    /// The position of the first token after the prompt, on all axes.
    next: u32,
}

impl SequenceMedia {
    /// Returns the media of a request that begins.
    pub(super) fn new(request: &EngineRequest, store: Option<&EncoderStore>) -> Self {
        let encoder = store.map(EncoderStore::encoder);
        let has_axes = encoder.is_some_and(|encoder| encoder.position_axes() == 3);
        let axes = encoder
            .filter(|_| has_axes && !request.mm_features.is_empty())
            .map(|encoder| Axes::of(request, encoder));
        Self { outputs: BTreeMap::new(), axes }
    }

    /// Takes the results that these tokens need from the store.
    ///
    /// # Errors
    /// [`RowFailure::Media`] if one is not there.
    pub(super) fn take(
        &mut self,
        features: &[MultimodalFeature],
        tokens: Range<usize>,
        store: Option<&EncoderStore>,
    ) -> Result<(), RowFailure> {
        for (index, item) in features.iter().enumerate() {
            if item.is_before(tokens.start) {
                self.outputs.remove(&index);
            } else if (item.is_attended() || item.offset < tokens.end)
                && !self.outputs.contains_key(&index)
            {
                let output = store.and_then(|store| store.get(&item.identifier));
                self.outputs.insert(index, output.ok_or(RowFailure::Media)?);
            }
        }
        Ok(())
    }

    /// Adds the rows of a chunk with these tokens to `step`. The chunk's first row is `row`.
    pub(super) fn add_to(
        &self,
        step: &mut StepMedia,
        request: &EngineRequest,
        tokens: Range<usize>,
        row: usize,
        encoder: &dyn MediaEncoder,
    ) {
        let mut attended = None;
        for (index, output) in &self.outputs {
            let Some(item) = request.mm_features.get(*index) else { continue };
            if item.is_attended() {
                attended = Some(Arc::clone(output));
                continue;
            }
            let prompt = &*request.prompt_token_ids;
            for (first, len, first_embed) in runs(item, prompt, &tokens, encoder) {
                let row = row + first - tokens.start;
                step.rows.push(MediaRows { row, len, first_embed, output: Arc::clone(output) });
            }
        }
        step.attended.push(attended);
    }

    /// Appends the positions of these tokens on three axes.
    pub(super) fn append_axes(&self, tokens: Range<usize>, axes: &mut Vec<[u32; 3]>) {
        axes.extend(tokens.map(|position| {
            match &self.axes {
                None => [position as u32; 3],
                Some(Axes { prompt, next }) => prompt
                    .get(position)
                    .copied()
                    .unwrap_or_else(|| [next + (position - prompt.len()) as u32; 3]),
            }
        }));
    }

    /// Returns whether the positions differ from the places in the sequence.
    pub(super) fn has_axes(&self) -> bool {
        self.axes.is_some()
    }
}

impl PersistentBatch {
    /// Adds the images and sounds of the chunks, and the positions of their tokens.
    pub(super) fn add_media(
        &self,
        encoder: &dyn MediaEncoder,
        batch: &mut RaggedBatch,
    ) -> Result<(), ExecuteError> {
        let RaggedBatch { chunks, media, axes, .. } = batch;
        let has_media = |chunk: &Chunk| {
            let sequence = self.sequence(chunk);
            sequence.is_ok_and(|sequence| !sequence.request.mm_features.is_empty())
        };
        if !chunks.iter().any(has_media) {
            return Ok(());
        }
        let (mut row, mut has_axes) = (0, false);
        for chunk in chunks.iter() {
            let sequence = self.sequence(chunk)?;
            let tokens = chunk.start..chunk.end + chunk.num_guesses;
            sequence.media.add_to(media, &sequence.request, tokens.clone(), row, encoder);
            sequence.media.append_axes(tokens.clone(), axes);
            has_axes |= sequence.media.has_axes();
            row += tokens.len();
        }
        if !has_axes {
            axes.clear();
        }
        if media.attended.iter().all(Option::is_none) {
            media.attended.clear();
        }
        Ok(())
    }
}

/// Returns the runs of placeholders of an item within some tokens: the position of the first, their
/// number, and the embedding of the first.
fn runs(
    item: &MultimodalFeature,
    prompt: &[TokenId],
    tokens: &Range<usize>,
    encoder: &dyn MediaEncoder,
) -> Vec<(usize, usize, usize)> {
    let end = (item.offset + item.length).min(prompt.len());
    let mut runs: Vec<(usize, usize, usize)> = Vec::new();
    let mut embed = 0;
    let placed = prompt.iter().enumerate().take(end.min(tokens.end)).skip(item.offset);
    for (position, &token) in placed {
        if !encoder.is_placeholder(token) {
            continue;
        }
        if position >= tokens.start {
            match runs.last_mut() {
                Some((first, len, _)) if *first + *len == position => *len += 1,
                _ => runs.push((position, 1, embed)),
            }
        }
        embed += 1;
    }
    runs.retain_mut(|(_, len, first)| {
        // An item never has more placeholders than embeddings, unless its processor is wrong.
        *len = (*len).min(item.num_embeds.saturating_sub(*first));
        *len > 0
    });
    runs
}

impl Axes {
    /// Returns the positions of a prompt: HF `Qwen2VLModel.get_rope_index`. A token of text is one
    /// behind the largest position before it. The embeddings of an image have its grid.
    fn of(request: &EngineRequest, encoder: &dyn MediaEncoder) -> Self {
        let prompt = &*request.prompt_token_ids;
        let mut axes = Vec::with_capacity(prompt.len());
        let mut next = 0;
        let mut items = request.mm_features.iter().filter(|item| item.media.grid.is_some());
        let mut item = items.next();
        while axes.len() < prompt.len() {
            let position = axes.len();
            let Some(found) = item.filter(|item| item.offset <= position) else {
                axes.push([next; 3]);
                next += 1;
                continue;
            };
            item = items.next();
            let end = (found.offset + found.length).min(prompt.len());
            let [frames, rows, columns] = found.media.grid.unwrap_or_default();
            let per_frame = (rows * columns).max(1);
            let (mut embed, start) = (0, next);
            for &token in &prompt[position..end] {
                if encoder.is_placeholder(token) {
                    let in_frame = embed % per_frame;
                    let (row, column) = (in_frame / columns.max(1), in_frame % columns.max(1));
                    axes.push([start + embed / per_frame, start + row, start + column]);
                    embed += 1;
                } else {
                    axes.push([start + embed; 3]);
                }
            }
            next = start + frames.max(rows).max(columns);
        }
        Self { prompt: axes, next }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::MediaInput;
    use playhouse_actors::logic::request::media::ProcessedMedia;

    const IMAGE: TokenId = 9;

    struct Encoder;

    impl MediaEncoder for Encoder {
        fn encode(&self, _items: &[MediaInput<'_>]) -> Vec<Result<EncoderOutput, String>> {
            Vec::new()
        }

        fn is_placeholder(&self, token_id: u32) -> bool {
            token_id == IMAGE
        }
    }

    fn request(prompt: &[TokenId], items: &[(usize, usize, [u32; 3])]) -> EngineRequest {
        let item = |&(offset, length, grid): &(usize, usize, [u32; 3])| {
            let grid = Some(grid);
            let num_embeds = length;
            let media = Arc::new(ProcessedMedia { grid, num_embeds, ..ProcessedMedia::default() });
            MultimodalFeature { identifier: "a".into(), offset, length, num_embeds, media }
        };
        EngineRequest {
            mm_features: items.iter().map(item).collect(),
            ..EngineRequest::for_test(1, prompt.iter().copied())
        }
    }

    /// The numbers are those of transformers 5 for a grid of 2 rows and 3 columns.
    #[test]
    fn an_image_has_the_positions_of_its_grid() {
        let prompt = [1, 2, IMAGE, IMAGE, IMAGE, IMAGE, IMAGE, IMAGE, 3, 4];
        let Axes { prompt: axes, next } =
            Axes::of(&request(&prompt, &[(2, 6, [1, 2, 3])]), &Encoder);
        let image = [[2, 2, 2], [2, 2, 3], [2, 2, 4], [2, 3, 2], [2, 3, 3], [2, 3, 4]];
        assert_eq!(axes[..2], [[0; 3], [1; 3]]);
        assert_eq!(axes[2..8], image);
        assert_eq!((&axes[8..], next), (&[[5; 3], [6; 3]][..], 7));
    }

    #[test]
    fn a_chunk_takes_the_embeddings_of_its_own_rows() {
        let prompt = [1, IMAGE, IMAGE, 7, IMAGE, IMAGE, 2];
        let request = request(&prompt, &[(1, 5, [1, 2, 2])]);
        let item = &request.mm_features[0];
        let of = |tokens: Range<usize>| runs(item, &prompt, &tokens, &Encoder);
        assert_eq!(of(0..7), [(1, 2, 0), (4, 2, 2)]);
        assert_eq!(of(2..5), [(2, 1, 1), (4, 1, 2)]);
        assert_eq!(of(6..7), []);
    }
}
