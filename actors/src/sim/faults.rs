//! What goes wrong in one run: a function of the seed.

use std::{collections::BTreeMap, time::Duration};

use super::{device::DeviceFault, rng::Rng};
use crate::{
    fault::{Chaos, EdgeFaults, How, Strikes},
    message::{Edge, Role, edge::edge},
};

/// Roles that may be struck in any run; that of grammars is where outputs are constrained.
pub const ROLES: [Role; 7] = [
    Role::Ledger,
    Role::InputProcessor,
    Role::KvCacheManager,
    Role::Scheduler,
    Role::Worker,
    Role::Detokenizer,
    Role::OutputStreamer,
];

/// Edges on which something may go wrong in any run. Those of grammars are drawn for by themselves,
/// so that runs without constrained outputs stay the runs that they were.
fn edges() -> Vec<Edge> {
    Edge::ALL.into_iter().filter(|edge| !GRAMMAR_EDGES.contains(edge)).collect()
}

/// Edges on which something goes wrong only where outputs are constrained.
const GRAMMAR_EDGES: [Edge; 3] = [
    edge!(Scheduler -> StructuredOutput),
    edge!(StructuredOutput -> Scheduler),
    edge!(Compiler -> StructuredOutput),
];

/// Supervisors that may be struck; the root's end is the engine's.
pub const SUPERVISORS: [Role; 3] = [Role::Core, Role::Egress, Role::Ingress];

/// A strike at a set time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Strike {
    /// When.
    pub at: Duration,
    /// Whom.
    pub role: Role,
    /// Which of its kind.
    pub index: usize,
    /// How.
    pub how: How,
}

/// All faults of one run.
#[derive(Debug, Clone, Default)]
pub struct FaultPlan {
    /// Seeds the draws.
    pub seed: u64,
    /// Faults by chance, at most.
    pub budget: u64,
    /// What befalls messages.
    pub edges: Vec<(Edge, EdgeFaults)>,
    /// Who is struck by chance.
    pub strikes: Vec<(Role, Strikes)>,
    /// Who is struck for certain.
    pub armed: Vec<Strike>,
    /// What befalls the device, by number of execution.
    pub device: BTreeMap<u64, DeviceFault>,
    /// Steps that never come back, by number of execution.
    pub hangs: Vec<u64>,
    /// Executors that cannot be made, by number of the attempt.
    pub refusals: Vec<u64>,
    /// From this execution on, a step may compute so many tokens.
    pub memory: Option<(u64, usize)>,
    /// A thread that hangs keeps the memory.
    pub is_memory_held: bool,
    /// Seeds how long steps take.
    pub step_seed: u64,
    /// How often actors let others go first, in percent. No fault.
    pub yield_percent: u64,
}

impl FaultPlan {
    /// The faults of `seed`. `has_poison`: a prompt gives garbage already. `is_constrained`: some
    /// outputs are.
    #[must_use]
    pub fn new(seed: u64, has_poison: bool, is_constrained: bool) -> Self {
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
        if is_constrained {
            plan.add_grammar_faults(&mut rng.fork(8));
        }
        plan
    }

    /// No faults at all, with the same durations of steps.
    #[must_use]
    pub fn without_faults(seed: u64) -> Self {
        let rng = Rng::new(seed ^ 0xfa17);
        let (step_seed, yield_percent) = (rng.fork(2).next_u64(), yield_percent(&rng));
        Self { step_seed, yield_percent, ..Self::default() }
    }

    fn add_device_faults(&mut self, rng: &mut Rng, has_poison: bool) {
        match rng.below(20) {
            0 | 1 => {
                let fault = rng.pick(&[DeviceFault::Panic, DeviceFault::Error]);
                self.device.insert(1 + rng.below(30), fault);
            }
            // A second one would end a request.
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

    /// One run in seven strikes supervisors.
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

    /// Whether results of steps are lost, or so late that it looks so.
    #[must_use]
    pub fn hides_results(&self) -> bool {
        self.edges.iter().any(|(edge, faults)| {
            let may_hide = faults.drop > 0.0 || faults.late > 0.0;
            may_hide && *edge == edge!(Device -> Worker)
        })
    }

    /// Whether supervisors may hang, which takes longer to notice than with others.
    #[must_use]
    pub fn hangs_supervisors(&self) -> bool {
        let strikes = self.strikes.iter();
        let by_chance = strikes.filter(|(_, strikes)| strikes.hang > 0.0).map(|(role, _)| *role);
        let armed = self.armed.iter().filter(|strike| strike.how == How::Hang);
        by_chance.chain(armed.map(|strike| strike.role)).any(|role| SUPERVISORS.contains(&role))
    }

    /// Whether nothing goes wrong.
    #[must_use]
    pub fn is_calm(&self) -> bool {
        self.edges.is_empty()
            && self.strikes.is_empty()
            && self.armed.is_empty()
            && self.device.is_empty()
            && self.hangs.is_empty()
            && self.refusals.is_empty()
            && self.memory.is_none()
    }

    /// How long an execution takes: a few milliseconds, or for ever.
    #[must_use]
    pub fn step_time(&self, execution: u64) -> Duration {
        if self.hangs.contains(&execution) {
            return Duration::from_secs(3_600);
        }
        let drawn = Rng::new(self.step_seed).fork(execution).next_u64();
        Duration::from_millis(match drawn % 16 {
            0 => 0,
            1 => 50,
            rest => rest / 3,
        })
    }

    /// Lets loose what happens by chance.
    pub fn begin(&self, chaos: &Chaos) {
        chaos.set_yields(self.seed, self.yield_percent);
        chaos.reseed(self.seed);
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
