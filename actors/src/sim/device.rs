//! The simulator's device. It computes steps exactly, reads all KV that attention would read, and
//! fails when a plan says so.

mod content;
mod engine;
mod factory;
mod garbage;
mod kept;
mod outputs;
mod row;

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use parking_lot::Mutex;

pub use self::{
    engine::EngineDevice,
    factory::{Factory, Parts},
};
use self::{
    garbage::Reports,
    outputs::{empty, fail, pool},
    row::Row,
};
use super::{
    grammar,
    media::least_memory,
    memory::Memory,
    model::logprobs,
    rng::mix,
    workload::{Effect, Poison},
};
use crate::{
    fault::{Bug, planted},
    logic::{
        drafts::verify::num_valid_draws,
        request::{
            ids::{Epoch, RequestId, Step, TokenId},
            outputs::{
                DraftCounts, PromptLogprobs, RequestOutput, RowFailure, SampledToken, StepOutput,
            },
        },
        scheduler::output::SchedulerOutput,
    },
    ports::{ExecuteError, ModelExecutor},
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
    /// The step ends the process, half of the step's KV written.
    Death,
    /// The process is killed from outside, half of the step's KV written.
    Kill,
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
    /// Whether the KV cache outlives its process.
    pub keeps_kv_cache: bool,
    /// Stores to the directory of that cache, by number, right after which the process ends.
    pub last_stores: Vec<u64>,
}

/// A device of one process, which creates executors over one memory that outlives them.
#[derive(Debug)]
pub struct Device {
    engine: Arc<EngineDevice>,
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
    last: (Epoch, Step),
    /// Whether the memory outlives the process.
    is_kept: bool,
    /// Whether the process is dead. Its tasks may still run for a moment, as those of a real one do
    /// not.
    is_dead: bool,
}

/// A request's part of a step.
#[derive(Debug, Clone, Copy)]
struct Span {
    request: RequestId,
    start: usize,
    /// The end, with the guesses.
    end: usize,
    num_guesses: usize,
}

impl Span {
    /// Returns the end without the guesses.
    fn certain_end(&self) -> usize {
        self.end - self.num_guesses
    }
}

/// A request that cannot continue, and why.
type Broken = (RequestId, RowFailure);

#[derive(Debug)]
struct Executor {
    device: Arc<Device>,
    parts: Parts,
    epoch: Epoch,
    generation: u64,
    rows: BTreeMap<RequestId, Row>,
    num_draws: u64,
}

impl ModelExecutor for Executor {
    fn execute(&mut self, step: &SchedulerOutput) -> Result<StepOutput, ExecuteError> {
        let device = Arc::clone(&self.device);
        let mut state = device.state.lock();
        let mut engine = device.engine.lock();
        if state.is_dead {
            return Err(ExecuteError::Device("the process is dead".to_owned()));
        }
        let is_owner = (state.generation, state.newest_epoch) == (self.generation, self.epoch);
        if !is_owner && !planted(Bug::KeepStaleStep) {
            return Err(ExecuteError::Device("the memory was taken away".to_owned()));
        }
        engine.num_executions += 1;
        let execution = engine.num_executions;
        self.check_order(step, &mut state);
        self.check_budgets(step);
        let is_async = device.engine.plan.async_scheduling;
        engine.reports.begin_execution(step.epoch, execution, is_async);
        let (spans, broken) = self.receive(step, &mut engine.reports, execution)?;
        let fault = self.fault(step, &spans, execution, engine.are_faults_over);
        if fault.is_some() {
            device.engine.record.trouble();
        }
        if let Some(fault) = fault.filter(|fault| !matches!(fault, DeviceFault::Garbage(_))) {
            self.tear(&spans, &mut state.memory);
            drop((state, engine));
            self.parts.end_process(fault);
            return fail(fault);
        }
        let (memory, reports) = (&mut state.memory, &mut engine.reports);
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
        self.device.engine.record.violate(what);
    }

    /// Returns the fault of a step, if it has one.
    fn fault(
        &self,
        step: &SchedulerOutput,
        spans: &[Span],
        execution: u64,
        are_faults_over: bool,
    ) -> Option<DeviceFault> {
        let plan = &self.device.engine.plan;
        // A prompt that is computed whole has memory when it is alone.
        let is_smallest = self.device.engine.info.kv_spec.groups.is_empty() && spans.len() < 2;
        let least = least_memory(&self.device.engine.info);
        let is_too_large = plan.memory.is_some_and(|(from, most)| {
            let most = most.max(least);
            execution >= from && step.total_num_scheduled_tokens > most && !is_smallest
        });
        if is_too_large {
            Some(DeviceFault::OutOfMemory)
        } else if spans.iter().any(|span| self.is_poisoned(*span, Effect::Panic)) {
            Some(self.parts.effect_of_poison())
        } else {
            plan.faults.get(&execution).copied().filter(|_| !are_faults_over)
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
        let DevicePlan { max_num_batched_tokens, max_num_seqs, .. } = self.device.engine.plan;
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
            if format.is_some_and(|format| !self.parts.grammars.has(format)) {
                self.violate(|| format!("request {request} runs without its grammar"));
            }
            let (num_groups, life) =
                (self.device.engine.info.kv_spec.groups.len(), reports.begin_life());
            let adapter = new.request.lora.as_ref().map(|lora| self.parts.adapters.get(lora));
            // Only in a step of a past epoch, whose result is dropped. Otherwise the request fails.
            let missing = (adapter == Some(None))
                .then(|| RowFailure::Adapter(format!("request {request} lacks its adapter")));
            let adapter = adapter.flatten().unwrap_or_default();
            let mut row = Row::new(Arc::clone(&new.request), adapter, num_groups, life, execution);
            row.push(&new.request.prompt_token_ids);
            row.push(&new.output_token_ids);
            let end = start + new.num_scheduled_tokens;
            (row.num_known, row.num_computed) = (row.tokens.len(), end);
            row.grow(&new.block_ids);
            row.broken.clone_from(&missing);
            if self.rows.insert(request, row).is_some() {
                self.violate(|| format!("request {request} is new twice"));
            }
            if let Some(failure) = missing {
                broken.push((request, failure));
                continue;
            }
            spans.push(Span { request, start, end, num_guesses: 0 });
        }
        for cached in &step.scheduled_cached {
            let request = cached.request;
            let unknown = || ExecuteError::InvalidStep(format!("request {request} is not known"));
            let row = self.rows.get_mut(&request).ok_or_else(unknown)?;
            row.grow(&cached.new_block_ids);
            if let Some(failure) = &row.broken {
                broken.push((request, failure.clone()));
                continue;
            }
            let Range { start, end } = cached.certain_tokens(row.num_computed, row.num_known);
            row.num_computed = end;
            if cached.num_lookahead_tokens > 0 && end != row.tokens.len() {
                let record = &self.device.engine.record;
                record.violate(|| format!("request {request} guesses before its last token"));
            }
            // Its own token shows the poison, not a guess before it.
            let poison = self.device.engine.plan.poison.as_ref();
            let may_guess = poison.is_none_or(|poison| {
                poison.effect != Effect::Garbage || !poison.is_in(&row.request.prompt_token_ids)
            });
            if may_guess {
                row.guess(cached.num_lookahead_tokens, mix(execution ^ mix(request.0)));
            }
            let num_guesses = row.tokens.len() - row.num_known;
            spans.push(Span { request, start, end: end + num_guesses, num_guesses });
        }
        for span in std::mem::take(&mut spans) {
            let Some(row) = self.rows.get_mut(&span.request) else { continue };
            // Only of a request that has ended meanwhile. Otherwise it begins again.
            if self.parts.encoder.lacks(&row.request.mm_features, span.start..span.end) {
                row.broken = Some(RowFailure::Media);
                let images = &row.request.mm_features;
                self.device.engine.record.explain(|| format!("{span:?} lacks one of {images:?}"));
                broken.push((span.request, RowFailure::Media));
            } else {
                spans.push(span);
            }
        }
        let computes_whole = self.device.engine.info.kv_spec.groups.is_empty();
        for span in &spans {
            let row = self.rows.get(&span.request);
            let known = row.map_or(0, |row| row.tokens.len());
            if self.device.engine.info.attends_within_items
                && row.is_some_and(|row| row.is_cut(span.end))
            {
                self.violate(|| format!("{span:?} ends within an image"));
            }
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
        let Some(poison) = &self.device.engine.plan.poison else { return false };
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
            row.take(output.produced.tokens());
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
        let Some(params) = row.request.sampling() else { return empty(span.request) };
        let end = span.certain_end();
        let failure_at = |end: usize| {
            let num_outputs = end.saturating_sub(num_prompt_tokens);
            let last = row.tokens[..end].last().copied().filter(|_| num_outputs > 0);
            let format = params.structured_output.as_deref().filter(|_| is_complete);
            format.and_then(|format| grammar::break_off(format, num_outputs, last))
        };
        let failure = match failure_at(end) {
            Some(error) => Some(RowFailure::Grammar(error)),
            None => (is_complete && is_nan).then_some(RowFailure::NotANumber),
        };
        let mut seed = row.request.seed;
        if planted(Bug::StatefulGenerator) {
            seed ^= self.num_draws;
            self.num_draws += 1;
        }
        let mut draws: Vec<SampledToken> = Vec::new();
        if is_complete && failure.is_none() {
            // The draws after a failure do not count.
            let ends = (end..=span.end).take_while(|&end| failure_at(end).is_none());
            draws.extend(ends.filter_map(|end| row.draw(end, seed)));
        }
        let drawn: Vec<TokenId> = draws.iter().map(|draw| draw.token_id).collect();
        let num_valid = num_valid_draws(&row.tokens[row.num_known..], &drawn);
        let drafts = DraftCounts {
            num_drafted: span.num_guesses as u32,
            num_accepted: num_valid.saturating_sub(1) as u32,
            num_wanted: (mix(row.digests[end]) % 8) as u32,
        };
        let produced = draws.into_iter().take(num_valid).collect();
        let prompt_logprobs = params.prompt_logprobs.and_then(|count| {
            let positions = span.start + 1..(span.end + 1).min(num_prompt_tokens);
            let of = |at: usize| logprobs(row.digests[at], row.tokens[at], count);
            let rows: Vec<_> = positions.map(of).collect();
            (!rows.is_empty()).then_some(PromptLogprobs { start: span.start + 1, rows })
        });
        RequestOutput { request: span.request, produced, prompt_logprobs, drafts, failure }
    }
}
