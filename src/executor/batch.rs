//! The persistent batch: tokens and block tables of the requests that the scheduler runs. Each
//! step's changes update it, and it is laid out as one ragged batch.

use std::{ops::Range, sync::Arc};

use indexmap::IndexMap;
use playhouse_actors::{
    logic::{
        kv_cache::BlockIds,
        request::{
            EngineRequest,
            ids::{BlockId, RequestId, TokenId},
            outputs::{RowFailure, SampledToken},
        },
        scheduler::output::{CachedRequestData, NewRequestData, SchedulerOutput},
    },
    ports::ExecuteError,
};
use playhouse_kernels::AttentionMetadata;

use super::{
    adapters::AdapterStore,
    constraint::{Allowed, Constraint, ConstraintSources, Done, Job},
    drafters::Guessing,
    encoder::EncoderStore,
    media::SequenceMedia,
};
use crate::model::{Adapter, MediaEncoder, StepAdapters, StepMedia, pooling::Gathered};

/// One request in the runner.
pub(super) struct Sequence {
    pub(super) request: Arc<EngineRequest>,
    /// Prompt, then output. While a step runs, its guesses follow.
    pub(super) token_ids: Vec<TokenId>,
    /// Number of guesses at the end of `token_ids`.
    num_guesses: usize,
    /// Number of tokens that the model has computed. A state does not have the guesses among them,
    /// so the scheduler lets a model with states compute them again.
    num_computed: usize,
    pub(super) guessing: Guessing,
    /// Tokens that must not be drawn before `min_tokens` tokens.
    pub(super) stop_token_ids: Vec<TokenId>,
    pub(super) block_ids: BlockIds,
    /// `None` if the request has none, or while another thread computes its mask.
    constraint: Option<Constraint>,
    /// The weights that are added to the model's.
    pub(super) adapter: Option<Arc<Adapter>>,
    /// Its images and sounds.
    pub(super) media: SequenceMedia,
    /// The part of a pooling's result so far. A request that begins again gathers it again. Its
    /// memory was leased when the request was accepted.
    pub(super) gathered: Gathered,
    /// The reason why its last token could not be drawn. If there is one, the request cannot
    /// continue.
    broken: Option<RowFailure>,
}

impl Sequence {
    /// Returns the number of prompt and output tokens, without guesses.
    pub(super) fn num_known(&self) -> usize {
        self.token_ids.len() - self.num_guesses
    }

    /// Returns the number of tokens that the model has computed.
    pub(super) fn num_computed(&self) -> usize {
        self.num_computed
    }

    /// Returns the tokens generated so far, and `num_guesses` guesses after them.
    pub(super) fn output_token_ids(&self, num_guesses: usize) -> &[TokenId] {
        &self.token_ids[self.request.num_prompt_tokens()..self.num_known() + num_guesses]
    }

    /// Returns the guesses of the current step.
    pub(super) fn guesses(&self) -> &[TokenId] {
        &self.token_ids[self.num_known()..]
    }

    /// Sets the guesses of the current step.
    pub(super) fn guess(&mut self, guesses: &[TokenId]) {
        self.token_ids.truncate(self.num_known());
        self.token_ids.extend_from_slice(guesses);
        self.num_guesses = guesses.len();
    }

    /// Returns the tokens that must come next, at most `most`. They follow from the constraint.
    pub(super) fn forced_tokens(
        &mut self,
        sources: ConstraintSources<'_>,
        most: usize,
    ) -> Vec<TokenId> {
        let num_known = self.num_known();
        let output = &self.token_ids[self.request.num_prompt_tokens()..num_known];
        let Some(constraint) = &mut self.constraint else { return Vec::new() };
        let new_tokens = &output[constraint.num_output()..];
        constraint.see(new_tokens);
        constraint.forced_tokens(sources, most)
    }

    /// Returns whether the request's next tokens are constrained.
    pub(super) fn is_constrained(&self) -> bool {
        self.constraint.is_some()
    }
}

/// The tokens that a step computes for one request: positions `start..end`, and guesses after them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Chunk {
    pub(super) request: RequestId,
    /// Its index for [`PersistentBatch::sequence`] in this step.
    pub(super) sequence: usize,
    pub(super) start: usize,
    /// The end without guesses.
    pub(super) end: usize,
    /// Most guesses that the step verifies. The scheduler has places for them.
    pub(super) num_places: usize,
    pub(super) num_guesses: usize,
}

/// One step in the form that the model takes. Its buffers are reused by later steps.
#[derive(Debug, Default)]
pub(super) struct RaggedBatch {
    /// In the scheduler's order.
    pub(super) chunks: Vec<Chunk>,
    /// `[num_tokens]`
    pub(super) token_ids: Vec<TokenId>,
    /// The type of each token, in a model without a KV cache. Otherwise empty.
    pub(super) types: Vec<u32>,
    /// One for each group of layers, which differ in block tables and slots. A model without a KV
    /// cache has one without both.
    pub(super) groups: Vec<AttentionMetadata>,
    /// Those of the tokens.
    pub(super) adapters: StepAdapters,
    /// The images and sounds of the rows. Empty if there are none.
    pub(super) media: StepMedia,
    /// The positions of the tokens on three axes. Empty if all are the places in the sequences.
    pub(super) axes: Vec<[u32; 3]>,
    /// The rows of the tokens in rotary tables. Empty if all are the places in the sequences.
    pub(super) rotary_rows: Vec<u32>,
    /// Requests of the step that cannot continue.
    pub(super) broken: Vec<(RequestId, RowFailure)>,
    /// Block tables of earlier steps, kept for their memory.
    spare_tables: Vec<Vec<BlockId>>,
}

impl RaggedBatch {
    fn clear(&mut self) {
        for attention in &mut self.groups {
            // Replaying a recorded step may have appended further tables.
            attention.block_tables.truncate(self.chunks.len());
            attention.query_start_loc.clear();
            attention.seq_lens.clear();
            attention.slot_mapping.clear();
            attention.positions.clear();
            attention.visible_ends.clear();
            attention.num_guesses.clear();
            self.spare_tables.append(&mut attention.block_tables);
        }
        self.chunks.clear();
        self.token_ids.clear();
        self.types.clear();
        self.adapters.clear();
        self.media = StepMedia::default();
        self.axes.clear();
        self.rotary_rows.clear();
        self.broken.clear();
    }
}

/// The sizes of a KV cache that the layout of a batch depends on.
#[derive(Debug, Clone, Copy)]
pub(super) struct KvSizes {
    pub(super) block_size: usize,
    /// Groups of layers that share block tables: 0 for a model without a KV cache.
    pub(super) num_groups: usize,
}

/// The stores beside the model, from which requests take their parts.
#[derive(Clone, Copy, Default)]
pub(super) struct Stores<'a> {
    pub(super) adapters: Option<&'a AdapterStore>,
    pub(super) media: Option<&'a EncoderStore>,
}

/// The requests that the scheduler runs.
#[derive(Default)]
pub(super) struct PersistentBatch {
    sequences: IndexMap<RequestId, Sequence>,
}

impl PersistentBatch {
    /// Applies a step's changes, and puts its chunks into `batch`, replacing its content. `forget`
    /// gets each sequence that is dropped, and whether its request has ended.
    ///
    /// # Errors
    /// [`ExecuteError::InvalidStep`] when the step names an unknown request.
    pub(super) fn receive(
        &mut self,
        step: &SchedulerOutput,
        stores: Stores<'_>,
        batch: &mut RaggedBatch,
        mut forget: impl FnMut(&Sequence, bool),
    ) -> Result<(), ExecuteError> {
        let finished = step.finished.iter().map(|request| (request, true));
        for (request, is_ended) in finished.chain(step.preempted.iter().map(|id| (id, false))) {
            if let Some(sequence) = self.sequences.swap_remove(request) {
                forget(&sequence, is_ended);
            }
        }
        batch.clear();
        for data in &step.scheduled_new {
            match self.begin(data, stores) {
                Ok(chunk) => batch.chunks.push(chunk),
                Err(failure) => batch.broken.push((data.request.id, failure)),
            }
        }
        for data in &step.scheduled_cached {
            match self.advance(data, stores)? {
                Ok(chunk) => batch.chunks.push(chunk),
                Err(failure) => batch.broken.push((data.request, failure)),
            }
        }
        Ok(())
    }

    /// Lays the tokens and guesses of the received chunks out.
    ///
    /// # Errors
    /// [`ExecuteError::InvalidStep`] when tokens and blocks do not cover the scheduled ones.
    pub(super) fn lay_out(
        &self,
        sizes: KvSizes,
        encoder: Option<&dyn MediaEncoder>,
        batch: &mut RaggedBatch,
    ) -> Result<(), ExecuteError> {
        batch.groups.resize_with(sizes.num_groups.max(1), AttentionMetadata::default);
        batch.groups.iter_mut().for_each(|attention| attention.query_start_loc.push(0));
        for index in 0..batch.chunks.len() {
            self.append_chunk(batch.chunks[index], sizes, batch)?;
        }
        if batch.chunks.iter().any(|chunk| chunk.num_guesses > 0) {
            let num_guesses = batch.chunks.iter().map(|chunk| chunk.num_guesses as u32);
            for attention in &mut batch.groups {
                attention.num_guesses.extend(num_guesses.clone());
            }
        }
        if let Some(encoder) = encoder {
            self.add_media(encoder, batch)?;
        }
        Ok(())
    }

    /// Replaces the guesses of a chunk of the current step by the tokens drawn for it. The next
    /// step may arrive before the scheduler receives them. A failure ends the request's steps.
    pub(super) fn continue_with(
        &mut self,
        chunk: &Chunk,
        drawn: Result<&[SampledToken], RowFailure>,
    ) {
        let found = self.sequences.get_index_mut(chunk.sequence);
        let Some((_, sequence)) = found.filter(|(request, _)| **request == chunk.request) else {
            return;
        };
        sequence.guess(&[]);
        sequence.num_computed = chunk.end;
        match drawn {
            Ok(drawn) => {
                // The last token is not computed. Those before it were right guesses.
                sequence.num_computed += drawn.len().saturating_sub(1);
                sequence.token_ids.extend(drawn.iter().map(|token| token.token_id));
            }
            Err(failure) => sequence.broken = Some(failure),
        }
    }

    /// Returns the sequence of a chunk of the current step.
    pub(super) fn sequence(&self, chunk: &Chunk) -> Result<&Sequence, ExecuteError> {
        let found = self.sequences.get_index(chunk.sequence);
        let found = found.filter(|(request, _)| **request == chunk.request);
        found.map(|(_, sequence)| sequence).ok_or_else(|| unknown(chunk.request))
    }

    /// Returns the same to change it.
    pub(super) fn sequence_mut(&mut self, chunk: &Chunk) -> Result<&mut Sequence, ExecuteError> {
        let found = self.sequences.get_index_mut(chunk.sequence);
        let found = found.filter(|(request, _)| **request == chunk.request);
        found.map(|(_, sequence)| sequence).ok_or_else(|| unknown(chunk.request))
    }

    /// Removes and returns the constraints of the requests that get a token in this step. Other
    /// threads compute their masks.
    pub(super) fn lend_constraints(&mut self, chunks: &[Chunk]) -> Vec<Job> {
        let jobs = chunks.iter().filter_map(|chunk| {
            let (_, sequence) = self.sequences.get_index_mut(chunk.sequence)?;
            let num_known = sequence.num_known();
            let constraint = sequence.constraint.take_if(|_| chunk.end == num_known)?;
            let new_tokens = sequence.output_token_ids(0)[constraint.num_output()..].to_vec();
            let guesses = sequence.guesses().to_vec();
            Some(Job { request: chunk.request, constraint, new_tokens, guesses })
        });
        jobs.collect()
    }

    /// Puts a constraint back and returns its results.
    pub(super) fn take_back(&mut self, done: Done) -> (RequestId, Vec<Allowed>) {
        if let Some(sequence) = self.sequences.get_mut(&done.request) {
            sequence.constraint = Some(done.constraint);
        }
        (done.request, done.allowed)
    }

    /// Returns the request's first chunk, or the failure because of which it cannot begin.
    fn begin(&mut self, data: &NewRequestData, stores: Stores<'_>) -> Result<Chunk, RowFailure> {
        let request = data.request.id;
        let mut token_ids = data.request.prompt_token_ids.to_vec();
        token_ids.extend_from_slice(&data.output_token_ids);
        let (start, block_ids) = (data.num_computed_tokens, data.block_ids.clone());
        let (owner, constraint) = (Arc::clone(&data.request), Constraint::new(&data.request));
        let stop_token_ids = stop_token_ids(&owner);
        let found = adapter_of(&owner, stores.adapters);
        let end = start + data.num_scheduled_tokens;
        let mut media = SequenceMedia::new(&owner, stores.media);
        let taken = media.take(&owner.mm_features, start..end, stores.media);
        let broken = found.as_ref().err().cloned().or(taken.err());
        let sequence = Sequence {
            request: owner,
            token_ids,
            num_guesses: 0,
            num_computed: start,
            guessing: Guessing::default(),
            stop_token_ids,
            block_ids,
            constraint,
            adapter: found.unwrap_or_default(),
            media,
            gathered: Gathered::default(),
            broken: broken.clone(),
        };
        let (sequence, _) = self.sequences.insert_full(request, sequence);
        let chunk = Chunk { request, sequence, start, end, num_places: 0, num_guesses: 0 };
        broken.map_or(Ok(chunk), Err)
    }

    /// Returns the request's next chunk, or the failure after which the request cannot continue.
    fn advance(
        &mut self,
        data: &CachedRequestData,
        stores: Stores<'_>,
    ) -> Result<Result<Chunk, RowFailure>, ExecuteError> {
        let request = data.request;
        let found = self.sequences.get_full_mut(&request).ok_or_else(|| unknown(request))?;
        let (index, _, sequence) = found;
        sequence.block_ids.append(&data.new_block_ids);
        let num_known = sequence.num_known();
        let Range { start, end } = data.certain_tokens(sequence.num_computed, num_known);
        let taken = sequence.media.take(&sequence.request.mm_features, start..end, stores.media);
        if let Err(failure) = taken {
            sequence.broken.get_or_insert(failure);
        }
        let num_places = data.num_lookahead_tokens;
        let chunk = Chunk { request, sequence: index, start, end, num_places, num_guesses: 0 };
        Ok(sequence.broken.clone().map_or(Ok(chunk), Err))
    }

    fn append_chunk(
        &self,
        chunk: Chunk,
        sizes: KvSizes,
        batch: &mut RaggedBatch,
    ) -> Result<(), ExecuteError> {
        let KvSizes { block_size, num_groups } = sizes;
        let Chunk { request, start, num_guesses, .. } = chunk;
        let end = chunk.end + num_guesses;
        let sequence = self.sequence(&chunk)?;
        let known = sequence.token_ids.len();
        if let Some(adapter) = &sequence.adapter {
            let first_row = batch.token_ids.len() as u32;
            batch.adapters.push(adapter, first_row..first_row + end.saturating_sub(start) as u32);
        }
        if num_groups == 0 {
            return append_whole(chunk, sequence, batch);
        }
        let lens = (0..num_groups).map(|group| sequence.block_ids.group(group).len());
        let blocks = lens.min().unwrap_or_default();
        if start >= end || end > known || end > blocks * block_size {
            return Err(ExecuteError::InvalidStep(format!(
                "request {request}: tokens {start}..{end} of {known} in {blocks} blocks of \
                 {block_size}"
            )));
        }
        let RaggedBatch { token_ids, groups, spare_tables, .. } = batch;
        token_ids.extend_from_slice(&sequence.token_ids[start..end]);
        for (group, attention) in groups.iter_mut().enumerate() {
            let block_ids = sequence.block_ids.group(group);
            let spare = spare_tables.pop().unwrap_or_default();
            append_positions(attention, (start, end), block_ids, block_size, spare);
        }
        Ok(())
    }
}

/// Appends a whole prompt, for a model that keeps nothing of it.
fn append_whole(
    chunk: Chunk,
    sequence: &Sequence,
    batch: &mut RaggedBatch,
) -> Result<(), ExecuteError> {
    let Chunk { request, start, end, .. } = chunk;
    let len = sequence.token_ids.len();
    if (start, end) != (0, len) || len == 0 {
        let what = format!("request {request}: tokens {start}..{end} are not all of {len}");
        return Err(ExecuteError::InvalidStep(what));
    }
    let RaggedBatch { token_ids, types, groups, .. } = batch;
    token_ids.extend_from_slice(&sequence.token_ids);
    let second = sequence.request.pooling().and_then(|params| params.second_text_at);
    let second = second.map_or(len, |at| (at as usize).min(len));
    types.extend((0..len).map(|position| u32::from(position >= second)));
    for attention in groups {
        attention.positions.extend(0..len as u32);
        attention.query_start_loc.push(token_ids.len() as u32);
        attention.seq_lens.push(len as u32);
    }
    Ok(())
}

/// Returns the request's adapter, which the scheduler has made sure of.
fn adapter_of(
    request: &EngineRequest,
    adapters: Option<&AdapterStore>,
) -> Result<Option<Arc<Adapter>>, RowFailure> {
    let Some(wanted) = &request.lora else { return Ok(None) };
    let found = adapters.and_then(|adapters| adapters.get(wanted));
    let missing = || RowFailure::Adapter(format!("adapter '{}' is not in memory", wanted.name));
    found.map(Some).ok_or_else(missing)
}

/// Appends a sequence with tokens at the positions from `start` to `end`. `block_ids` has room for
/// them. `table` is replaced by its block table.
pub(super) fn append_positions(
    attention: &mut AttentionMetadata,
    (start, end): (usize, usize),
    block_ids: &[BlockId],
    block_size: usize,
    mut table: Vec<BlockId>,
) {
    for position in start..end {
        let (block, offset) = (block_ids[position / block_size], position % block_size);
        attention.slot_mapping.push(block * block_size as u32 + offset as u32);
        attention.positions.push(position as u32);
    }
    attention.query_start_loc.push(attention.positions.len() as u32);
    attention.seq_lens.push(end as u32);
    table.clear();
    table.extend_from_slice(&block_ids[..end.div_ceil(block_size)]);
    attention.block_tables.push(table);
}

fn stop_token_ids(request: &EngineRequest) -> Vec<TokenId> {
    let Some(params) = request.sampling().filter(|params| params.min_tokens > 0) else {
        return Vec::new();
    };
    let eos = request.eos_token_ids.iter().filter(|_| !params.ignore_eos);
    eos.chain(&params.stop_token_ids).copied().collect()
}

fn unknown(request: RequestId) -> ExecuteError {
    ExecuteError::InvalidStep(format!("request {request} was never begun"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_of_a_recorded_step_is_not_kept() {
        let chunk = Chunk {
            request: RequestId(1),
            sequence: 0,
            start: 0,
            end: 1,
            num_places: 0,
            num_guesses: 0,
        };
        let mut batch = RaggedBatch { chunks: vec![chunk], ..RaggedBatch::default() };
        let block_tables = vec![vec![7], vec![0], vec![0]];
        batch.groups = vec![AttentionMetadata { block_tables, ..AttentionMetadata::default() }];
        batch.clear();
        assert_eq!(batch.spare_tables, [[7]]);
        assert_eq!(batch.groups[0].num_seqs(), 0);
    }
}
