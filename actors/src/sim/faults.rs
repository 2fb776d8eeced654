//! The faults of one run: a function of the seed.

mod processes;

use std::{collections::BTreeMap, time::Duration};

pub use self::processes::{LoadFault, ProcessFault, ProcessFaults, ProcessStrike};
use super::{device::DeviceFault, rng::Rng, workload::Workload};
use crate::{
    fault::{Chaos, EdgeFaults, How, Strikes},
    message::{Edge, Role, edge::edge},
};

/// Roles that may be struck in any run. The role for grammars is struck only if outputs are
/// constrained.
pub const ROLES: [Role; 7] = [
    Role::Ledger,
    Role::InputProcessor,
    Role::KvCacheManager,
    Role::Scheduler,
    Role::Worker,
    Role::Detokenizer,
    Role::OutputStreamer,
];

/// Returns the edges that may have faults in any run. Faults on the grammars' edges are drawn
/// separately, so that runs without constrained outputs do not change.
fn edges() -> Vec<Edge> {
    let is_of_all = |edge: &Edge| !GRAMMAR_EDGES.contains(edge) && !IMAGE_EDGES.contains(edge);
    Edge::ALL.into_iter().filter(is_of_all).collect()
}

/// Edges that have faults only if outputs are constrained.
const GRAMMAR_EDGES: [Edge; 3] = [
    edge!(Scheduler -> StructuredOutput),
    edge!(StructuredOutput -> Scheduler),
    edge!(Compiler -> StructuredOutput),
];

/// Edges that have faults only if prompts have images.
const IMAGE_EDGES: [Edge; 6] = [
    edge!(Scheduler -> EncoderCacheManager),
    edge!(EncoderCacheManager -> Scheduler),
    edge!(EncoderCacheManager -> EncoderWorker),
    edge!(EncoderWorker -> EncoderCacheManager),
    edge!(Device -> EncoderWorker),
    edge!(Door -> EncoderCacheManager),
];

/// Supervisors that may be struck. The root is left out, because its end is the engine's.
pub const SUPERVISORS: [Role; 3] = [Role::Core, Role::Egress, Role::Ingress];

/// A strike at a set time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Strike {
    /// Time of the strike.
    pub at: Duration,
    /// Role of the struck actor.
    pub role: Role,
    /// Index of the actor among those of its role.
    pub index: usize,
    /// Kind of the strike.
    pub how: How,
}

/// A strike while the system recovers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecoveryStrike {
    /// Number of the recovery, from 1: of the epoch that begins, after the first one.
    pub recovery: u64,
    /// Time after its begin.
    pub delay: Duration,
    /// The strike, whose time does not count.
    pub strike: Strike,
}

/// All faults of one run.
#[derive(Debug, Clone, Default)]
pub struct FaultPlan {
    /// Seed of the random draws.
    pub seed: u64,
    /// Maximum number of random faults.
    pub budget: u64,
    /// Faults of messages.
    pub edges: Vec<(Edge, EdgeFaults)>,
    /// Random strikes.
    pub strikes: Vec<(Role, Strikes)>,
    /// Strikes at set times.
    pub armed: Vec<Strike>,
    /// Faults of the device, by number of execution.
    pub device: BTreeMap<u64, DeviceFault>,
    /// Steps that never end, by number of execution.
    pub hangs: Vec<u64>,
    /// Executors that cannot be created, by number of the attempt.
    pub refusals: Vec<u64>,
    /// Maximum number of tokens in a step, from this execution on.
    pub memory: Option<(u64, usize)>,
    /// Whether a thread that hangs keeps the memory.
    pub is_memory_held: bool,
    /// Seed of the steps' times.
    pub step_seed: u64,
    /// Probability that an actor yields before a message, in percent. This is no fault.
    pub yield_percent: u64,
    /// Faults of engine processes.
    pub processes: ProcessFaults,
    /// Strikes while the system recovers.
    pub in_recovery: Vec<RecoveryStrike>,
    /// Time at which all faults end. `None`: they end when their number is used up.
    pub end: Option<Duration>,
}

impl FaultPlan {
    /// Returns the faults of `seed` for its workload.
    #[must_use]
    pub fn of(seed: u64, workload: &Workload) -> Self {
        let mut plan = Self::of_actors(seed, workload);
        let rng = Rng::new(seed ^ 0xfa17);
        if let Some(engines) = &workload.engines {
            let num_failures = plan.device.len() + plan.hangs.len();
            let by_step_max = 2_usize.saturating_sub(num_failures);
            plan.processes = ProcessFaults::of(&mut rng.fork(10), engines, by_step_max);
        }
        if workload.engines.is_some() && workload.has_pauses() {
            plan.add_pause_faults(&mut rng.fork(13));
        }
        plan.add_recovery_strikes(&mut rng.fork(11));
        let mut end = rng.fork(12);
        if !plan.is_calm() && end.percent(60) {
            plan.end = Some(Duration::from_millis(end.pick(&[100, 300, 1_000, 4_000])));
        }
        plan
    }

    /// Returns the faults of actors, messages and the device.
    #[must_use]
    pub fn of_actors(seed: u64, workload: &Workload) -> Self {
        // A prompt with poison already gives garbage.
        let has_poison = workload.poison.is_some();
        let rng = Rng::new(seed ^ 0xfa17);
        let mut plan = Self { seed: rng.fork(1).next_u64(), ..Self::default() };
        plan.step_seed = rng.fork(2).next_u64();
        plan.yield_percent = yield_percent(&rng);
        let kind = rng.fork(3).below(100);
        let mut draw = rng.fork(4);
        plan.budget = match draw.below(10) {
            0 => draw.within(12, 60),
            _ => draw.within(1, 8),
        } as u64;
        match kind {
            0..15 => return plan,
            15..40 => plan.edges.push((draw.pick(&edges()), edge_faults(&mut draw))),
            40..55 => plan.edges = all_edges(&mut draw),
            55..72 => plan.strikes.push((draw.pick(&ROLES), strikes(&mut draw))),
            72..82 => plan.strikes = ROLES.map(|role| (role, strikes(&mut draw))).to_vec(),
            82..92 => plan.armed = (0..draw.within(1, 3)).map(|_| strike(&mut draw)).collect(),
            _ => {
                plan.edges = all_edges(&mut draw);
                plan.strikes = ROLES.map(|role| (role, strikes(&mut draw))).to_vec();
            }
        }
        plan.add_device_faults(&mut rng.fork(5), has_poison);
        plan.add_supervisors(&mut rng.fork(6));
        if workload.is_constrained() {
            plan.add_grammar_faults(&mut rng.fork(8));
        }
        if workload.has_images() {
            plan.add_image_faults(&mut rng.fork(9));
        }
        plan
    }

    /// Returns a plan without faults and with the same times of steps.
    #[must_use]
    pub fn without_faults(seed: u64) -> Self {
        let rng = Rng::new(seed ^ 0xfa17);
        let (step_seed, yield_percent) = (rng.fork(2).next_u64(), yield_percent(&rng));
        Self { step_seed, yield_percent, ..Self::default() }
    }

    /// Loses messages about pauses on their way to the process in one run of two.
    fn add_pause_faults(&mut self, rng: &mut Rng) {
        if rng.percent(50) {
            let faults = EdgeFaults { drop: 0.5, ..EdgeFaults::default() };
            self.edges.push((edge!(Door -> Scheduler), faults));
        }
    }

    /// Lets faults strike while the system recovers from the first ones, in one run of six.
    fn add_recovery_strikes(&mut self, rng: &mut Rng) {
        if self.is_calm() || !rng.percent(16) {
            return;
        }
        for _ in 0..rng.within(1, 3) {
            let (recovery, strike) = (1 + rng.below(3), strike(rng));
            let delay = Duration::from_micros(rng.pick(&[0, 0, 300, 2_000, 20_000]));
            self.in_recovery.push(RecoveryStrike { recovery, delay, strike });
        }
    }

    fn add_device_faults(&mut self, rng: &mut Rng, has_poison: bool) {
        match rng.below(20) {
            0 | 1 => {
                let fault = rng.pick(&[DeviceFault::Panic, DeviceFault::Error]);
                self.device.insert(1 + rng.below(30), fault);
            }
            // A second garbage row would end a request.
            2 if !has_poison => {
                let row = rng.below(8) as usize;
                self.device.insert(1 + rng.below(30), DeviceFault::Garbage(row));
            }
            3 | 4 => {
                self.hangs.push(1 + rng.below(30));
                self.is_memory_held = rng.percent(50);
            }
            5 => self.memory = Some((1 + rng.below(20), rng.pick(&[1, 2, 5]))),
            6 => {
                let first = 1 + rng.below(3);
                self.refusals = (first..=first + rng.below(3)).collect();
            }
            _ => {}
        }
    }

    /// Adds strikes of supervisors to one run in seven.
    fn add_supervisors(&mut self, rng: &mut Rng) {
        match rng.below(14) {
            0 => self.strikes.push((rng.pick(&SUPERVISORS), strikes(rng))),
            1 => {
                let strike = strike(rng);
                self.armed.push(Strike { role: rng.pick(&SUPERVISORS), index: 0, ..strike });
            }
            _ => {}
        }
    }

    fn add_grammar_faults(&mut self, rng: &mut Rng) {
        let role = Role::StructuredOutput;
        match rng.below(6) {
            0 | 1 => {
                let edges = GRAMMAR_EDGES.iter();
                self.edges.extend(edges.map(|&edge| (edge, edge_faults(rng))));
            }
            2 => self.edges.push((rng.pick(&GRAMMAR_EDGES), edge_faults(rng))),
            3 => self.strikes.push((role, strikes(rng))),
            4 => self.armed.push(Strike { role, index: 0, ..strike(rng) }),
            _ => {}
        }
    }

    fn add_image_faults(&mut self, rng: &mut Rng) {
        let role = rng.pick(&[Role::EncoderCacheManager, Role::EncoderWorker]);
        match rng.below(8) {
            0 | 1 => {
                let edges = IMAGE_EDGES.iter();
                self.edges.extend(edges.map(|&edge| (edge, edge_faults(rng))));
            }
            2 | 3 => self.edges.push((rng.pick(&IMAGE_EDGES), edge_faults(rng))),
            4 => self.strikes.push((role, strikes(rng))),
            5 => self.armed.push(Strike { role, index: 0, ..strike(rng) }),
            _ => {}
        }
    }

    /// Returns whether results of steps are lost, or so late that they look lost.
    #[must_use]
    pub fn hides_results(&self) -> bool {
        self.edges.iter().any(|(edge, faults)| {
            let may_hide = faults.drop > 0.0 || faults.late > 0.0;
            may_hide && *edge == edge!(Device -> Worker)
        })
    }

    /// Returns whether supervisors may hang. Their hangs take longer to notice.
    #[must_use]
    pub fn hangs_supervisors(&self) -> bool {
        let strikes = self.strikes.iter();
        let by_chance = strikes.filter(|(_, strikes)| strikes.hang > 0.0).map(|(role, _)| *role);
        let armed = self.armed.iter().filter(|strike| strike.how == How::Hang);
        by_chance.chain(armed.map(|strike| strike.role)).any(|role| SUPERVISORS.contains(&role))
    }

    /// Returns whether there is no fault.
    #[must_use]
    pub fn is_calm(&self) -> bool {
        self.edges.is_empty()
            && self.strikes.is_empty()
            && self.armed.is_empty()
            && self.device.is_empty()
            && self.hangs.is_empty()
            && self.refusals.is_empty()
            && self.memory.is_none()
            && self.processes.is_empty()
    }

    /// Returns the time of an execution of an engine's: a few milliseconds, or an hour for a hang.
    #[must_use]
    pub fn step_time(&self, engine: usize, execution: u64) -> Duration {
        if engine == 0 && self.hangs.contains(&execution) {
            return Duration::from_secs(3_600);
        }
        let seed = self.step_seed.wrapping_add(engine as u64);
        let drawn = Rng::new(seed).fork(execution).next_u64();
        Duration::from_millis(match drawn % 16 {
            0 => 0,
            1 => 50,
            rest => rest / 3,
        })
    }

    /// Starts the random faults.
    pub fn begin(&self, chaos: &Chaos) {
        self.begin_in(chaos, self.seed);
    }

    /// Starts the random faults of an engine process. Those of its first processes are limited in
    /// number, and later ones have none.
    pub fn begin_process(&self, chaos: &Chaos, engine: usize, process: u32) {
        let rng = Rng::new(self.seed).fork(1 + engine as u64).fork(u64::from(process));
        let seed = rng.clone().next_u64();
        match process {
            1..4 => self.begin_in(chaos, seed),
            _ => chaos.set_yields(seed, self.yield_percent),
        }
    }

    fn begin_in(&self, chaos: &Chaos, seed: u64) {
        chaos.set_yields(seed, self.yield_percent);
        chaos.reseed(seed);
        chaos.set_budget(self.budget);
        self.edges.iter().for_each(|&(edge, faults)| chaos.set_edge(edge, faults));
        self.strikes.iter().for_each(|&(role, strikes)| chaos.set_strikes(role, strikes));
    }
}

fn yield_percent(rng: &Rng) -> u64 {
    rng.fork(7).pick(&[0, 0, 5, 40])
}

fn probability(rng: &mut Rng) -> f64 {
    rng.pick(&[0.002, 0.01, 0.03, 0.1, 0.3])
}

fn edge_faults(rng: &mut Rng) -> EdgeFaults {
    let mut faults = EdgeFaults::default();
    let which = rng.below(5);
    if which == 0 || which == 3 {
        faults.drop = probability(rng);
    }
    if which == 1 || which == 3 {
        faults.duplicate = probability(rng);
    }
    if which == 2 || which >= 3 {
        faults.late = probability(rng);
        faults.delay = Duration::from_millis(rng.pick(&[1, 3, 20, 200, 1_750]));
    }
    faults
}

fn all_edges(rng: &mut Rng) -> Vec<(Edge, EdgeFaults)> {
    edges().into_iter().map(|edge| (edge, edge_faults(rng))).collect()
}

fn strikes(rng: &mut Rng) -> Strikes {
    let mut strikes = Strikes::default();
    match rng.below(4) {
        0 => strikes.panic = probability(rng),
        1 => strikes.kill = probability(rng),
        2 => strikes.hang = probability(rng),
        _ => (strikes.panic, strikes.kill) = (probability(rng), probability(rng)),
    }
    strikes
}

fn strike(rng: &mut Rng) -> Strike {
    Strike {
        at: Duration::from_millis(rng.below(120)),
        role: rng.pick(&ROLES),
        index: rng.below(2) as usize,
        how: rng.pick(&How::ALL),
    }
}
