//! The lives of a run: with a journal, the whole system dies and starts again from its disk.

use std::time::Duration;

use super::{ClientPlan, Manner};
use crate::{sim::rng::Rng, system::journal::fault_disk::DiskFault};

/// The lives of one run, and the disk of its journal.
#[derive(Debug, Clone)]
pub struct LivesPlan {
    /// Time after its begin at which each life but the last ends.
    pub deaths: Vec<Duration>,
    /// Longest time of a write.
    pub write_time: Duration,
    /// Faults of the disk, by life and time.
    pub faults: Vec<(usize, Duration, DiskFault)>,
    /// Fault of the disk when a life begins.
    pub fault_at_start: Option<(usize, DiskFault)>,
    /// Whether the disk loses or changes bytes that it said are durable, at each death.
    pub decays: bool,
    /// Seed of the bytes that survive a death.
    pub seed: u64,
}

impl LivesPlan {
    /// Draws the lives of a run. Its clients read everything, and have no deadlines.
    pub(super) fn of(rng: &mut Rng, clients: &mut [ClientPlan]) -> Self {
        for client in clients {
            client.raw.timeout = None;
            client.raw.tenant = None;
            let is_slow = |manner: &Manner| matches!(manner, Manner::Slow(_));
            client.manners.iter_mut().filter(|manner| !is_slow(manner)).for_each(|manner| {
                *manner = Manner::Patient;
            });
        }
        // From the third one on, the server computes suspects a few at a time, unlike this world.
        let num_deaths = rng.within(1, 2);
        let deaths = (0..num_deaths).map(|_| Duration::from_millis(1 + rng.below(200)));
        let deaths = deaths.collect();
        let write_time = Duration::from_micros(rng.pick(&[0, 300, 4_000, 60_000]));
        let num_faults = rng.pick(&[0, 0, 1, 2]);
        let faults = (0..num_faults).map(|_| {
            let at = Duration::from_millis(rng.below(120));
            (rng.below(3) as usize, at, rng.pick(&FAULTS))
        });
        let faults: Vec<_> = faults.collect();
        let fault_at_start = rng.percent(15).then(|| {
            let fault = rng.pick(&[DiskFault::ReplaceFails, DiskFault::ReplaceSucceedsAndFails]);
            (rng.within(0, 2), fault)
        });
        let (decays, seed) = (rng.percent(25), rng.next_u64());
        Self { deaths, write_time, faults, fault_at_start, decays, seed }
    }

    /// Returns whether the disk may lose what it said is durable.
    #[must_use]
    pub fn deceives(&self) -> bool {
        self.decays || self.faults.iter().any(|(_, _, fault)| *fault == DiskFault::SyncLies)
    }
}

/// The faults of a disk within a life. Each is over at the next operation of its kind.
const FAULTS: [DiskFault; 5] = [
    DiskFault::Full,
    DiskFault::SyncFails,
    DiskFault::SyncLies,
    DiskFault::ReplaceFails,
    DiskFault::ReplaceSucceedsAndFails,
];
