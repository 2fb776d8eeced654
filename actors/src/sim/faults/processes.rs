//! The faults of engine processes and of their links.

use std::{collections::BTreeMap, time::Duration};

use crate::sim::{rng::Rng, workload::EnginesPlan};

/// A fault of a process, or of the link to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessFault {
    /// SIGKILL from outside.
    Kill,
    /// A fault of its code, as SIGSEGV.
    Crash,
    /// Its memory is used up.
    OutOfMemory,
    /// A signal stops it.
    Stop,
    /// A signal stops it for this time, which is too short to count as its end.
    Pause(Duration),
    /// All of its threads hang.
    Hang,
    /// It is silent, its device computes on, and it ends long after it was killed.
    EndLate,
    /// It writes bytes that are no frame.
    Garbage,
    /// A bit on the link changes.
    FlipBit {
        /// Whether in a frame to the front.
        is_to_front: bool,
        /// Place of the bit among the next ones.
        place: usize,
    },
    /// Each write on the link takes longer for some time.
    Slow {
        /// Delay of a write.
        delay: Duration,
        /// Duration of the fault.
        time: Duration,
    },
}

impl ProcessFault {
    /// Returns whether the front takes a step for a possible cause of the end. Three of these in a
    /// row would convict a request.
    fn is_by_step(self) -> bool {
        !matches!(self, Self::Kill | Self::Stop | Self::Pause(_) | Self::Slow { .. })
    }
}

/// A fault at a set time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessStrike {
    /// The time.
    pub at: Duration,
    /// The engine.
    pub engine: usize,
    /// The fault.
    pub fault: ProcessFault,
    /// Whether it is one of the engine's newest process, which may be a spare process.
    pub is_at_newest: bool,
}

/// A fault of a process that loads its model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadFault {
    /// The system starts no process.
    NotStarted,
    /// It ends within the load.
    Dies,
    /// It reports that the model cannot be loaded.
    Refuses,
    /// It gives no sign of life.
    IsMute,
}

/// All faults of processes and links in one run.
#[derive(Debug, Clone, Default)]
pub struct ProcessFaults {
    /// Faults at set times.
    pub strikes: Vec<ProcessStrike>,
    /// Faults of loads, by engine and number of the process, from 1.
    pub loads: BTreeMap<(usize, u32), LoadFault>,
    /// The step, by engine and number of execution, within which the process ends.
    pub death_in_step: Option<(usize, u64)>,
    /// Steps, by engine, first number of execution and their number, within which the process is
    /// killed from outside.
    pub kills_in_steps: Option<(usize, u64, u64)>,
    /// Stores to the kept directory, by number, after which the process ends.
    pub last_stores: Vec<u64>,
}

impl ProcessFaults {
    /// Draws the faults of a run. `by_step_max` limits those that may be blamed on a step.
    pub(super) fn of(rng: &mut Rng, engines: &EnginesPlan, by_step_max: usize) -> Self {
        let mut faults = Self::default();
        match rng.below(100) {
            _ if engines.count > 1 && rng.percent(15) => faults.add_turns(rng, engines),
            0..18 => {}
            18..38 => faults.add_strikes(rng, engines, 1),
            38..52 => {
                let count = rng.within(2, 3);
                faults.add_strikes(rng, engines, count);
            }
            52..66 => faults.add_pair(rng, engines),
            66..80 => {
                faults.add_strikes(rng, engines, 1);
                faults.add_loads(rng, engines);
            }
            80..84 => faults.death_in_step = Some((engine(rng, engines), 1 + rng.below(20))),
            84..86 => {
                let count = rng.within(3, 4) as u64;
                faults.kills_in_steps = Some((engine(rng, engines), 1 + rng.below(20), count));
            }
            86..92 => {
                let first = 1 + rng.below(60);
                faults.last_stores = vec![first, first + 1 + rng.below(40)];
            }
            _ => {
                for _ in 0..rng.within(4, 8) {
                    let at = Duration::from_millis(rng.below(300));
                    let engine = engine(rng, engines);
                    faults.strikes.push(strike(at, engine, ProcessFault::Kill));
                }
            }
        }
        faults.limit(by_step_max);
        faults.strikes.sort_by_key(|strike| strike.at);
        faults.strikes.iter_mut().for_each(|strike| strike.is_at_newest = rng.percent(25));
        faults
    }

    fn add_strikes(&mut self, rng: &mut Rng, engines: &EnginesPlan, count: usize) {
        for _ in 0..count {
            let at = Duration::from_millis(rng.below(150));
            let engine = engine(rng, engines);
            self.strikes.push(strike(at, engine, fault(rng)));
        }
    }

    /// Adds two faults at once, or the second while the first engine recovers. With one engine,
    /// both are its own.
    fn add_pair(&mut self, rng: &mut Rng, engines: &EnginesPlan) {
        let at = Duration::from_millis(rng.below(120));
        let first = engine(rng, engines);
        let recovering = engines.load_time.as_micros() as u64 + 2_000;
        let pause = Duration::from_micros(rng.below(recovering));
        let second = (first + 1) % engines.count;
        let is_at_once = engines.count > 1 && rng.percent(40);
        let later = if is_at_once { at } else { at + pause };
        self.strikes.push(strike(at, first, fault(rng)));
        self.strikes.push(strike(later, second, fault(rng)));
    }

    /// Kills two engines in turns, each soon after the other one, or after that one's next process
    /// has begun. So their requests come and go.
    fn add_turns(&mut self, rng: &mut Rng, engines: &EnginesPlan) {
        let (first, mut at) = (engine(rng, engines), Duration::from_millis(rng.below(40)));
        for turn in 0..rng.within(4, 8) {
            let engine = (first + turn % 2) % engines.count;
            self.strikes.push(strike(at, engine, ProcessFault::Kill));
            let waits_for_load = rng.percent(40);
            at += if waits_for_load { engines.load_time } else { Duration::ZERO };
            at += Duration::from_millis(rng.within(1, 25) as u64);
        }
    }

    fn add_loads(&mut self, rng: &mut Rng, engines: &EnginesPlan) {
        let kinds = [LoadFault::NotStarted, LoadFault::Dies, LoadFault::Refuses, LoadFault::IsMute];
        for number in 2..2 + rng.below(3) as u32 {
            self.loads.insert((engine(rng, engines), number), rng.pick(&kinds));
        }
    }

    /// Replaces faults beyond the limit by others of the process, which come from outside.
    fn limit(&mut self, by_step_max: usize) {
        let others = usize::from(self.death_in_step.is_some()) + self.last_stores.len();
        if others > by_step_max {
            self.death_in_step = None;
            self.last_stores.truncate(by_step_max);
        }
        let mut num_left = by_step_max.saturating_sub(others);
        for strike in &mut self.strikes {
            if strike.fault.is_by_step() && num_left == 0 {
                strike.fault = ProcessFault::Kill;
            } else if strike.fault.is_by_step() {
                num_left -= 1;
            }
        }
    }

    /// Returns whether there is no fault.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.strikes.is_empty()
            && self.loads.is_empty()
            && self.death_in_step.is_none()
            && self.kills_in_steps.is_none()
            && self.last_stores.is_empty()
    }
}

fn engine(rng: &mut Rng, engines: &EnginesPlan) -> usize {
    rng.below(engines.count as u64) as usize
}

fn strike(at: Duration, engine: usize, fault: ProcessFault) -> ProcessStrike {
    ProcessStrike { at, engine, fault, is_at_newest: false }
}

fn fault(rng: &mut Rng) -> ProcessFault {
    match rng.below(20) {
        0..5 => ProcessFault::Kill,
        5..8 => ProcessFault::Crash,
        8 => ProcessFault::OutOfMemory,
        9 => ProcessFault::Stop,
        10 => ProcessFault::Pause(Duration::from_millis(rng.within(1, 45) as u64)),
        11 => ProcessFault::Hang,
        12 | 13 => ProcessFault::EndLate,
        14 => ProcessFault::Garbage,
        15..18 => {
            let place = rng.pick(&[0, 40, 120, 300]);
            let place = place + rng.below(64) as usize;
            ProcessFault::FlipBit { is_to_front: rng.percent(70), place: 8 * place }
        }
        _ => ProcessFault::Slow {
            delay: Duration::from_micros(rng.pick(&[200, 1_000, 3_000])),
            time: Duration::from_millis(rng.pick(&[30, 300])),
        },
    }
}
