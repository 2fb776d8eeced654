//! The model runner: one step after another on one device.

mod drafts;
mod logits;
mod pooling;
mod vocabulary;

use std::{collections::BTreeMap, mem, sync::Arc, thread, time::Instant};

use burn::tensor::Tensor;
use playhouse_actors::{
    logic::{
        request::{
            ids::RequestId,
            outputs::{DraftCounts, Produced, RequestOutput, RowFailure, StepOutput},
        },
        scheduler::output::SchedulerOutput,
    },
    ports::{ExecuteError, ModelExecutor},
};
use playhouse_kernels::{AttentionMetadata, profile::timed};

pub(super) use self::logits::logit_rows;
use self::logits::{DrawBuffers, NextRow, PromptRow};
pub(crate) use self::pooling::cut_of_joined;
use super::{
    adapters::AdapterStore,
    batch::{KvSizes, PersistentBatch, RaggedBatch, Sequence, Stores},
    constraint::{Allowed, ConstraintSources, Masks},
    drafters::Drafts,
    encoder::EncoderStore,
    kv_arena::{KvLease, KvMemory},
    threads::ComputeThreads,
    whole_prompts,
};
use crate::{
    grammar::GrammarStore,
    model::{KvPlace, Model, Positions, Step, StepMedia},
    token_rules::TokenRules,
};

/// Runs steps over shared weights and a leased KV cache.
pub(super) struct ModelRunner {
    model: Arc<Model>,
    kv_lease: KvLease,
    threads: ComputeThreads,
    constraints: Constraints,
    adapters: Option<Arc<AdapterStore>>,
    media: Option<Arc<EncoderStore>>,
    kv_layout: KvLayout,
    drafts: Drafts,
    batch: PersistentBatch,
    buffers: Buffers,
}

/// The layout of the KV cache, as steps see it.
#[derive(Debug, Clone)]
pub(super) struct KvLayout {
    pub(super) sizes: KvSizes,
    /// The place of each layer.
    pub(super) places: Arc<[KvPlace]>,
}

/// The sources of constraints on outputs.
#[derive(Debug, Clone)]
pub(crate) struct Constraints {
    pub(crate) grammars: Arc<GrammarStore>,
    pub(crate) token_rules: Arc<TokenRules>,
}

impl Constraints {
    /// Returns the sources for the outputs of `model`.
    fn sources(&self, model: &Model) -> ConstraintSources<'_> {
        ConstraintSources {
            grammars: &self.grammars,
            token_rules: &self.token_rules,
            vocab_size: model.vocab_size,
        }
    }
}

#[cfg(test)]
impl Constraints {
    /// Returns constraints for a test, without token rules.
    pub(super) fn of(grammars: GrammarStore) -> Self {
        Self { grammars: Arc::new(grammars), token_rules: Arc::default() }
    }
}

/// The allowed tokens of each constrained request, by its number of guesses before them.
type AllowedTokens = BTreeMap<RequestId, Vec<Allowed>>;

/// The hidden states of a step's tokens, `[num_tokens, hidden_size]` each.
struct HiddenStates {
    /// After the final norm.
    last: Tensor<2>,
    /// Before the layers that the drafter reads.
    inputs: Vec<Tensor<2>>,
}

/// Memory that steps reuse.
#[derive(Debug, Default)]
struct Buffers {
    ragged: RaggedBatch,
    next_rows: Vec<NextRow>,
    prompt_rows: Vec<PromptRow>,
    draw: DrawBuffers,
}

impl ModelRunner {
    pub(super) fn new(
        model: Arc<Model>,
        kv_lease: KvLease,
        threads: ComputeThreads,
        constraints: Constraints,
        kv_layout: KvLayout,
    ) -> Self {
        let (batch, buffers) = (PersistentBatch::default(), Buffers::default());
        Self {
            model,
            kv_lease,
            threads,
            constraints,
            adapters: None,
            media: None,
            kv_layout,
            drafts: Drafts::default(),
            batch,
            buffers,
        }
    }

    /// Lets requests take adapters from `adapters`.
    pub(super) fn with_adapters(self, adapters: Option<Arc<AdapterStore>>) -> Self {
        Self { adapters, ..self }
    }

    /// Lets requests take encoded images and sounds from `media`.
    pub(super) fn with_media(self, media: Option<Arc<EncoderStore>>) -> Self {
        Self { media, ..self }
    }

    /// Lets the runner guess tokens.
    pub(super) fn with_drafts(self, drafts: Drafts) -> Self {
        Self { drafts, ..self }
    }

    /// Returns the hidden states, and the allowed tokens of each constrained request: those after
    /// its last token and after each guess. Both are computed at the same time.
    fn compute(
        &mut self,
        batch: &mut RaggedBatch,
    ) -> Result<(HiddenStates, AllowedTokens), ExecuteError> {
        let jobs = self.batch.lend_constraints(&batch.chunks);
        if jobs.is_empty() {
            return Ok((timed("forward", || self.forward(batch))?, BTreeMap::new()));
        }
        let sources = self.constraints.sources(&self.model);
        let (hidden, done) = thread::scope(|scope| {
            let masks = timed("masks", || Masks::start(scope, jobs, sources));
            let hidden = timed("forward", || self.forward(batch));
            (hidden, timed("masks", || Vec::from_iter(masks.join())))
        });
        let allowed = done.into_iter().map(|done| self.batch.take_back(done)).collect();
        Ok((hidden?, allowed))
    }

    /// Returns the hidden states of the batch's tokens. A recorded step may have more rows.
    fn forward(&self, batch: &mut RaggedBatch) -> Result<HiddenStates, ExecuteError> {
        let mut kv_memory = self.kv_lease.lock()?;
        let KvMemory { cache, graphs, .. } = &mut *kv_memory;
        let backbone = &*self.model.backbone;
        let places = &*self.kv_layout.places;
        let RaggedBatch { token_ids, types, groups, adapters, media, axes, rotary_rows, .. } =
            batch;
        let (types, adapters): (&[u32], _) = (types, &*adapters);
        let (media, axes): (&StepMedia, &[[u32; 3]]) = (media, axes);
        let is_plain =
            adapters.is_empty() && media.is_empty() && axes.is_empty() && rotary_rows.is_empty();
        if is_plain && self.kv_layout.sizes.num_groups == 0 {
            // Hardly two batches of whole prompts have the same shape, so none is recorded.
            let last = self
                .threads
                .run(|| whole_prompts::forward(backbone, token_ids, types, &groups[0], cache));
            return Ok(HiddenStates { last, inputs: Vec::new() });
        }
        let (wanted, mut inputs) = (self.drafts.layers_read(), Vec::new());
        let mut forward = |token_ids: &[u32], metas: &[AttentionMetadata]| {
            let step = Step::of_groups(metas, places, cache).with_adapters(adapters);
            let mut step = step.with_media(media);
            let hidden = media.placed(backbone.embed(token_ids, step.adapters()));
            let positions = Positions::of_text(&metas[0]).with_types(types).with_axes(axes);
            let positions = positions.with_rotary_rows(rotary_rows);
            let (last, read) = backbone.forward_with_inputs(hidden, positions, &mut step, wanted);
            inputs = read;
            last
        };
        let last = self.threads.run(|| match is_plain && wanted.is_empty() {
            true => graphs.run(token_ids, groups, forward),
            // A recorded step has no place for the weights of adapters or for images, and returns
            // one tensor.
            false => forward(token_ids, groups),
        });
        if let Some(why) = graphs.take_failure() {
            tracing::warn!(
                why,
                "steps cannot be recorded on this device and are launched one by one"
            );
        }
        Ok(HiddenStates { last, inputs })
    }

    /// Frees recorded steps, because the memory that a step lacked is more valuable.
    fn forget_recordings(&self) {
        // Without a good lease, another runner has the cache, and nothing is freed.
        if let Ok(mut kv_memory) = self.kv_lease.lock() {
            kv_memory.forget_recordings();
        }
    }

    fn run(
        &mut self,
        step: &SchedulerOutput,
        buffers: &mut Buffers,
    ) -> Result<Vec<RequestOutput>, ExecuteError> {
        let sizes = self.kv_layout.sizes;
        let drafts = &mut self.drafts;
        let pause = drafts.since_last_step();
        let stores = Stores { adapters: self.adapters.as_deref(), media: self.media.as_deref() };
        let forget = |sequence: &Sequence, is_ended| drafts.forget(sequence, is_ended);
        timed("receive", || self.batch.receive(step, stores, &mut buffers.ragged, forget))?;
        self.guess(&mut buffers.ragged)?;
        let begun = Instant::now();
        let encoder = self.media.as_deref().map(EncoderStore::encoder);
        timed("lay_out", || self.batch.lay_out(sizes, encoder, &mut buffers.ragged))?;
        if self.model.backbone.short_context().is_some() {
            self.batch.turn_short(self.model.max_model_len, &mut buffers.ragged)?;
        }
        let empty = |request: RequestId, failure: Option<RowFailure>| RequestOutput {
            request,
            produced: Produced::default(),
            prompt_logprobs: None,
            drafts: DraftCounts::default(),
            failure,
        };
        let chunks = buffers.ragged.chunks.iter();
        let mut outputs: Vec<_> = chunks.map(|chunk| empty(chunk.request, None)).collect();
        let mut for_drafter = Vec::new();
        if !outputs.is_empty() {
            let (states, allowed) = self.compute(&mut buffers.ragged)?;
            let hidden = states.last.clone();
            for_drafter = self.states_for_drafter(states);
            self.find_rows(buffers)?;
            self.read_prompts(&hidden, buffers, &mut outputs)?;
            self.pool(&hidden, &buffers.ragged, &mut outputs)?;
            self.sample(hidden, &allowed, buffers, &mut outputs)?;
            self.verify(&buffers.ragged.chunks, &mut outputs)?;
        }
        for (chunk, output) in buffers.ragged.chunks.iter().zip(&outputs) {
            let drawn = match &output.failure {
                Some(failure) => Err(failure.clone()),
                None => Ok(output.produced.tokens()),
            };
            self.batch.continue_with(chunk, drawn);
        }
        self.learn_time(&buffers.ragged, &outputs, begun.elapsed(), pause);
        self.read_states(&buffers.ragged, for_drafter)?;
        self.ask_for_places(&buffers.ragged.chunks, &mut outputs)?;
        let broken = buffers.ragged.broken.drain(..);
        outputs.extend(broken.map(|(request, failure)| empty(request, Some(failure))));
        self.drafts.end_step();
        Ok(outputs)
    }
}

impl ModelExecutor for ModelRunner {
    fn execute(&mut self, step: &SchedulerOutput) -> Result<StepOutput, ExecuteError> {
        timed("step", || {
            let mut buffers = mem::take(&mut self.buffers);
            let outputs = self.run(step, &mut buffers);
            self.buffers = buffers;
            if let Err(ExecuteError::OutOfMemory(_)) = &outputs {
                self.forget_recordings();
            }
            Ok(StepOutput { epoch: step.epoch, step: step.step, outputs: outputs? })
        })
    }
}
