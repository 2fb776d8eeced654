//! Recordings of random runs: each replay makes the run again, redacted or not, and a damaged
//! recording gives its longest intact beginning.

use std::{cell::Cell, sync::Arc};

use playhouse_actors::logic::{
    journal::Fingerprint,
    kv_cache::KvSpec,
    recording::{
        Began, Entry, Event, FRAMES, NoDevice, PlannedStep, RedactError, Replay, ReplayError,
        RowDone, Scan, ScanFault, redacted, scan,
    },
    request::{
        EngineRequest,
        ids::RequestId,
        outputs::{DraftCounts, Produced, PromptLogprobs, RequestOutput, RowFailure, SampledToken},
    },
    scheduler::SchedulerConfig,
};
use proptest::prelude::*;

use super::{
    device::BLOCK_SIZE,
    world::{Crash, World, end_state},
};
use crate::harness::request;

const SALT: [u8; 32] = [7; 32];

fn began(config: &SchedulerConfig) -> Began {
    Began {
        version: "test".to_owned(),
        fingerprint: Fingerprint::default(),
        scheduler: config.clone(),
        settings: b"settings".to_vec(),
        is_redacted: false,
    }
}

fn whole(config: &SchedulerConfig, entries: &[Entry]) -> Scan {
    Scan { began: began(config), entries: entries.to_vec(), num_bytes: 0, fault: None }
}

/// Returns the bytes of a recording, three entries a frame.
fn bytes(scan: &Scan) -> Vec<u8> {
    let first = Entry::Began(Box::new(scan.began.clone()));
    let entries: Vec<_> = [first].into_iter().chain(scan.entries.iter().cloned()).collect();
    let mut bytes = Vec::new();
    entries.chunks(3).for_each(|chunk| FRAMES.encode(&chunk.to_vec(), &mut bytes).unwrap());
    bytes
}

/// Replays a recording to its end, or to a fault.
fn replayed(scan: Scan) -> Result<Replay, ReplayError> {
    let mut replay = Replay::new(scan)?;
    while replay.advance(&mut NoDevice)?.is_some() {}
    Ok(replay)
}

/// Returns what a replay makes of the world's run up to some entry.
fn state(config: &SchedulerConfig, entries: &[Entry]) -> String {
    let replay = replayed(whole(config, entries)).unwrap();
    end_state(replay.scheduler(), replay.kv_cache())
}

/// Checks the replays of a run. `before_end` are a number of entries and the state after them.
pub(crate) fn check(config: &SchedulerConfig, world: &World, before_end: (usize, String)) {
    let (num_before, state_before) = before_end;
    assert_eq!(state(config, &world.recorded[..num_before]), state_before);
    assert_eq!(state(config, &world.recorded), world.end_state());
    // Its result has been replayed.
    redacted(whole(config, &world.recorded), SALT).unwrap();
}

/// Returns the recording of a small run with hits, preemptions and a crash. `change` changes each
/// request.
fn small_of(change: impl Fn(&mut EngineRequest)) -> (SchedulerConfig, Vec<Entry>) {
    let config = SchedulerConfig {
        kv_spec: KvSpec::full(1, BLOCK_SIZE, 1),
        num_blocks: 9,
        max_num_batched_tokens: 12,
        max_model_len: 40,
        ..SchedulerConfig::default()
    };
    let mut world = World::new(config.clone());
    for own in 0..4 {
        let mut request = request(0, [1, 0, 1, 0, 1, 1, own % 2]);
        let params = request.sampling_mut();
        (params.max_tokens, params.ignore_eos) = (9, true);
        change(&mut request);
        world.add(request);
        world.step(0, None);
    }
    world.crash(Crash::Planning(1), false, false);
    world.step(0, Some(RequestId(2)));
    world.run_out();
    (config, world.recorded)
}

fn small() -> (SchedulerConfig, Vec<Entry>) {
    small_of(|_| ())
}

/// Changes the entries, and returns the difference that a replay finds.
fn planted(change: impl Fn(usize, &mut Entry)) -> ReplayError {
    let (config, mut entries) = small();
    entries.iter_mut().enumerate().for_each(|(index, entry)| change(index, entry));
    replayed(whole(&config, &entries)).unwrap_err()
}

#[test]
fn a_planted_difference_is_found_at_its_step() {
    let longer = |_, entry: &mut Entry| {
        if let Entry::StepPlanned(PlannedStep { step, rows, .. }) = entry
            && step.0 == 3
        {
            rows[0].num_tokens += 1;
        }
    };
    let error = planted(longer).to_string();
    assert!(
        error.starts_with("step 3: the schedule differs for request 2: 4 tokens of request 2 in "),
        "{error}"
    );
    let other_hash = |_, entry: &mut Entry| {
        if let Entry::StepPlanned(planned) = entry
            && planned.step.0 == 4
        {
            planned.hash ^= 1;
        }
    };
    assert!(matches!(
        planted(other_hash),
        ReplayError::Schedule { step, request: None, .. } if step.0 == 4
    ));
    let without_abort = |_, entry: &mut Entry| {
        if let Entry::Aborted(requests) = entry {
            requests.clear();
        }
    };
    assert!(matches!(planted(without_abort), ReplayError::Schedule { .. }));
    let shorter = |_, entry: &mut Entry| {
        if let Entry::Added(requests) = entry {
            let first = Arc::make_mut(&mut requests[0]);
            first.sampling_mut().max_tokens = 2;
        }
    };
    assert!(matches!(planted(shorter), ReplayError::Schedule { .. }));
    let no_prompt = |_, entry: &mut Entry| {
        if let Entry::Added(requests) = entry {
            Arc::make_mut(&mut requests[0]).prompt_token_ids = Arc::from([]);
        }
    };
    let error = planted(no_prompt).to_string();
    assert_eq!(error, "entry 1 after step 0: a request has no prompt");
}

#[test]
fn nothing_of_a_text_is_in_a_redacted_recording() {
    const TOKEN: u32 = 0x7a5a_5a5a;
    let (config, entries) = small_of(|request| {
        request.cache_salt = Some("a secret salt".into());
        request.answer_id = Some("a secret answer".into());
        request.seed = u64::from(TOKEN) << 32;
        let params = request.sampling_mut();
        params.stop = vec!["a secret end".to_owned()];
        params.logit_bias = vec![(TOKEN, 1.0)];
    });
    let plain = whole(&config, &entries);
    let contains = |bytes: &[u8], part: &[u8]| bytes.windows(part.len()).any(|at| at == part);
    let secrets = [&b"secret"[..], b"settings", &TOKEN.to_le_bytes()];
    let before = bytes(&plain);
    assert!(secrets.iter().all(|secret| contains(&before, secret)));
    let hidden = redacted(plain, SALT).unwrap();
    let after = bytes(&hidden);
    assert!(secrets.iter().all(|secret| !contains(&after, secret)));
    let prompts = hidden.entries.iter().filter_map(|entry| match entry {
        Entry::Added(requests) => Some(requests[0].prompt_token_ids.to_vec()),
        _ => None,
    });
    let prompts: Vec<_> = prompts.collect();
    assert_eq!(prompts[0][..6], prompts[1][..6], "they share their beginning");
    assert_eq!(prompts[0], prompts[2]);
    assert_ne!(prompts[0][6], prompts[1][6]);
    assert_ne!(prompts[0][0], prompts[0][2], "equal tokens of a prompt are no longer equal");
    assert!(matches!(redacted(hidden, SALT), Err(RedactError::IsRedacted)));
}

#[test]
fn a_recording_without_its_begin_is_none() {
    assert_eq!(scan(b"").unwrap_err(), ScanFault::Empty);
    let mut frame = Vec::new();
    FRAMES.encode(&vec![Entry::SchedulerStarted], &mut frame).unwrap();
    assert_eq!(scan(&frame).unwrap_err(), ScanFault::NoBegin);
    let (config, entries) = small();
    let mut other = bytes(&whole(&config, &entries));
    other[4] ^= 2;
    let crc = crc32(&other[..10]);
    other[10..14].copy_from_slice(&crc.to_le_bytes());
    let error = scan(&other).unwrap_err().to_string();
    assert!(error.starts_with("the frame has version 0, this program reads version 2"), "{error}");
}

fn crc32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(!0u32, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 * (crc & 1)))
    }) ^ !0
}

proptest! {
    /// The entries of a damaged recording are the first of the whole one, and they replay.
    #[test]
    fn damage_leaves_the_longest_intact_beginning(
        at in any::<prop::sample::Index>(),
        flip in prop::option::of(0..8u32),
    ) {
        thread_local! {
            static WHOLE: Cell<Option<(SchedulerConfig, Vec<Entry>)>> = const { Cell::new(None) };
        }
        let (config, entries) = WHOLE.take().unwrap_or_else(small);
        let intact = whole(&config, &entries);
        let mut bytes = bytes(&intact);
        let at = at.index(bytes.len());
        match flip {
            None => bytes.truncate(at),
            Some(bit) => bytes[at] ^= 1 << bit,
        }
        if let Ok(damaged) = scan(&bytes) {
            prop_assert!(damaged.num_bytes <= at);
            let is_between_frames = flip.is_none() && damaged.num_bytes == at;
            prop_assert_eq!(damaged.fault.is_some(), !is_between_frames);
            prop_assert_eq!(&damaged.entries[..], &entries[..damaged.entries.len()]);
            // At most one frame of three entries is lost before the damage.
            prop_assert!(replayed(damaged).is_ok());
        }
        WHOLE.set(Some((config, entries)));
    }
}

#[test]
fn rows_of_all_kinds_survive_their_recorded_form() {
    let token = |token_id| SampledToken { token_id, logprobs: None };
    let plain = RequestOutput {
        request: RequestId(3),
        produced: Produced::from_iter([token(8)]),
        prompt_logprobs: None,
        drafts: DraftCounts::default(),
        failure: None,
    };
    assert_eq!(RowDone::of(&plain), RowDone::Token { request: RequestId(3), token: 8 });
    let drafts = DraftCounts { num_drafted: 2, num_accepted: 1, num_wanted: 3 };
    let all = [
        plain.clone(),
        RequestOutput { drafts, produced: Produced::default(), ..plain.clone() },
        RequestOutput { produced: Produced::from_iter([token(8), token(9)]), ..plain.clone() },
        RequestOutput { failure: Some(RowFailure::Grammar("no".into())), ..plain.clone() },
        RequestOutput {
            prompt_logprobs: Some(PromptLogprobs { start: 1, rows: vec![Vec::new(); 4] }),
            ..plain.clone()
        },
    ];
    for output in &all {
        assert_eq!(RowDone::of(output).output(), *output);
    }
    let rows = all.each_ref().map(RowDone::of);
    assert!(rows[0].agrees_with(&rows[0]) && !rows[0].agrees_with(&rows[2]));
    let other_drafts = RequestOutput { drafts, ..plain };
    assert!(rows[0].agrees_with(&RowDone::of(&other_drafts)), "guesses may depend on time");
}

#[test]
fn a_replay_can_begin_again() {
    let (config, entries) = small();
    let mut replay = Replay::new(whole(&config, &entries)).unwrap();
    let mut planned = 0;
    while let Some(event) = replay.advance(&mut NoDevice).unwrap() {
        planned += usize::from(matches!(event, Event::Planned(_)));
    }
    assert_eq!((replay.num_steps(), replay.num_requests()), (planned, 4));
    let mut again = replay.restarted();
    assert_eq!((again.num_steps(), again.num_requests()), (0, 0));
    while again.advance(&mut NoDevice).unwrap().is_some() {}
    let state = |replay: &Replay| end_state(replay.scheduler(), replay.kv_cache());
    assert_eq!(state(&again), state(&replay));
}
