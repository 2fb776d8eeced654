//! The state is exactly the fold of its events, whatever is asked of the ledger.

use std::collections::BTreeMap;

use proptest::{prelude::*, strategy::ValueTree};

use super::*;
use crate::logic::{
    admission::Quota,
    request::{
        failure::Failure,
        outputs::{Commit, PromptLogprobs, SampledToken, StepReport},
    },
    scheduler::FirstScheduled,
};

const CONFIG: LedgerConfig = LedgerConfig {
    limits: AdmissionLimits {
        max_num_requests: 6,
        max_num_queued_reqs: Some(4),
        max_num_queued_tokens: None,
        quota: Quota { max_open_requests: Some(4), tokens_per_minute: Some(150) },
    },
    num_shards: 2,
    max_num_batched_tokens: 8,
};

impl LedgerObserver for Vec<LedgerEvent> {
    fn observe(&mut self, event: &LedgerEvent, _: &GroundState) {
        self.push(event.clone());
    }
}

#[derive(Debug, Clone)]
enum Op {
    Accept { first: u64, count: u64, tenant: Option<u32> },
    Report { request: u64, is_scheduled: bool, is_computed: bool, commit: CommitOp },
    EndAt { request: u64, position: usize },
    Finish { requests: Vec<u64> },
    StepFailed { requests: Vec<u64>, is_ahead: bool, is_out_of_memory: bool, is_stale: bool },
    ProbeFailed,
    BeginEpoch { engine: usize },
    Assign { requests: Vec<u64>, engine: usize },
    Attach { shard: usize },
    TakeBatch { shard: usize },
    Deliver { shard: usize, is_end: bool },
}

#[derive(Debug, Clone)]
struct CommitOp {
    /// Added to the right position, less 1.
    skew: usize,
    num_tokens: usize,
    finish: Option<FinishReason>,
    is_stale: bool,
}

fn commit_op() -> impl Strategy<Value = CommitOp> {
    let finish = prop_oneof![
        8 => Just(None),
        1 => Just(Some(FinishReason::Length)),
        2 => Just(Some(FinishReason::Error(Failure::NumericalGarbage))),
    ];
    let skew = prop_oneof![1 => Just(0), 8 => Just(1_usize), 1 => Just(2)];
    (skew, 0..3_usize, finish, prop::bool::weighted(0.1)).prop_map(
        |(skew, num_tokens, finish, is_stale)| CommitOp { skew, num_tokens, finish, is_stale },
    )
}

fn requests_to_move() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(0..8_u64, 0..3)
}

fn op() -> impl Strategy<Value = Op> {
    let requests = prop::collection::vec(0..8_u64, 0..3);
    prop_oneof![
        4 => (0..8_u64, 1..3_u64, prop::option::of(0..2_u32))
            .prop_map(|(first, count, tenant)| Op::Accept { first, count, tenant }),
        8 => (0..8_u64, any::<bool>(), any::<bool>(), commit_op()).prop_map(
            |(request, is_scheduled, is_computed, commit)| {
                Op::Report { request, is_scheduled, is_computed, commit }
            }
        ),
        1 => (0..8_u64, 0..4_usize).prop_map(|(request, position)| Op::EndAt { request, position }),
        1 => requests.clone().prop_map(|requests| Op::Finish { requests }),
        6 => (requests, any::<bool>(), prop::bool::weighted(0.2), prop::bool::weighted(0.1))
            .prop_map(|(requests, is_ahead, is_out_of_memory, is_stale)| {
                Op::StepFailed { requests, is_ahead, is_out_of_memory, is_stale }
            }),
        1 => Just(Op::ProbeFailed),
        1 => (0..2_usize).prop_map(|engine| Op::BeginEpoch { engine }),
        1 => (requests_to_move(), 0..2_usize)
            .prop_map(|(requests, engine)| Op::Assign { requests, engine }),
        1 => (0..2_usize).prop_map(|shard| Op::Attach { shard }),
        2 => (0..2_usize).prop_map(|shard| Op::TakeBatch { shard }),
        2 => (0..2_usize, any::<bool>()).prop_map(|(shard, is_end)| Op::Deliver { shard, is_end }),
    ]
}

/// A ledger, its time, and the batches that its shards have.
struct World {
    ledger: Ledger<Vec<LedgerEvent>>,
    now: Micros,
    batches: BTreeMap<usize, EgressBatch>,
}

impl World {
    /// Returns the epoch in which a request is computed.
    fn epoch(&self, request: Option<RequestId>, is_stale: bool) -> Epoch {
        let state = self.ledger.state();
        let entry = request.and_then(|request| state.get(request));
        let current = entry.map_or(state.epoch(), |entry| state.epoch_of(entry.engine()));
        Epoch(current.0.saturating_sub(u64::from(is_stale)))
    }

    fn commit(&self, request: RequestId, op: CommitOp) -> Commit {
        let held = self.ledger.state().get(request).map_or(0, |entry| entry.output().len());
        let token = SampledToken { token_id: held as u32, logprobs: Some(Vec::new()) };
        Commit {
            request,
            position: (held + op.skew).saturating_sub(1),
            produced: std::iter::repeat_n(token, op.num_tokens).collect(),
            prompt_logprobs: Some(PromptLogprobs { start: 1, rows: vec![Vec::new()] }),
            finish: op.finish,
        }
    }

    fn step(&mut self, op: Op) {
        self.now += 1_000;
        let now = self.now;
        match op {
            Op::Accept { first, count, tenant } => {
                let requests = (first..first + count).map(tests::request).collect();
                drop(self.ledger.accept(requests, tenant.map(Tenant), now));
            }
            Op::Report { request, is_scheduled, is_computed, commit } => {
                let request = RequestId(request);
                let epoch = self.epoch(Some(request), commit.is_stale);
                let first = FirstScheduled { request, queue_time: now, num_cached_tokens: 1 };
                let first_scheduled = is_scheduled.then_some(first).into_iter().collect();
                let commits = vec![self.commit(request, commit)];
                self.ledger.report(
                    epoch,
                    StepReport { first_scheduled, commits, is_computed },
                    now,
                );
            }
            Op::EndAt { request, position } => {
                self.ledger.end_at(RequestId(request), position, FinishReason::Stop(None), now);
            }
            Op::Finish { requests } => {
                let requests: Vec<_> = requests.into_iter().map(RequestId).collect();
                self.ledger.finish(&requests, &FinishReason::Abort, now);
            }
            Op::StepFailed { requests, is_ahead, is_out_of_memory, is_stale } => {
                let num_tokens = if is_ahead { 1_000 } else { 1 };
                let requests: Vec<_> =
                    requests.into_iter().map(|id| (RequestId(id), num_tokens)).collect();
                let epoch = self.epoch(requests.first().map(|(id, _)| *id), is_stale);
                self.ledger.step_failed(epoch, &requests, is_out_of_memory, now);
            }
            Op::ProbeFailed => {
                self.ledger.probe_failed();
            }
            Op::BeginEpoch { engine } => {
                drop(self.ledger.begin_epoch(EngineIndex(engine), "the test wants it"));
            }
            Op::Assign { requests, engine } => {
                let requests = requests.into_iter().map(RequestId).collect();
                self.ledger.assign(requests, EngineIndex(engine));
            }
            Op::Attach { shard } => {
                self.ledger.attach(shard);
            }
            Op::TakeBatch { shard } => {
                if let Some(batch) = self.ledger.take_batch(shard, now) {
                    self.batches.insert(shard, batch);
                }
            }
            Op::Deliver { shard, is_end } => {
                let Some(batch) = self.batches.remove(&shard) else { return };
                let entries = batch.entries.iter().filter(|entry| is_end || entry.end.is_some());
                let ended: Vec<_> = entries.map(|entry| entry.request).collect();
                self.ledger.delivered(batch.id, &ended, now);
            }
        }
    }
}

proptest! {
    /// The state after each operation is the fold of the events so far, read from JSON again. Where
    /// no event was recorded, nothing changed. No request ends twice.
    #[test]
    fn the_state_is_the_fold_of_its_events(
        random in prop::collection::vec(op(), 0..120),
        begins_broken in prop::bool::weighted(0.1),
    ) {
        let broken = if begins_broken { broken_model() } else { Vec::new() };
        let ops = broken.into_iter().chain(random);
        let ledger = Ledger::new(CONFIG, Vec::new());
        let mut world = World { ledger, now: 0, batches: BTreeMap::new() };
        let mut replayed = GroundState::new(CONFIG);
        world.ledger.begin_epoch(EngineIndex(0), "the test begins");
        let mut num_seen = 0;
        let mut ends = BTreeMap::new();
        for op in ops {
            let before = world.ledger.state().clone();
            world.step(op.clone());
            let events = &world.ledger.observer[num_seen..];
            prop_assert!(!events.is_empty() || before == *world.ledger.state(), "{:?}", op);
            for event in events {
                let written = serde_json::to_string(event).unwrap();
                let read: LedgerEvent = serde_json::from_str(&written).unwrap();
                prop_assert_eq!(&read, event);
                replayed.apply(&read);
                if let LedgerEvent::Forgotten { request } = event {
                    ends.remove(request);
                }
                if let Some(end) = event.end() {
                    prop_assert!(ends.insert(end.request, ()).is_none(), "{:?}", event);
                }
            }
            prop_assert_eq!(&replayed, world.ledger.state());
            num_seen = world.ledger.observer.len();
        }
    }
}

/// Three requests in a row that get no finite logits, and a probe that gets none either.
fn broken_model() -> Vec<Op> {
    let garbage = Some(FinishReason::Error(Failure::NumericalGarbage));
    let commit = CommitOp { skew: 1, num_tokens: 0, finish: garbage, is_stale: false };
    let fail = |request| {
        let commit = commit.clone();
        Op::Report { request, is_scheduled: true, is_computed: true, commit }
    };
    let accept = Op::Accept { first: 1, count: 3, tenant: None };
    vec![accept, fail(1), fail(2), fail(3), Op::ProbeFailed]
}

/// The random operations above reach every kind of event, but for the rarest.
#[test]
fn every_kind_of_event_is_replayed() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut all = vec![broken_model()];
    for _ in 0..200 {
        let ops = prop::collection::vec(op(), 120).new_tree(&mut runner).unwrap();
        all.push(ops.current());
    }
    let mut kinds = std::collections::BTreeSet::new();
    for ops in all {
        let ledger = Ledger::new(CONFIG, Vec::new());
        let mut world = World { ledger, now: 0, batches: BTreeMap::new() };
        world.ledger.begin_epoch(EngineIndex(0), "the test begins");
        ops.into_iter().for_each(|op| world.step(op));
        let name = |event: &LedgerEvent| match event {
            LedgerEvent::Ended { reason: FinishReason::Error(Failure::Quarantined), .. } => {
                "a conviction".to_owned()
            }
            _ => format!("{event:?}").split([' ', '(']).next().unwrap().to_owned(),
        };
        kinds.extend(world.ledger.observer.iter().map(name));
    }
    assert_eq!(kinds.len(), 13, "{kinds:?}");
}
