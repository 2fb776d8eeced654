//! Drafters: they guess a request's next tokens, and the model verifies all guesses in one step.
//!
//! A guess costs time and nothing else. It may be wrong, stale or missing, because only a guess
//! that equals the model's own draw is accepted. [`lookup`] guesses by earlier text, [`model`] with
//! a smaller model, and [`head`] with a head over the model's hidden states. [`recorded`] has the
//! guesses of a replay.

mod head;
mod lookup;
mod model;
mod recorded;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use playhouse_actors::{
    logic::{
        drafts::{
            cost::StepCost,
            ngram::NgramLookup,
            pace::{Acceptance, SharedAcceptance},
            suffix::SuffixConfig,
        },
        request::{ids::TokenId, outputs::DraftCounts},
    },
    ports::ExecuteError,
};

pub(super) use self::head::HeadDrafter;
use self::lookup::{NgramDrafter, SuffixDrafter};
pub(super) use self::model::ModelDrafter;
pub(crate) use self::recorded::RecordedGuesses;
use super::{batch::Sequence, kv_arena::KvMemory};
use crate::model::HeadInput;

/// The share of a drafter's guesses that is expected to be right before the first one.
const DRAFTER_PRIOR: f64 = 0.7;
/// The same for tokens that a constraint forces. Text that is forced may be written with other
/// tokens.
const FORCED_PRIOR: f64 = 0.9;

/// A source of guesses.
pub(super) trait Drafter: Send {
    /// Appends guesses to each of `wanted`. Returns the time that some of them took.
    ///
    /// # Errors
    /// If the device fails.
    fn propose(&mut self, wanted: &mut [Wanted<'_>]) -> Result<GuessTime, ExecuteError>;

    /// Returns the most guesses that its context allows after so many tokens.
    fn room(&self, _num_tokens: usize) -> usize {
        usize::MAX
    }

    /// Returns the hidden states of the model that it reads after each step, if it reads some.
    fn input(&self) -> Option<&HeadInput> {
        None
    }

    /// Reads the hidden states that a step computed.
    ///
    /// # Errors
    /// If the device fails.
    fn read(&mut self, _computed: &[Computed<'_>]) -> Result<(), ExecuteError> {
        Ok(())
    }

    /// Forgets a request, which has ended or will begin again.
    fn forget(&mut self, _sequence: &Sequence, _is_ended: bool) {}
}

/// The KV cache of a drafter with weights, which outlives executors. Its blocks have the ids of the
/// model's cache.
#[derive(Clone)]
pub(super) struct DraftCache {
    pub(super) kv_memory: Arc<Mutex<KvMemory>>,
    /// The group of the model's layers whose block tables name the blocks. It reads all tokens.
    pub(super) group: usize,
    pub(super) block_size: usize,
}

/// The hidden states of one request that a step computed.
pub(super) struct Computed<'a> {
    /// The request, after the step.
    pub(super) sequence: &'a Sequence,
    /// The position of the first one.
    pub(super) start: usize,
    /// `[num_tokens, width]`, row-major.
    pub(super) rows: &'a [f32],
}

/// One request that may have guesses.
pub(super) struct Wanted<'a> {
    /// The request, without guesses. Its last token is not computed.
    pub(super) sequence: &'a Sequence,
    /// Most guesses.
    pub(super) most: usize,
    /// The guesses, in order.
    pub(super) guesses: Vec<TokenId>,
    /// Whether guesses are missing because the drafter still reads the request's text.
    pub(super) is_reading: bool,
}

/// The time that guesses took. Those that had to wait until a text was read do not count: a request
/// has few of them, and this time tells how dear the others are.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct GuessTime {
    /// Number of guesses that count.
    pub(super) num_guesses: usize,
    /// Time that they took.
    pub(super) time: Duration,
}

impl GuessTime {
    /// Returns the time of all guesses for `wanted`, which were begun at `begun`.
    fn of_all(wanted: &[Wanted<'_>], begun: Instant) -> Self {
        let num_guesses = wanted.iter().map(|wanted| wanted.guesses.len()).sum();
        Self { num_guesses, time: begun.elapsed() }
    }

    fn add(&mut self, num_guesses: usize, time: Duration) {
        self.num_guesses += num_guesses;
        self.time += time;
    }
}

impl<'a> Wanted<'a> {
    /// Returns a request without guesses.
    pub(super) fn new(sequence: &'a Sequence, most: usize) -> Self {
        Self { sequence, most, guesses: Vec::new(), is_reading: false }
    }
}

/// The method by which guesses are made.
#[derive(Debug, Clone, Default)]
pub(crate) enum DraftMethod {
    /// None.
    #[default]
    None,
    /// Prompt lookup.
    Ngram(NgramLookup),
    /// Suffix decoding.
    Suffix(SuffixConfig),
    /// A smaller model or a head, which is loaded beside the model.
    Loaded,
    /// The tokens of a recording.
    Recorded(RecordedGuesses),
}

/// The settings of guesses.
#[derive(Debug, Clone, Default)]
pub(crate) struct DraftSettings {
    /// The method.
    pub(crate) method: DraftMethod,
    /// Most guesses that a drafter makes for one request and step.
    pub(crate) num_speculative_tokens: usize,
    /// Most tokens that follow from a constraint and are verified as guesses.
    pub(crate) num_jump_forward_tokens: usize,
}

/// The guesses of one executor: its drafter, the time that steps take, and how often guesses are
/// right.
#[derive(Default)]
pub(super) struct Drafts {
    settings: DraftSettings,
    drafter: Option<Box<dyn Drafter>>,
    pub(super) cost: StepCost,
    pub(super) shared: SharedRates,
    /// The end of the last step.
    last_step: Option<Instant>,
}

/// How often guesses are right in all requests.
#[derive(Debug)]
pub(super) struct SharedRates {
    by_drafter: SharedAcceptance,
    by_constraint: SharedAcceptance,
}

impl SharedRates {
    /// Learns the time of a step, in microseconds.
    pub(super) fn learn_step(&mut self, micros: f64) {
        self.by_drafter.learn_step(micros);
    }

    /// Learns the time in which the drafter made the guesses of a step with a try, in microseconds.
    pub(super) fn learn_try(&mut self, micros: f64) {
        self.by_drafter.learn_try(micros);
    }
}

impl Default for SharedRates {
    fn default() -> Self {
        Self {
            by_drafter: SharedAcceptance::new(DRAFTER_PRIOR),
            by_constraint: SharedAcceptance::new(FORCED_PRIOR),
        }
    }
}

/// The history of one request's guesses.
#[derive(Debug, Clone, Default)]
pub(super) struct Guessing {
    by_drafter: Acceptance,
    by_constraint: Acceptance,
    /// Whether the current guesses follow from the constraint.
    is_forced: bool,
    /// Number of places of the current step that the drafter should have filled and did not.
    num_unfilled: usize,
    /// Number of guesses that the drafter should make in the next step.
    num_wanted: usize,
    /// Whether they are a try that does not seem to be worth its time.
    is_try: bool,
}

impl Guessing {
    /// Records the source of the current guesses.
    pub(super) fn begin(&mut self, is_forced: bool) {
        self.is_forced = is_forced;
        self.num_unfilled = 0;
    }

    /// Records how many places the drafter did not fill.
    pub(super) fn leave_unfilled(&mut self, num_places: usize) {
        self.num_unfilled = num_places;
    }

    /// Asks for guesses of the drafter in the next step. A try that is asked for stays so until it
    /// is made, because steps that were planned before have no place for it.
    fn ask(&mut self, shared: &mut SharedAcceptance, even: f64, num_requests: usize, most: usize) {
        if most == 0 {
            // The drafter has no room. A try is for a request that can make it.
            (self.num_wanted, self.is_try) = (0, false);
            return;
        }
        let num_wanted = shared.num_wanted(&self.by_drafter, even, num_requests, most);
        if num_wanted > 0 {
            (self.num_wanted, self.is_try) = (num_wanted, shared.asks_for_try());
        } else if !self.is_try {
            self.num_wanted = 0;
        }
    }

    /// Returns whether the next guesses of the drafter are a try.
    pub(super) fn is_try(&self) -> bool {
        self.is_try
    }

    /// Records that the drafter guesses.
    pub(super) fn end_try(&mut self) {
        self.is_try = false;
    }

    /// Learns how many of the current guesses were right, with all requests. A place without a
    /// guess counts as a wrong one.
    pub(super) fn learn(&mut self, counts: &DraftCounts, shared: &mut SharedRates) {
        let (own, shared) = match self.is_forced {
            true => (&mut self.by_constraint, &mut shared.by_constraint),
            false => (&mut self.by_drafter, &mut shared.by_drafter),
        };
        let num_places = counts.num_drafted as usize + self.num_unfilled;
        let num_accepted = counts.num_accepted as usize;
        own.learn(num_places, num_accepted);
        shared.learn(num_places, num_accepted);
    }
}

impl Drafts {
    /// Returns the guesses of a new executor. `loaded` is the drafter of [`DraftMethod::Loaded`].
    pub(super) fn new(settings: DraftSettings, loaded: Option<Box<dyn Drafter>>) -> Self {
        let drafter: Option<Box<dyn Drafter>> = match settings.method {
            DraftMethod::None => None,
            DraftMethod::Ngram(lookup) => Some(Box::new(NgramDrafter::new(lookup))),
            DraftMethod::Suffix(config) => Some(Box::new(SuffixDrafter::new(config))),
            DraftMethod::Loaded => loaded,
            DraftMethod::Recorded(ref guesses) => Some(Box::new(guesses.clone())),
        };
        Self { settings, drafter, ..Self::default() }
    }

    /// Returns the same for a model that computes right guesses again, because it has states.
    pub(super) fn computing_again(mut self, is_repeated: bool) -> Self {
        self.cost = StepCost::new(is_repeated);
        self
    }

    /// Returns whether no request ever has guesses.
    pub(super) fn is_off(&self) -> bool {
        self.drafter.is_none() && self.settings.num_jump_forward_tokens == 0
    }

    /// Returns the time since the last step ended.
    pub(super) fn since_last_step(&self) -> Duration {
        self.last_step.map_or(Duration::MAX, |end| end.elapsed())
    }

    /// Records that a step has ended.
    pub(super) fn end_step(&mut self) {
        self.last_step = Some(Instant::now());
    }

    /// Returns how many forced tokens a request with so many places may have.
    pub(super) fn most_forced(&self, num_places: usize) -> usize {
        num_places.min(self.settings.num_jump_forward_tokens)
    }

    /// Returns how many guesses of the drafter a request with so many places may have.
    pub(super) fn most_guesses(&self, sequence: &Sequence, num_places: usize) -> usize {
        match (&self.drafter, &self.settings.method) {
            (Some(_), DraftMethod::Recorded(_)) => num_places,
            // Places beyond its context are not the drafter's to fill.
            (Some(drafter), _) => {
                num_places.min(sequence.guessing.num_wanted).min(drafter.room(sequence.num_known()))
            }
            (None, _) => 0,
        }
    }

    /// Lets the drafter guess. Returns the time that some of the guesses took.
    pub(super) fn propose(&mut self, wanted: &mut [Wanted<'_>]) -> Result<GuessTime, ExecuteError> {
        match &mut self.drafter {
            Some(drafter) => drafter.propose(wanted),
            None => Ok(GuessTime::default()),
        }
    }

    /// Returns the hidden states of the model that the drafter reads, if it reads some.
    pub(super) fn input(&self) -> Option<&HeadInput> {
        self.drafter.as_ref()?.input()
    }

    /// Returns the layers of the model whose inputs the drafter reads.
    pub(super) fn layers_read(&self) -> &[usize] {
        match self.input() {
            Some(HeadInput::BeforeLayers(layers)) => layers,
            Some(HeadInput::Last) | None => &[],
        }
    }

    /// Lets the drafter read the hidden states that a step computed.
    pub(super) fn read(&mut self, computed: &[Computed<'_>]) -> Result<(), ExecuteError> {
        match &mut self.drafter {
            Some(drafter) => drafter.read(computed),
            None => Ok(()),
        }
    }

    /// Forgets a request.
    pub(super) fn forget(&mut self, sequence: &Sequence, is_ended: bool) {
        if let Some(drafter) = &mut self.drafter {
            drafter.forget(sequence, is_ended);
        }
    }

    /// Returns how many guesses the next step should verify for a request, in a batch of
    /// `num_requests`.
    pub(super) fn num_wanted(&mut self, sequence: &mut Sequence, num_requests: usize) -> usize {
        let is_constrained = sequence.is_constrained();
        let num_known = sequence.num_known();
        let guessing = &mut sequence.guessing;
        let (most, most_forced) =
            (self.settings.num_speculative_tokens, self.settings.num_jump_forward_tokens);
        let SharedRates { by_drafter, by_constraint } = &mut self.shared;
        if let Some(drafter) = &self.drafter {
            let most = most.min(drafter.room(num_known));
            guessing.ask(by_drafter, self.cost.break_even(num_requests), num_requests, most);
        }
        let num_forced = match is_constrained {
            true => {
                let even = self.cost.break_even_made(num_requests);
                by_constraint.num_wanted(&guessing.by_constraint, even, num_requests, most_forced)
            }
            false => 0,
        };
        guessing.num_wanted.max(num_forced)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of places that are reserved after 20 steps with so many guesses in four
    /// places, all of them right.
    fn reserved(num_filled: u32) -> usize {
        let (mut guessing, mut shared) = (Guessing::default(), SharedRates::default());
        for _ in 0..20 {
            guessing.begin(false);
            guessing.leave_unfilled(4 - num_filled as usize);
            let (num_drafted, num_accepted) = (num_filled, num_filled);
            guessing.learn(&DraftCounts { num_drafted, num_accepted, num_wanted: 0 }, &mut shared);
        }
        shared.by_drafter.num_wanted(&guessing.by_drafter, 0.5, 1, 4)
    }

    /// Asks for guesses of one request until it gets a try. Returns how often it asked.
    fn asked(guessing: &mut Guessing, shared: &mut SharedRates) -> usize {
        let mut ask = || {
            guessing.ask(&mut shared.by_drafter, 0.5, 1, 4);
            guessing.num_wanted
        };
        (1..1_000).find(|_| ask() > 0).unwrap()
    }

    #[test]
    fn only_the_request_that_was_asked_for_a_try_makes_it() {
        let mut shared = SharedRates::default();
        (0..200).for_each(|_| shared.by_drafter.learn(4, 0));
        let (mut first, mut other) = (Guessing::default(), Guessing::default());
        let patience = asked(&mut first, &mut shared);
        assert!(first.is_try());
        // The next steps have no place for it.
        assert_eq!((0..5).map(|_| asked(&mut first, &mut shared)).max(), Some(1));
        // The guesses of another request are no try, whatever they cost, so the request that ends
        // without its try makes the others wait no longer.
        other.ask(&mut shared.by_drafter, 0.0, 1, 4);
        assert_eq!((other.num_wanted, other.is_try()), (4, false));
        let mut next = Guessing::default();
        assert!(asked(&mut next, &mut shared) <= patience);
        // Guesses that seem to be worth it are no try.
        next.ask(&mut shared.by_drafter, 0.0, 1, 4);
        assert!(!next.is_try());
        first.end_try();
        first.ask(&mut shared.by_drafter, 0.5, 1, 4);
        assert_eq!((first.num_wanted, first.is_try()), (0, false));
    }

    /// A text longer than the drafter's context has no guesses, and takes no turn of others.
    #[test]
    fn a_request_without_room_makes_no_try() {
        let mut shared = SharedRates::default();
        (0..200).for_each(|_| shared.by_drafter.learn(4, 0));
        let (mut long, mut other) = (Guessing::default(), Guessing::default());
        let patience = asked(&mut Guessing::default(), &mut shared);
        for _ in 0..2 * patience {
            long.ask(&mut shared.by_drafter, 0.5, 1, 0);
            assert_eq!((long.num_wanted, long.is_try()), (0, false));
        }
        assert_eq!(asked(&mut other, &mut shared), patience);
    }

    #[test]
    fn places_that_the_drafter_leaves_empty_are_not_reserved() {
        assert_eq!([0, 2, 4].map(reserved), [0, 1, 4]);
    }
}
