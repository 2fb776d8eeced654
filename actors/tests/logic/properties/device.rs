//! A device that records, for every slot of its KV memory, the tokens that the slot was computed
//! from. So a read detects wrong content. As on a real device, content that is not finite is
//! reported when a token is drawn from it, not before.

use std::{collections::BTreeMap, ops::Range};

use playhouse_actors::logic::{
    drafts::verify::num_valid_draws,
    kv_cache::{BlockIds, KvKind},
    request::{
        EngineRequest,
        ids::{BlockId, Epoch, RequestId, TokenId},
        outputs::{
            DraftCounts, Produced, PromptLogprobs, RequestOutput, RowFailure, SampledToken,
            StepOutput,
        },
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
    /// Garbage that a request wrote in place of the content with this digest.
    NotANumber(u64, Life),
    /// Torn by a crash, or never written.
    Torn,
}

/// A request, and the step that it began with. A request that begins again has another life.
type Life = (RequestId, u64);

#[derive(Debug, Clone)]
struct Row {
    life: Life,
    prompt_len: usize,
    wants_prompt_logprobs: bool,
    salt: u64,
    /// The tokens, and while a step runs its guesses.
    tokens: Vec<TokenId>,
    num_known: usize,
    /// Number of tokens whose KV exists.
    num_computed: usize,
    /// One for each group of layers.
    tables: Vec<Vec<BlockId>>,
    /// Whether its last token could not be drawn, so that it cannot continue.
    is_broken: bool,
}

#[derive(Debug)]
pub(crate) struct Device {
    memory: Vec<[Slot; BLOCK_SIZE]>,
    /// The tokens that the layers of each group read.
    kinds: Vec<KvKind>,
    rows: BTreeMap<RequestId, Row>,
    epoch: Epoch,
    /// Whether a step may be planned while the one before is being computed.
    is_async: bool,
    /// Reports of this epoch that the scheduler may not know when it plans the next step: the step
    /// and the life.
    recent: Vec<(u64, Life)>,
    /// For each life that was reported, the first step that may not begin with its garbage.
    known_at: BTreeMap<Life, u64>,
}

/// Returns the content of a group's slot for the last of these tokens.
fn content(group: usize, salt: u64, tokens: &[TokenId]) -> u64 {
    digest(salt, tokens).rotate_left(group as u32)
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
    pub(crate) fn new(num_blocks: u32, kinds: Vec<KvKind>, is_async: bool) -> Self {
        let memory = vec![[Slot::Torn; BLOCK_SIZE]; num_blocks as usize];
        Self {
            memory,
            kinds,
            rows: BTreeMap::new(),
            epoch: Epoch::default(),
            is_async,
            recent: Vec::new(),
            known_at: BTreeMap::new(),
        }
    }

    /// Computes a step, without requests that cannot continue. Bit i of `nan_rows` spoils row i.
    pub(crate) fn execute(&mut self, step: &SchedulerOutput, nan_rows: u32) -> StepOutput {
        let mut spans = self.receive(step);
        let broken = spans.extract_if(.., |(request, ..)| self.rows[request].is_broken);
        let broken: Vec<_> = broken.map(|(request, ..)| request).collect();
        for index in self.in_order(&spans) {
            let (request, start, end) = spans[index];
            let begins_with_garbage = self.begins_with_garbage(request, start);
            let is_spoilt = begins_with_garbage || nan_rows >> (index % 32) & 1 == 1;
            let life = self.rows[&request].life;
            self.write(request, start..end, |digest| match is_spoilt {
                true => Slot::NotANumber(digest, life),
                false => Slot::Computed(digest),
            });
        }
        let outputs = spans.iter().map(|&(request, start, end)| self.read(request, start, end));
        let mut outputs: Vec<_> = outputs.collect();
        for output in &outputs {
            let row = self.rows.get_mut(&output.request).unwrap();
            if output.failure.is_some() {
                row.is_broken = true;
                self.recent.push((step.step.0, row.life));
            }
            row.take(output.produced.tokens());
        }
        outputs.extend(broken.into_iter().map(|request| RequestOutput {
            request,
            produced: Produced::default(),
            prompt_logprobs: None,
            drafts: DraftCounts::default(),
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

    /// Returns whether a group's block was computed from these tokens, including those of the
    /// blocks before it. The last block may be partial. The result may be garbage that was not
    /// reported yet.
    pub(crate) fn holds(
        &self,
        (block, group): (BlockId, usize),
        request: &EngineRequest,
        tokens: &[TokenId],
    ) -> bool {
        let start = (tokens.len() - 1) / BLOCK_SIZE * BLOCK_SIZE;
        let slots = &self.memory[block as usize];
        let holds = |slot: usize, offset: usize| {
            let expected = content(group, salt_of(request), &tokens[..=start + offset]);
            match slots[slot] {
                Slot::Computed(found) => found == expected,
                Slot::NotANumber(of, life) => of == expected && !self.known_at.contains_key(&life),
                Slot::Torn => false,
            }
        };
        if self.kinds[group] == KvKind::State {
            return holds(0, tokens.len() - 1 - start);
        }
        (0..tokens.len() - start).all(|offset| holds(offset, offset))
    }

    /// Returns each request's tables, one for each group.
    pub(crate) fn tables(&self) -> impl Iterator<Item = (RequestId, &[Vec<BlockId>])> {
        self.rows.iter().map(|(&request, row)| (request, row.tables.as_slice()))
    }

    /// Updates the rows. Returns request, first token and end of each computation.
    fn receive(&mut self, step: &SchedulerOutput) -> Vec<(RequestId, usize, usize)> {
        if step.epoch > self.epoch {
            self.rows.clear();
            self.epoch = step.epoch;
            // These reports may have been lost.
            self.recent.clear();
        }
        assert_eq!(step.epoch, self.epoch);
        let is_known = |(when, _): &mut (u64, Life)| *when + u64::from(self.is_async) < step.step.0;
        for (_, life) in self.recent.extract_if(.., is_known) {
            self.known_at.entry(life).or_insert(step.step.0);
        }
        for request in step.finished.iter().chain(&step.preempted) {
            self.rows.remove(request);
        }
        let mut spans = Vec::new();
        for new in &step.scheduled_new {
            let known = self.rows.insert(new.request.id, row(new, step, self.kinds.len()));
            assert!(known.is_none(), "{:?} is new twice", new.request.id);
            let end = new.num_computed_tokens + new.num_scheduled_tokens;
            spans.push((new.request.id, new.num_computed_tokens, end));
        }
        for cached in &step.scheduled_cached {
            let row = self.rows.get_mut(&cached.request).unwrap();
            grow(&mut row.tables, &cached.new_block_ids);
            let known = cached.certain_tokens(row.num_computed, row.num_known);
            row.num_computed = known.end;
            row.guess(step.step.0, cached.num_lookahead_tokens);
            spans.push((cached.request, known.start, known.end + row.tokens.len() - row.num_known));
        }
        spans
    }

    fn write(
        &mut self,
        request: RequestId,
        positions: Range<usize>,
        mut slot: impl FnMut(u64) -> Slot,
    ) {
        let row = &self.rows[&request];
        assert!(positions.end <= row.tokens.len(), "tokens that are not there");
        let end = positions.end;
        for position in positions {
            for (group, table) in row.tables.iter().enumerate() {
                let block = table[position / BLOCK_SIZE];
                assert_ne!(block, 0, "the null block is never written");
                let kind = self.kinds[group];
                // A state is kept at the ends of blocks and of the step, without guesses.
                let end = end.min(row.num_known);
                let is_last = position + 1 == end || (position + 1).is_multiple_of(BLOCK_SIZE);
                if kind != KvKind::State || is_last && position < end {
                    let value = slot(content(group, row.salt, &row.tokens[..=position]));
                    self.memory[block as usize][offset(kind, position)] = value;
                }
            }
        }
    }

    /// Returns the indices of the spans in an order in which each finds the content that others of
    /// the same step write for it.
    fn in_order(&self, spans: &[(RequestId, usize, usize)]) -> Vec<usize> {
        let blocks = |positions: Range<usize>| {
            positions.start / BLOCK_SIZE..positions.end.div_ceil(BLOCK_SIZE)
        };
        let feeds = |from: usize, to: usize| {
            let ((from, start, end), (to, next, _)) = (spans[from], spans[to]);
            let tables = self.rows[&from].tables.iter().zip(&self.rows[&to].tables);
            self.kinds.iter().zip(tables).any(|(kind, (written, read))| {
                let written = &written[blocks(start..end)];
                read[blocks(kind.num_unread(next)..next)].iter().any(|it| written.contains(it))
            })
        };
        let mut left: Vec<usize> = (0..spans.len()).collect();
        let mut order = Vec::new();
        while !left.is_empty() {
            let waits = |to: &usize| left.iter().any(|from| from != to && feeds(*from, *to));
            let ready: Vec<usize> = left.iter().copied().filter(|to| !waits(to)).collect();
            assert!(!ready.is_empty(), "requests wait for each other");
            left.retain(|index| !ready.contains(index));
            order.extend(ready);
        }
        order
    }

    /// Returns whether some of the content that a span begins with is garbage. A state must be that
    /// of the token before the span.
    fn begins_with_garbage(&self, request: RequestId, start: usize) -> bool {
        let groups = self.kinds.iter().enumerate();
        let mut read = groups.flat_map(|(group, kind)| {
            (kind.num_unread(start)..start).map(move |position| (group, position))
        });
        read.any(|(group, position)| self.reads(request, group, position))
    }

    /// Reads what a group's layers have for `position`. Returns whether it is garbage.
    fn reads(&self, request: RequestId, group: usize, position: usize) -> bool {
        let row = &self.rows[&request];
        let block = row.tables[group][position / BLOCK_SIZE];
        assert_ne!(block, 0, "the null block is never read");
        let expected = content(group, row.salt, &row.tokens[..=position]);
        match self.memory[block as usize][offset(self.kinds[group], position)] {
            Slot::Computed(found) => {
                assert_eq!(found, expected, "foreign KV");
                false
            }
            Slot::NotANumber(found, life) => {
                assert_eq!(found, expected, "foreign garbage");
                let known_at = self.known_at.get(&life);
                let may_read = known_at.is_none_or(|&known_at| row.life.1 < known_at);
                assert!(may_read, "{request:?} reads garbage that was reported before it began");
                true
            }
            Slot::Torn => panic!("{request:?} reads a slot that was never computed"),
        }
    }

    /// Reads the KV of every token that attention reads, and returns the output.
    fn read(&self, request: RequestId, start: usize, end: usize) -> RequestOutput {
        let row = &self.rows[&request];
        let groups = self.kinds.iter().enumerate();
        let read = groups.flat_map(|(group, kind)| {
            let read = match kind {
                // The state before the span was read before it was written over.
                KvKind::State => end.min(row.num_known) - 1..end.min(row.num_known),
                kind => kind.num_unread(start)..end,
            };
            read.map(move |position| (group, position))
        });
        let is_nan =
            read.fold(false, |all, (group, position)| all | self.reads(request, group, position));
        let is_complete = end == row.tokens.len();
        let guesses = &row.tokens[row.num_known..];
        let draws = (row.num_known..=end).map(|end| next_token(row.salt, &row.tokens[..end]));
        let draws: Vec<TokenId> = draws.collect();
        let num_valid = num_valid_draws(guesses, &draws);
        let drawn = draws.into_iter().map(|token_id| SampledToken { token_id, logprobs: None });
        let is_drawn = is_complete && !is_nan;
        let produced = drawn.take(if is_drawn { num_valid } else { 0 }).collect();
        let drafts = DraftCounts {
            num_drafted: guesses.len() as u32,
            num_accepted: if is_drawn { num_valid as u32 - 1 } else { 0 },
            num_wanted: (digest(row.salt, &row.tokens) % 6) as u32,
        };
        let positions = start + 1..(end + 1).min(row.prompt_len);
        let rows = positions.map(|_| Vec::new()).collect::<Vec<_>>();
        let is_asked = row.wants_prompt_logprobs && !rows.is_empty();
        let prompt_logprobs = is_asked.then_some(PromptLogprobs { start: start + 1, rows });
        let failure = (is_complete && is_nan).then_some(RowFailure::NotANumber);
        RequestOutput { request, produced, prompt_logprobs, drafts, failure }
    }
}

impl Row {
    /// Guesses at most `num_places` tokens after the known ones. Some guesses are right.
    fn guess(&mut self, step: u64, num_places: usize) {
        let mut luck = digest(step, &self.tokens);
        let num_guesses = luck as usize % (num_places + 1);
        for _ in 0..num_guesses {
            luck = luck.rotate_left(7);
            let right = next_token(self.salt, &self.tokens);
            self.tokens.push(if luck.is_multiple_of(4) { (right + 1) % 3 } else { right });
        }
    }

    /// Replaces the guesses by the drawn tokens.
    fn take(&mut self, drawn: &[SampledToken]) {
        self.tokens.truncate(self.num_known);
        self.tokens.extend(drawn.iter().map(|token| token.token_id));
        self.num_known = self.tokens.len();
        if !drawn.is_empty() {
            self.num_computed = self.num_known - 1;
        }
    }
}

/// Returns the slot of a block that has the content of `position`.
fn offset(kind: KvKind, position: usize) -> usize {
    if kind == KvKind::State { 0 } else { position % BLOCK_SIZE }
}

fn grow(tables: &mut [Vec<BlockId>], block_ids: &BlockIds) {
    for (group, table) in tables.iter_mut().enumerate() {
        table.extend(block_ids.group(group));
    }
}

fn row(new: &NewRequestData, step: &SchedulerOutput, num_groups: usize) -> Row {
    let request = &new.request;
    let mut tokens = request.prompt_token_ids.to_vec();
    tokens.extend(&new.output_token_ids);
    let mut tables = vec![Vec::new(); num_groups];
    grow(&mut tables, &new.block_ids);
    Row {
        life: (request.id, step.step.0),
        prompt_len: request.num_prompt_tokens(),
        wants_prompt_logprobs: request
            .sampling()
            .is_some_and(|params| params.prompt_logprobs.is_some()),
        salt: salt_of(request),
        num_known: tokens.len(),
        num_computed: new.num_computed_tokens + new.num_scheduled_tokens,
        tokens,
        tables,
        is_broken: false,
    }
}
