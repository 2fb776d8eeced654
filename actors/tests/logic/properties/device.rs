//! A device that records, for every slot of its KV memory, the tokens that the slot was computed
//! from. So a read detects wrong content.

use std::collections::BTreeMap;

use playhouse_actors::logic::{
    request::{
        EngineRequest,
        ids::{BlockId, Epoch, RequestId, TokenId},
        outputs::{Produced, PromptLogprobs, RequestOutput, RowFailure, SampledToken, StepOutput},
    },
    scheduler::output::{NewRequestData, SchedulerOutput},
};

pub(crate) const BLOCK_SIZE: usize = 4;
/// One of the three tokens.
pub(crate) const EOS: TokenId = 2;

/// The content of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slot {
    /// Computed from the tokens with this digest.
    Computed(u64),
    /// Garbage of the step with this number.
    NotANumber(u64),
    /// Torn by a crash, or never written.
    Torn,
}

#[derive(Debug, Clone)]
struct Row {
    prompt_len: usize,
    wants_prompt_logprobs: bool,
    salt: u64,
    tokens: Vec<TokenId>,
    table: Vec<BlockId>,
    /// Whether its last token could not be drawn, so that it cannot continue.
    is_broken: bool,
}

#[derive(Debug)]
pub(crate) struct Device {
    memory: Vec<[Slot; BLOCK_SIZE]>,
    rows: BTreeMap<RequestId, Row>,
    epoch: Epoch,
    /// Whether a step may be planned while the one before is being computed.
    is_async: bool,
}

/// Returns a hash of a salt and a sequence of tokens.
fn digest(salt: u64, tokens: &[TokenId]) -> u64 {
    let mix = |hash: u64, value: u64| (hash ^ value).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
    tokens.iter().fold(mix(0xcbf2_9ce4, salt), |hash, &token| mix(hash, token.into()))
}

fn salt_of(request: &EngineRequest) -> u64 {
    request.cache_salt.as_ref().map_or(0, |salt| 1 + salt.len() as u64)
}

/// Returns the model's token after these tokens.
fn next_token(salt: u64, tokens: &[TokenId]) -> TokenId {
    (digest(salt, tokens) % 3) as TokenId
}

/// Returns the output of a request in an engine without failures.
pub(crate) fn expected_output(request: &EngineRequest, len: usize) -> Vec<TokenId> {
    let mut tokens = request.prompt_token_ids.to_vec();
    (0..len).for_each(|_| tokens.push(next_token(salt_of(request), &tokens)));
    tokens.split_off(request.num_prompt_tokens())
}

impl Device {
    pub(crate) fn new(num_blocks: u32, is_async: bool) -> Self {
        let memory = vec![[Slot::Torn; BLOCK_SIZE]; num_blocks as usize];
        Self { memory, rows: BTreeMap::new(), epoch: Epoch::default(), is_async }
    }

    /// Computes a step, without requests that cannot continue. Bit i of `nan_rows` spoils row i.
    pub(crate) fn execute(&mut self, step: &SchedulerOutput, nan_rows: u32) -> StepOutput {
        let mut spans = self.receive(step);
        let broken = spans.extract_if(.., |(request, ..)| self.rows[request].is_broken);
        let broken: Vec<_> = broken.map(|(request, ..)| request).collect();
        for (index, &(request, start, end)) in spans.iter().enumerate() {
            let is_spoilt = nan_rows >> (index % 32) & 1 == 1;
            self.write(request, start..end, |digest| match is_spoilt {
                true => Slot::NotANumber(step.step.0),
                false => Slot::Computed(digest),
            });
        }
        let outputs =
            spans.iter().map(|&(request, start, end)| self.read(step, request, start, end));
        let mut outputs: Vec<_> = outputs.collect();
        for output in &outputs {
            let row = self.rows.get_mut(&output.request).unwrap();
            // A request with garbage within its prompt is computed on. It lacks no token, and
            // requests planned ahead may read its blocks.
            row.is_broken |= output.failure.is_some() && !output.produced.tokens().is_empty();
            row.tokens.extend(output.produced.tokens().iter().map(|token| token.token_id));
        }
        outputs.extend(broken.into_iter().map(|request| RequestOutput {
            request,
            produced: Produced::default(),
            prompt_logprobs: None,
            failure: Some(RowFailure::NotANumber),
        }));
        StepOutput { epoch: step.epoch, step: step.step, outputs }
    }

    /// Dies within a step: each slot is written or torn, by the bits of `torn`.
    pub(crate) fn crash(&mut self, step: &SchedulerOutput, torn: u64) {
        let mut bits = torn;
        for (request, start, end) in self.receive(step) {
            if self.rows[&request].is_broken {
                continue;
            }
            self.write(request, start..end, |digest| {
                bits = bits.rotate_left(1);
                if bits & 1 == 1 { Slot::Torn } else { Slot::Computed(digest) }
            });
        }
    }

    /// Returns whether a block was computed from these tokens, including those of the blocks before
    /// it. The last block may be partial.
    pub(crate) fn holds(
        &self,
        block: BlockId,
        request: &EngineRequest,
        tokens: &[TokenId],
    ) -> bool {
        let start = (tokens.len() - 1) / BLOCK_SIZE * BLOCK_SIZE;
        let expected =
            |offset: usize| Slot::Computed(digest(salt_of(request), &tokens[..=start + offset]));
        let slots = &self.memory[block as usize];
        (0..tokens.len() - start).all(|offset| slots[offset] == expected(offset))
    }

    pub(crate) fn tables(&self) -> impl Iterator<Item = (RequestId, &[BlockId])> {
        self.rows.iter().map(|(&request, row)| (request, row.table.as_slice()))
    }

    /// Updates the rows. Returns request, first token and end of each computation.
    fn receive(&mut self, step: &SchedulerOutput) -> Vec<(RequestId, usize, usize)> {
        if step.epoch > self.epoch {
            self.rows.clear();
            self.epoch = step.epoch;
        }
        assert_eq!(step.epoch, self.epoch);
        for request in step.finished.iter().chain(&step.preempted) {
            self.rows.remove(request);
        }
        let mut spans = Vec::new();
        for new in &step.scheduled_new {
            let known = self.rows.insert(new.request.id, row(new));
            assert!(known.is_none(), "{:?} is new twice", new.request.id);
            let end = new.num_computed_tokens + new.num_scheduled_tokens;
            spans.push((new.request.id, new.num_computed_tokens, end));
        }
        for cached in &step.scheduled_cached {
            let row = self.rows.get_mut(&cached.request).unwrap();
            row.table.extend(cached.new_block_ids.group(0));
            let end = cached.num_computed_tokens + cached.num_scheduled_tokens;
            spans.push((cached.request, cached.num_computed_tokens, end));
        }
        spans
    }

    fn write(
        &mut self,
        request: RequestId,
        positions: std::ops::Range<usize>,
        mut slot: impl FnMut(u64) -> Slot,
    ) {
        let row = &self.rows[&request];
        assert!(positions.end <= row.tokens.len(), "tokens that are not there");
        for position in positions {
            let block = row.table[position / BLOCK_SIZE];
            assert_ne!(block, 0, "the null block is never written");
            let value = slot(digest(row.salt, &row.tokens[..=position]));
            self.memory[block as usize][position % BLOCK_SIZE] = value;
        }
    }

    /// Reads the KV of every token up to the last, as attention does, and returns the output.
    fn read(
        &self,
        step: &SchedulerOutput,
        request: RequestId,
        start: usize,
        end: usize,
    ) -> RequestOutput {
        let row = &self.rows[&request];
        let mut is_nan = false;
        for position in 0..end {
            let block = row.table[position / BLOCK_SIZE];
            let expected = digest(row.salt, &row.tokens[..=position]);
            match self.memory[block as usize][position % BLOCK_SIZE] {
                Slot::Computed(found) => assert_eq!(found, expected, "foreign KV"),
                Slot::NotANumber(when) => {
                    let is_ahead = self.is_async && when + 1 == step.step.0;
                    assert!(is_ahead || when == step.step.0, "garbage of an earlier step is read");
                    is_nan = true;
                }
                Slot::Torn => panic!("{request:?} reads a slot that was never computed"),
            }
        }
        let is_complete = end == row.tokens.len();
        let token_id = next_token(row.salt, &row.tokens);
        let drawn = is_complete.then_some(SampledToken { token_id, logprobs: None });
        let produced = drawn.into_iter().collect();
        let positions = start + 1..(end + 1).min(row.prompt_len);
        let rows = positions.map(|_| Vec::new()).collect::<Vec<_>>();
        let is_asked = row.wants_prompt_logprobs && !rows.is_empty();
        let prompt_logprobs = is_asked.then_some(PromptLogprobs { start: start + 1, rows });
        let failure = is_nan.then_some(RowFailure::NotANumber);
        RequestOutput { request, produced, prompt_logprobs, failure }
    }
}

fn row(new: &NewRequestData) -> Row {
    let request = &new.request;
    let mut tokens = request.prompt_token_ids.to_vec();
    tokens.extend(&new.output_token_ids);
    Row {
        prompt_len: request.num_prompt_tokens(),
        wants_prompt_logprobs: request.sampling().prompt_logprobs.is_some(),
        salt: salt_of(request),
        tokens,
        table: new.block_ids.group(0).to_vec(),
        is_broken: false,
    }
}
