//! The simulator's device. It computes steps exactly, reads all KV that attention would read, and
//! fails when a plan says so.

mod content;
mod garbage;
mod outputs;

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;

use self::{
    garbage::Reports,
    outputs::{empty, fail, pool},
};
use super::{
    adapter::Loader,
    grammar::{self, Compiler},
    memory::{Life, Memory},
    model::{Digest, Sampler, empty_digest, extend, logprobs},
    record::Record,
    workload::{Effect, Poison},
};
use crate::{
    fault::{Bug, planted},
    logic::{
        kv_cache::BlockIds,
        request::{
            EngineRequest,
            ids::{BlockId, Epoch, RequestId, Step, TokenId},
            outputs::{PromptLogprobs, RequestOutput, RowFailure, StepOutput},
        },
        scheduler::output::SchedulerOutput,
    },
    ports::{AdapterLoader, ExecuteError, ExecutorFactory, KvContent, ModelExecutor, ModelInfo},
};

/// A fault of a step on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceFault {
    /// The thread panics, half of the step's KV written.
    Panic,
    /// The driver reports an error, half of the step's KV written.
    Error,
    /// There is not enough memory for the step, half of its KV written.
    OutOfMemory,
    /// The row of this index, modulo the number of rows, is not finite.
    Garbage(usize),
}

/// The limits of one device's steps, and the device's faults.
#[derive(Debug, Clone, Default)]
pub struct DevicePlan {
    /// Faults by number of execution, from 1.
    pub faults: BTreeMap<u64, DeviceFault>,
    /// Executors that cannot be created, by number of the attempt, from 1.
    pub refusals: Vec<u64>,
    /// Maximum number of tokens in a step, at least 1, from this execution on.
    pub memory: Option<(u64, usize)>,
    /// Whether a thread that hangs keeps the memory, and an empty one takes its place.
    pub is_memory_held: bool,
    /// The prompt that it cannot compute.
    pub poison: Option<Poison>,
    /// Maximum number of tokens in one step.
    pub max_num_batched_tokens: usize,
    /// Maximum number of requests in one step.
    pub max_num_seqs: usize,
    /// Whether a step may be planned while the one before is being computed.
    pub async_scheduling: bool,
}

/// A device, which creates executors over one memory that outlives them.
#[derive(Debug)]
pub struct Device {
    info: ModelInfo,
    plan: DevicePlan,
    grammars: Arc<Compiler>,
    adapters: Arc<Loader>,
    record: Arc<Record>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    memory: Memory,
    /// Generation of the memory. Executors of an older generation, or of an earlier epoch, have
    /// lost it.
    generation: u64,
    newest_epoch: Epoch,
    /// Whether the content was lost and the loss is not confirmed yet.
    is_lost: bool,
    num_executions: u64,
    num_attempts: u64,
    last: (Epoch, Step),
    reports: Reports,
}

impl Device {
    /// Returns a device that follows `plan`. It looks up the compiled grammars in
    /// `grammars`, and the adapters in `adapters`.
    #[must_use]
    pub fn new(
        info: ModelInfo,
        plan: DevicePlan,
        grammars: Arc<Compiler>,
        adapters: Arc<Loader>,
        record: Arc<Record>,
    ) -> Arc<Self> {
        let memory = Memory::new(info.num_blocks, info.kv_spec.block_size);
        let last = (Epoch::default(), Step::default());
        let newest_epoch = Epoch::default();
        let (generation, num_executions, num_attempts) = (0, 0, 0);
        let state = State {
            memory,
            generation,
            newest_epoch,
            is_lost: false,
            num_executions,
            num_attempts,
            last,
            reports: Reports::default(),
        };
        Arc::new(Self { info, plan, grammars, adapters, record, state: Mutex::new(state) })
    }

    /// Returns the number of steps executed so far.
    pub fn num_executions(&self) -> u64 {
        self.state.lock().num_executions
    }
}

/// [`Device`] as an executor factory.
#[derive(Debug)]
pub struct Factory(pub Arc<Device>);

impl ExecutorFactory for Factory {
    fn info(&self) -> &ModelInfo {
        &self.0.info
    }

    fn reclaim(&self, epoch: Epoch) -> Result<KvContent, ExecuteError> {
        let mut state = self.0.state.lock();
        state.newest_epoch = state.newest_epoch.max(epoch.next());
        state.generation += 1;
        if !self.0.plan.is_memory_held {
            return Ok(KvContent::Kept);
        }
        state.is_lost = true;
        state.memory = Memory::new(self.0.info.num_blocks, self.0.info.kv_spec.block_size);
        Ok(KvContent::Lost)
    }

    fn forgotten(&self, last: Epoch) {
        let mut state = self.0.state.lock();
        if std::mem::take(&mut state.is_lost) {
            state.newest_epoch = state.newest_epoch.max(last.next());
        }
    }

    fn adapters(&self) -> Option<Arc<dyn AdapterLoader>> {
        let adapters = Arc::clone(&self.0.adapters);
        Some(adapters)
    }

    fn create(&self, epoch: Epoch) -> Result<Box<dyn ModelExecutor>, ExecuteError> {
        let mut state = self.0.state.lock();
        if state.newest_epoch > epoch && !planted(Bug::KeepStaleStep) {
            return Err(ExecuteError::Device(format!("{epoch:?} is past")));
        }
        if state.is_lost {
            return Err(ExecuteError::Device("a loss was not confirmed".to_owned()));
        }
        state.num_attempts += 1;
        if self.0.plan.refusals.contains(&state.num_attempts) {
            self.0.record.trouble();
            return Err(ExecuteError::Device("planned: there is no executor".to_owned()));
        }
        state.newest_epoch = epoch;
        let (device, generation) = (Arc::clone(&self.0), state.generation);
        Ok(Box::new(Executor { device, epoch, generation, rows: BTreeMap::new(), num_draws: 0 }))
    }
}

/// One request as the executor knows it.
#[derive(Debug)]
struct Row {
    request: Arc<EngineRequest>,
    tokens: Vec<TokenId>,
    /// Digest `i` is that of the first `i` tokens.
    digests: Vec<Digest>,
    /// The digests after the tokens that this executor computed for the request.
    computed: Vec<Digest>,
    /// One for each group of layers.
    tables: Vec<Vec<BlockId>>,
    /// Why its last token could not be drawn. Then the request cannot continue.
    broken: Option<RowFailure>,
    life: Life,
    /// Number of the execution that it began with.
    began: u64,
}

impl Row {
    fn new(
        request: Arc<EngineRequest>,
        adapter: u64,
        num_groups: usize,
        life: Life,
        began: u64,
    ) -> Self {
        let digests = vec![empty_digest(request.cache_salt.as_deref(), adapter)];
        let tables = vec![Vec::new(); num_groups];
        let (tokens, computed) = (Vec::new(), Vec::new());
        Self { request, tokens, digests, computed, tables, broken: None, life, began }
    }

    fn grow(&mut self, block_ids: &BlockIds) {
        for (group, table) in self.tables.iter_mut().enumerate() {
            table.extend_from_slice(block_ids.group(group));
        }
    }

    /// Returns the content that a group's layers have for the token at `position`.
    fn content(&self, group: usize, position: usize) -> Digest {
        self.digests[position + 1].rotate_left(group as u32)
    }

    fn push(&mut self, tokens: &[TokenId]) {
        for &token in tokens {
            let digest = extend(self.digests[self.tokens.len()], token);
            self.digests.push(digest);
            self.tokens.push(token);
        }
    }
}

/// A request's part of a step.
#[derive(Debug, Clone, Copy)]
struct Span {
    request: RequestId,
    start: usize,
    end: usize,
}

/// A request that cannot continue, and why.
type Broken = (RequestId, RowFailure);

#[derive(Debug)]
struct Executor {
    device: Arc<Device>,
    epoch: Epoch,
    generation: u64,
    rows: BTreeMap<RequestId, Row>,
    num_draws: u64,
}

impl ModelExecutor for Executor {
    fn execute(&mut self, step: &SchedulerOutput) -> Result<StepOutput, ExecuteError> {
        let device = Arc::clone(&self.device);
        let mut state = device.state.lock();
        let is_owner = (state.generation, state.newest_epoch) == (self.generation, self.epoch);
        if !is_owner && !planted(Bug::KeepStaleStep) {
            return Err(ExecuteError::Device("the memory was taken away".to_owned()));
        }
        state.num_executions += 1;
        let execution = state.num_executions;
        self.check_order(step, &mut state);
        self.check_budgets(step);
        state.reports.begin_execution(step.epoch, execution, device.plan.async_scheduling);
        let (spans, broken) = self.receive(step, &mut state.reports, execution)?;
        let fault = self.fault(step, &spans, execution);
        if fault.is_some() {
            device.record.trouble();
        }
        if let Some(fault @ (DeviceFault::Panic | DeviceFault::Error | DeviceFault::OutOfMemory)) =
            fault
        {
            self.tear(&spans, &mut state.memory);
            drop(state);
            return fail(fault);
        }
        let State { memory, reports, .. } = &mut *state;
        for index in self.in_order(&spans, memory.block_size()) {
            let span = spans[index];
            let is_garbage = self.is_garbage(fault, index, spans.len(), span)
                | self.begins_with_garbage(span, memory, reports);
            self.write(span, memory, is_garbage);
        }
        let outputs = spans.iter().map(|&span| self.row_output(span, memory, reports));
        let mut outputs: Vec<_> = outputs.collect();
        for output in &outputs {
            if output.failure == Some(RowFailure::NotANumber) {
                reports.report(step.epoch, execution, self.rows[&output.request].life);
            }
        }
        self.append(&outputs);
        outputs.extend(
            broken.into_iter().map(|(request, failure)| RequestOutput {
                failure: Some(failure),
                ..empty(request)
            }),
        );
        Ok(StepOutput { epoch: step.epoch, step: step.step, outputs })
    }
}

impl Executor {
    fn violate(&self, what: impl FnOnce() -> String) {
        self.device.record.violate(what);
    }

    /// Returns the fault of a step, if it has one.
    fn fault(&self, step: &SchedulerOutput, spans: &[Span], execution: u64) -> Option<DeviceFault> {
        let plan = &self.device.plan;
        // A prompt that is computed whole has memory when it is alone.
        let is_smallest = self.device.info.kv_spec.groups.is_empty() && spans.len() < 2;
        let is_too_large = plan.memory.is_some_and(|(from, most)| {
            execution >= from && step.total_num_scheduled_tokens > most && !is_smallest
        });
        if is_too_large {
            Some(DeviceFault::OutOfMemory)
        } else if spans.iter().any(|span| self.is_poisoned(*span, Effect::Panic)) {
            Some(DeviceFault::Panic)
        } else {
            plan.faults.get(&execution).copied()
        }
    }

    /// Checks that writes to the memory follow the order of epochs and steps.
    fn check_order(&self, step: &SchedulerOutput, state: &mut State) {
        let this = (step.epoch, step.step);
        if this <= state.last {
            let last = state.last;
            self.violate(|| format!("the device computes {this:?} after {last:?}"));
        }
        state.last = state.last.max(this);
    }

    fn check_budgets(&self, step: &SchedulerOutput) {
        let DevicePlan { max_num_batched_tokens, max_num_seqs, .. } = self.device.plan;
        let (mut tokens, mut seqs) = (0, 0);
        for (_, count) in step.num_scheduled_tokens() {
            tokens += count;
            seqs += 1;
        }
        let is_kept = tokens == step.total_num_scheduled_tokens
            && tokens <= max_num_batched_tokens
            && seqs <= max_num_seqs;
        if !is_kept {
            let step = step.step.0;
            self.violate(|| format!("step {step} has {tokens} tokens for {seqs} requests"));
        }
    }

    /// Updates the rows. Returns the tokens to compute, and the requests that cannot continue.
    fn receive(
        &mut self,
        step: &SchedulerOutput,
        reports: &mut Reports,
        execution: u64,
    ) -> Result<(Vec<Span>, Vec<Broken>), ExecuteError> {
        for request in step.finished.iter().chain(&step.preempted) {
            self.rows.remove(request);
        }
        let mut spans = Vec::with_capacity(step.scheduled_new.len() + step.scheduled_cached.len());
        let mut broken = Vec::new();
        for new in &step.scheduled_new {
            let (request, start) = (new.request.id, new.num_computed_tokens);
            let params = new.request.sampling();
            let format = params.and_then(|params| params.structured_output.as_deref());
            if format.is_some_and(|format| !self.device.grammars.has(format)) {
                self.violate(|| format!("request {request} runs without its grammar"));
            }
            let num_groups = self.device.info.kv_spec.groups.len();
            let life = reports.begin_life();
            let adapter = new.request.lora.as_ref().map(|lora| self.device.adapters.get(lora));
            if adapter == Some(None) {
                self.violate(|| format!("request {request} runs without its adapter"));
            }
            let adapter = adapter.flatten().unwrap_or_default();
            let owner = Arc::clone(&new.request);
            let mut row = Row::new(owner, adapter, num_groups, life, execution);
            row.push(&new.request.prompt_token_ids);
            row.push(&new.output_token_ids);
            row.grow(&new.block_ids);
            if self.rows.insert(request, row).is_some() {
                self.violate(|| format!("request {request} is new twice"));
            }
            spans.push(Span { request, start, end: start + new.num_scheduled_tokens });
        }
        for cached in &step.scheduled_cached {
            let (request, start) = (cached.request, cached.num_computed_tokens);
            let unknown = || ExecuteError::InvalidStep(format!("request {request} is not known"));
            let row = self.rows.get_mut(&request).ok_or_else(unknown)?;
            row.grow(&cached.new_block_ids);
            if let Some(failure) = &row.broken {
                broken.push((request, failure.clone()));
                continue;
            }
            spans.push(Span { request, start, end: start + cached.num_scheduled_tokens });
        }
        let computes_whole = self.device.info.kv_spec.groups.is_empty();
        for span in &spans {
            let known = self.rows.get(&span.request).map_or(0, |row| row.tokens.len());
            if computes_whole && (span.start, span.end) != (0, known) {
                self.violate(|| format!("{span:?} is a part of a prompt of {known} tokens"));
            }
            if span.end > known || span.start >= span.end {
                self.violate(|| format!("{span:?} of a request with {known} tokens"));
                return Err(ExecuteError::InvalidStep(format!("{span:?} of {known} tokens")));
            }
        }
        Ok((spans, broken))
    }

    fn is_garbage(
        &self,
        fault: Option<DeviceFault>,
        index: usize,
        num_rows: usize,
        span: Span,
    ) -> bool {
        match fault {
            Some(DeviceFault::Garbage(which)) => which % num_rows == index,
            _ => self.is_poisoned(span, Effect::Garbage),
        }
    }

    fn is_poisoned(&self, span: Span, effect: Effect) -> bool {
        let Some(poison) = &self.device.plan.poison else { return false };
        let request = &self.rows[&span.request].request;
        let is_it = poison.effect == effect && poison.is_in(&request.prompt_token_ids);
        let is_within = poison.within.is_some_and(|first| span.end > first);
        is_it && (is_within || span.end >= request.num_prompt_tokens() + poison.after)
    }

    /// Appends the drawn tokens to their requests, before the results are reported.
    fn append(&mut self, outputs: &[RequestOutput]) {
        for output in outputs {
            let Some(row) = self.rows.get_mut(&output.request) else { continue };
            row.broken.clone_from(&output.failure);
            let drawn: Vec<_> =
                output.produced.tokens().iter().map(|token| token.token_id).collect();
            row.push(&drawn);
        }
    }

    /// Returns the result for a span. Garbage is reported when a token is drawn. A part of a prompt
    /// has no logits, and no token is drawn for an output that its grammar ends.
    fn row_output(&mut self, span: Span, memory: &mut Memory, reports: &Reports) -> RequestOutput {
        let is_nan = self.reads_garbage(span, memory, reports);
        if let Some(row) = self.rows.get_mut(&span.request)
            && row.request.pooling().is_some()
        {
            return pool(row, span, is_nan);
        }
        let row = &self.rows[&span.request];
        let num_prompt_tokens = row.request.num_prompt_tokens();
        let is_complete = span.end == row.tokens.len();
        let mut seed = row.request.seed;
        if planted(Bug::StatefulGenerator) {
            seed ^= self.num_draws;
            self.num_draws += 1;
        }
        let Some(params) = row.request.sampling() else { return empty(span.request) };
        let sampler = Sampler { params, seed };
        let digest = row.digests[span.end];
        let num_outputs = span.end.saturating_sub(num_prompt_tokens);
        let last = row.tokens[..span.end].last().copied().filter(|_| num_outputs > 0);
        let draw = || sampler.sample(digest, span.end, num_outputs, last);
        let format = params.structured_output.as_deref().filter(|_| is_complete);
        let error = format.and_then(|format| grammar::break_off(format, num_outputs, last));
        let failure = match error {
            Some(error) => Some(RowFailure::Grammar(error)),
            None => (is_complete && is_nan).then_some(RowFailure::NotANumber),
        };
        let draws = is_complete && failure.is_none();
        let produced = draws.then(draw).into_iter().collect();
        let prompt_logprobs = params.prompt_logprobs.and_then(|count| {
            let positions = span.start + 1..(span.end + 1).min(num_prompt_tokens);
            let of = |at: usize| logprobs(row.digests[at], row.tokens[at], count);
            let rows: Vec<_> = positions.map(of).collect();
            (!rows.is_empty()).then_some(PromptLogprobs { start: span.start + 1, rows })
        });
        RequestOutput { request: span.request, produced, prompt_logprobs, failure }
    }
}
