//! The images and sounds of a step: which rows take which embeddings, and the positions of tokens
//! on three axes.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use playhouse_actors::{
    logic::request::{EngineRequest, ids::TokenId, media::MultimodalFeature, outputs::RowFailure},
    ports::ExecuteError,
};

use super::{
    batch::{Chunk, PersistentBatch, RaggedBatch},
    encoder::{EncoderStore, input},
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

    /// Appends the number of tokens that each of these tokens sees. The tokens from an item's first
    /// to its last attend to each other: HF `get_block_sequence_ids_for_mask` of Gemma 3. Returns
    /// whether one sees a token after it.
    fn append_ends(
        request: &EngineRequest,
        tokens: Range<usize>,
        ends: &mut Vec<u32>,
    ) -> Result<bool, ExecuteError> {
        let first = ends.len();
        ends.extend(tokens.clone().map(|position| position as u32 + 1));
        let mut sees_more = false;
        let placed = request.mm_features.iter().filter(|item| !item.is_attended());
        for item in placed.filter(|item| !item.is_before(tokens.start)) {
            if item.offset < tokens.end && !item.is_before(tokens.end) {
                let (request, end) = (request.id, tokens.end);
                let why = format!("request {request}: its tokens to {end} cut an image");
                return Err(ExecuteError::InvalidStep(why));
            }
            let end = item.offset + item.length;
            let (from, to) = (item.offset.max(tokens.start), end.min(tokens.end));
            if from < to {
                let seen = &mut ends[first + from - tokens.start..first + to - tokens.start];
                // An item that spans the prompt has others within.
                seen.iter_mut().for_each(|seen| *seen = (*seen).max(end as u32));
                sees_more |= to - from > 1;
            }
        }
        Ok(sees_more)
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
        let RaggedBatch { chunks, media, axes, groups, .. } = batch;
        let has_media = |chunk: &Chunk| {
            let sequence = self.sequence(chunk);
            sequence.is_ok_and(|sequence| !sequence.request.mm_features.is_empty())
        };
        if !chunks.iter().any(has_media) {
            return Ok(());
        }
        let (mut row, mut has_axes) = (0, false);
        let (mut ends, mut sees_more) = (Vec::new(), false);
        for chunk in chunks.iter() {
            let sequence = self.sequence(chunk)?;
            let tokens = chunk.start..chunk.end + chunk.num_guesses;
            sequence.media.add_to(media, &sequence.request, tokens.clone(), row, encoder);
            sequence.media.append_axes(tokens.clone(), axes);
            has_axes |= sequence.media.has_axes();
            if encoder.attends_within_items() {
                sees_more |=
                    SequenceMedia::append_ends(&sequence.request, tokens.clone(), &mut ends)?;
            }
            row += tokens.len();
        }
        if !has_axes {
            axes.clear();
        }
        if sees_more {
            groups.iter_mut().for_each(|attention| attention.visible_ends.clone_from(&ends));
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
    /// behind the largest position before it. The embeddings of an image have its grid. The frames
    /// of a video are one grid, or several where text is between them. After a video that is longer
    /// than wide, transformers 5 goes on behind its larger side. Here, as in vLLM and transformers
    /// 4, text goes on behind the largest position.
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
            let [_, rows, columns] = found.media.grid.unwrap_or_default();
            let per_frame = (rows * columns).max(1);
            let times = encoder.frame_positions(&input(found));
            let time_of = |frame: u32| times.get(frame as usize).copied().unwrap_or(frame);
            let mut first_frame = 0;
            for run in prompt[position..end]
                .chunk_by(|a, b| encoder.is_placeholder(*a) == encoder.is_placeholder(*b))
            {
                if !encoder.is_placeholder(run[0]) {
                    axes.extend((next..next + run.len() as u32).map(|position| [position; 3]));
                    next += run.len() as u32;
                    continue;
                }
                let (start, mut last) = (next, rows.max(columns).saturating_sub(1));
                for embed in 0..run.len() as u32 {
                    let time = time_of(first_frame + embed / per_frame) - time_of(first_frame);
                    let in_frame = embed % per_frame;
                    let (row, column) = (in_frame / columns.max(1), in_frame % columns.max(1));
                    axes.push([start + time, start + row, start + column]);
                    last = last.max(time);
                }
                next = start + last + 1;
                first_frame += (run.len() as u32).div_ceil(per_frame);
            }
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

    /// The numbers are those of transformers 5 for videos of 2 frames, with text between them and
    /// without.
    #[test]
    fn a_video_has_the_positions_of_its_frames() {
        let prompt = [1, IMAGE, IMAGE, IMAGE, IMAGE, 3];
        let whole = Axes::of(&request(&prompt, &[(1, 4, [2, 1, 2])]), &Encoder);
        let frames = [[1, 1, 1], [1, 1, 2], [2, 1, 1], [2, 1, 2]];
        assert_eq!(
            (whole.prompt[1..5].to_vec(), whole.prompt[5], whole.next),
            (frames.into(), [3; 3], 4)
        );
        let prompt = [1, IMAGE, IMAGE, 7, 8, IMAGE, IMAGE, 3];
        let apart = Axes::of(&request(&prompt, &[(1, 6, [2, 1, 2])]), &Encoder);
        let frames = [[1, 1, 1], [1, 1, 2], [3, 3, 3], [4, 4, 4], [5, 5, 5], [5, 5, 6], [7, 7, 7]];
        assert_eq!((&apart.prompt[1..], apart.next), (&frames[..], 8));
    }

    #[test]
    fn the_tokens_of_an_image_see_all_of_it() {
        let prompt = [1, IMAGE, IMAGE, IMAGE, 7, IMAGE, IMAGE, 2];
        let request = request(&prompt, &[(1, 3, [1, 1, 3]), (5, 2, [1, 1, 2])]);
        let of = |tokens: Range<usize>| {
            let mut ends = vec![9];
            let more = SequenceMedia::append_ends(&request, tokens, &mut ends);
            more.map(|more| (more, ends))
        };
        assert_eq!(of(0..8), Ok((true, vec![9, 1, 4, 4, 4, 5, 7, 7, 8])));
        assert_eq!(of(3..8), Ok((true, vec![9, 4, 5, 7, 7, 8])));
        assert_eq!(of(2..4), Ok((true, vec![9, 4, 4])));
        assert_eq!(of(4..5), Ok((false, vec![9, 5])));
        assert!(of(0..2).is_err() && of(4..6).is_err());
    }

    #[test]
    fn the_tokens_of_a_prompt_that_an_image_spans_see_all_of_it() {
        let prompt = [1, IMAGE, IMAGE, 7, IMAGE, 2];
        let request = request(&prompt, &[(0, 6, [1, 1, 2]), (4, 1, [1, 1, 1])]);
        let of = |tokens: Range<usize>| {
            let mut ends = Vec::new();
            SequenceMedia::append_ends(&request, tokens, &mut ends).map(|more| (more, ends))
        };
        assert_eq!(of(0..6), Ok((true, vec![6; 6])));
        assert_eq!(of(0..8), Ok((true, vec![6, 6, 6, 6, 6, 6, 7, 8])));
        assert_eq!(of(6..8), Ok((false, vec![7, 8])));
        assert!(of(0..5).is_err());
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
