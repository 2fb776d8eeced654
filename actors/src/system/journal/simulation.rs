//! A writer over a disk that fails, crashes and damages, against a plain model of what must
//! survive. The bugs that are planted in the journal must be found here.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    Opened, Writer,
    fault_disk::{DiskFault, FaultDisk},
};
use crate::logic::{
    journal::{Acceptance, Answer, Fingerprint, Record},
    planted::{Bug, plant},
    request::{EngineRequest, ids::RequestId},
};

const MAX_BYTES: usize = 1 << 20;

/// SplitMix64.
struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % bound.max(1) as u64) as usize
    }
}

/// The model's view of an answer.
#[derive(Debug, Clone, Default, PartialEq)]
struct Expected {
    requests: Vec<u64>,
    ended: BTreeSet<u64>,
}

struct World {
    rng: Rng,
    disk: FaultDisk,
    /// Journals that were taken over and could not be removed, the newest first.
    undead: Vec<FaultDisk>,
    writer: Writer,
    /// All that was recorded, and the part of it whose write succeeded.
    recorded: BTreeMap<Arc<str>, Expected>,
    durable: BTreeMap<Arc<str>, Expected>,
    /// The answers that began since the last write that succeeded.
    begun: BTreeSet<Arc<str>>,
    next: u64,
    /// Whether the disk has lied or was damaged, so durable records may be lost.
    is_deceived: bool,
}

fn request(id: u64, name: &Arc<str>) -> Arc<EngineRequest> {
    let prompt = (0..1 + id as u32 % 50).map(|token| token * 7 + id as u32);
    let answer_id = Some(Arc::clone(name));
    Arc::new(EngineRequest { answer_id, seed: id * 3, ..EngineRequest::for_test(id, prompt) })
}

/// Begins a journal on an empty disk with the content of those in `left`.
fn open(disk: &FaultDisk, left: &[FaultDisk]) -> (Writer, Opened) {
    let left = left.iter().map(FaultDisk::to_left).collect();
    Writer::open(Box::new(disk.clone()), left, Fingerprint::default(), MAX_BYTES, 0).unwrap()
}

impl World {
    fn new(seed: u64) -> Self {
        let disk = FaultDisk::default();
        let (writer, _) = open(&disk, &[]);
        let (recorded, durable, begun) = Default::default();
        let (rng, undead, is_deceived) = (Rng(seed), Vec::new(), false);
        Self { rng, disk, undead, writer, recorded, durable, begun, next: 1, is_deceived }
    }

    fn step(&mut self, deceives: bool) {
        match self.rng.below(20) {
            0 => self.crash(deceives),
            1 => {
                let faults = [
                    DiskFault::Full,
                    DiskFault::SyncFails,
                    DiskFault::ReplaceFails,
                    DiskFault::ReplaceSucceedsAndFails,
                ];
                self.disk.inject(Some(faults[self.rng.below(faults.len())]));
            }
            2 if deceives => {
                self.disk.inject(Some(DiskFault::SyncLies));
                self.is_deceived = true;
            }
            _ => {
                let records: Vec<_> = (0..self.rng.below(4)).map(|_| self.record()).collect();
                if self.writer.write(&records).is_ok() {
                    self.durable = self.recorded.clone();
                    self.begun.clear();
                }
            }
        }
    }

    /// Returns a random next record, and takes it into the model.
    fn record(&mut self) -> Record {
        let names: Vec<_> = self.recorded.keys().cloned().collect();
        let name = names.get(self.rng.below(names.len())).cloned();
        let Some(name) = name.filter(|_| self.rng.below(4) > 0) else {
            let name: Arc<str> = format!("answer-{}", self.next).into();
            self.next += 1;
            self.recorded.insert(Arc::clone(&name), Expected::default());
            self.begun.insert(Arc::clone(&name));
            return Record::Answer { data: name.as_bytes().into(), name, needs_requests: true };
        };
        let running: Vec<u64> = {
            let held = &self.recorded[&name];
            held.requests.iter().copied().filter(|id| !held.ended.contains(id)).collect()
        };
        match self.rng.below(6) {
            0 => {
                self.recorded.remove(&name);
                Record::Dropped { name }
            }
            1..3 if !running.is_empty() => {
                let id = running[self.rng.below(running.len())];
                self.recorded.entry(name).or_default().ended.insert(id);
                Record::Ended { request: RequestId(id), is_reproducible: true }
            }
            _ => {
                let choices: Vec<_> = (self.next..self.next + 1 + self.rng.below(3) as u64)
                    .map(|id| request(id, &name))
                    .collect();
                self.next += choices.len() as u64;
                let ids = choices.iter().map(|choice| choice.id.0);
                self.recorded.entry(name).or_default().requests.extend(ids);
                Record::Accepted(Acceptance::new(0, &choices).unwrap())
            }
        }
    }

    /// Loses the process, opens the journal again, and compares.
    fn crash(&mut self, deceives: bool) {
        let survived = self.rng.below(1 << 20);
        self.disk.crash(|unsynced| survived % (unsynced + 1));
        if deceives && self.rng.below(3) == 0 {
            let (bit, cut) = (self.rng.below(1 << 30), self.rng.below(2) == 0);
            self.is_deceived = true;
            self.disk.damage(|segment| {
                let place = bit % (8 * segment.len().max(1));
                match segment.get_mut(place / 8) {
                    Some(_) if cut => segment.truncate(place / 8),
                    Some(byte) => *byte ^= 1 << (place % 8),
                    None => {}
                }
            });
        }
        let mut left: Vec<_> = self.disk.leave().into_iter().collect();
        let was_undead = !self.undead.is_empty();
        left.append(&mut self.undead);
        let stays = self.rng.below(4) == 0;
        left.iter().for_each(|disk| disk.inject(stays.then_some(DiskFault::RemoveFails)));
        let (writer, opened) = open(&self.disk, &left);
        self.writer = writer;
        self.next = self.next.max(opened.next_request.0);
        let mut found: BTreeMap<_, _> = opened.answers.iter().map(check_content).collect();
        if was_undead {
            // A journal that could not be removed may have answers that were dropped since.
            let is_dropped = |name: &&Arc<str>| !self.recorded.contains_key(*name);
            let names: Vec<_> = found.keys().filter(is_dropped).cloned().collect();
            names.iter().for_each(|name| drop(found.remove(name)));
            let records: Vec<_> = names.into_iter().map(|name| Record::Dropped { name }).collect();
            self.writer.write(&records).unwrap();
        }
        if stays {
            self.undead = left;
        }
        if !self.is_deceived {
            self.check_survival(&found);
        }
        self.recorded.clone_from(&found);
        self.durable = found;
        self.begun.clear();
        self.is_deceived = false;
    }

    /// Checks that each durable fact survived. Later records may be there or not.
    fn check_survival(&self, found: &BTreeMap<Arc<str>, Expected>) {
        for (name, durable) in &self.durable {
            let Some(held) = found.get(name) else {
                assert!(!self.recorded.contains_key(name), "{name} is lost");
                continue;
            };
            assert!(held.requests.starts_with(&durable.requests), "requests of {name} are lost");
            assert!(held.ended.is_superset(&durable.ended), "ends of {name} are lost");
        }
        for name in found.keys() {
            let is_known = self.durable.contains_key(name) || self.begun.contains(name);
            assert!(is_known, "{name} was dropped and is back");
        }
    }
}

/// Checks that an answer holds what was recorded under its name. Returns the model's view of it.
fn check_content(answer: &Answer) -> (Arc<str>, Expected) {
    assert_eq!(*answer.data, *answer.name.as_bytes());
    let mut expected = Expected::default();
    for held in &answer.requests {
        let id = held.request.id.0;
        // The journal of another process may have given it another id.
        let accepted = request(held.request.seed / 3, &answer.name);
        let (id_now, group) = (held.request.id, held.request.group);
        let accepted = EngineRequest { id: id_now, group, ..EngineRequest::clone(&accepted) };
        assert_eq!(*held.request, accepted, "another request than was accepted");
        expected.requests.push(id);
        if held.end.is_some() {
            expected.ended.insert(id);
        }
    }
    (Arc::clone(&answer.name), expected)
}

/// Runs one world. A panic is a failed check.
fn run(seed: u64, deceives: bool) {
    let mut world = World::new(seed);
    for _ in 0..120 {
        world.step(deceives);
    }
    world.crash(false);
}

#[test]
fn nothing_durable_is_lost_whatever_the_disk_reports() {
    (0..500).for_each(|seed| run(seed, false));
}

#[test]
fn a_disk_that_lies_or_decays_never_changes_a_request() {
    (0..500).for_each(|seed| run(seed, true));
}

#[test]
fn each_planted_bug_is_found() {
    for bug in Bug::OF_THE_JOURNAL {
        let is_found = (0..200).any(|seed| {
            let failed = std::panic::catch_unwind(|| {
                plant(Some(bug));
                run(seed, false);
            });
            plant(None);
            failed.is_err()
        });
        assert!(is_found, "{bug:?}");
    }
}
