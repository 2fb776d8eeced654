//! The source of all planned faults of one system.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;

use super::{CallFate, Delivery, EdgeFaults, How, Observed, Observer};
use crate::{
    logic::{
        request::{ids::TokenId, structured_output::StructuredOutput},
        scheduler::output::SchedulerOutput,
    },
    message::{Edge, Role, edge::edge},
};

/// Probabilities that an actor is struck, each time before it handles a message and each time
/// after.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Strikes {
    /// Probability of a panic.
    pub panic: f64,
    /// Probability of a kill.
    pub kill: f64,
    /// Probability of a hang.
    pub hang: f64,
}

/// The source of all faults of one system. Draws depend only on its seed and on the order of
/// the calls.
pub struct Chaos {
    /// Whether a check may find something: a fault, an observer, or a yield. Without it, each check
    /// ends after one load. The rest is behind locks, so the load needs no order.
    is_on: AtomicBool,
    state: Mutex<State>,
    /// Probability that an actor yields, in percent.
    yield_percent: AtomicU64,
    yield_draws: AtomicU64,
    /// Token that ends the process in every step with a prompt that has it.
    poison: Mutex<Option<TokenId>>,
    observer: OnceLock<Arc<dyn Observer>>,
    /// Runtime in which late messages wait. Threads without a runtime may send them.
    runtime: Option<tokio::runtime::Handle>,
}

impl Default for Chaos {
    fn default() -> Self {
        let runtime = tokio::runtime::Handle::try_current().ok();
        let observer = OnceLock::new();
        Self {
            is_on: AtomicBool::new(false),
            state: Mutex::default(),
            yield_percent: AtomicU64::new(0),
            yield_draws: AtomicU64::new(0),
            poison: Mutex::new(None),
            observer,
            runtime,
        }
    }
}

impl fmt::Debug for Chaos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chaos").field("state", &self.state).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct State {
    rng: u64,
    edges: BTreeMap<Edge, EdgeFaults>,
    strikes: BTreeMap<Role, Strikes>,
    armed: Vec<(Role, usize, How)>,
    num_faults: u64,
    /// Number of random faults that may still happen. Armed strikes always happen.
    budget: Option<u64>,
}

impl Chaos {
    #[inline]
    fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    fn switch_on(&self) {
        self.is_on.store(true, Ordering::Relaxed);
    }

    /// Starts the sequence of draws from `seed`.
    pub fn reseed(&self, seed: u64) {
        self.state.lock().rng = seed;
    }

    /// Gives messages on `edge` these faults from now on.
    pub fn set_edge(&self, edge: Edge, faults: EdgeFaults) {
        self.state.lock().edges.insert(edge, faults);
        self.switch_on();
    }

    /// Strikes actors of `role` at random from now on.
    pub fn set_strikes(&self, role: Role, strikes: Strikes) {
        self.state.lock().strikes.insert(role, strikes);
        self.switch_on();
    }

    /// Limits the number of further random faults.
    pub fn set_budget(&self, faults: u64) {
        self.state.lock().budget = Some(faults);
    }

    /// Strikes one actor before or after its next message.
    pub fn arm(&self, role: Role, index: usize, how: How) {
        self.state.lock().armed.push((role, index, how));
        self.switch_on();
    }

    /// Makes actors yield before a message with this probability from now on, so that
    /// concurrent work happens in another order.
    pub fn set_yields(&self, seed: u64, percent: u64) {
        self.yield_draws.store(seed, Ordering::Relaxed);
        self.yield_percent.store(percent, Ordering::Relaxed);
        self.switch_on();
    }

    /// Returns how often an actor yields before it handles a message.
    #[inline]
    #[must_use]
    pub fn yields(&self) -> u32 {
        if self.is_on() { self.drawn_yields() } else { 0 }
    }

    #[cold]
    fn drawn_yields(&self) -> u32 {
        let percent = self.yield_percent.load(Ordering::Relaxed);
        if percent == 0 {
            return 0;
        }
        let mut draw =
            State { rng: self.yield_draws.fetch_add(1, Ordering::Relaxed), ..State::default() };
        let drawn = draw.next();
        if drawn % 100 < percent { 1 + (drawn >> 32) as u32 % 3 } else { 0 }
    }

    /// Ends the process from now on in every step with a prompt that has this token.
    pub fn set_poison(&self, token: TokenId) {
        *self.poison.lock() = Some(token);
        self.switch_on();
    }

    /// Ends the process if the step has a poisoned prompt.
    #[inline]
    pub fn on_step(&self, step: &SchedulerOutput) {
        if self.is_on() {
            self.die_of(step);
        }
    }

    #[cold]
    fn die_of(&self, step: &SchedulerOutput) {
        let poison = *self.poison.lock();
        let has = |token| {
            let mut new = step.scheduled_new.iter();
            new.any(|data| data.request.prompt_token_ids.contains(&token))
        };
        if poison.is_some_and(has) {
            std::process::abort();
        }
    }

    /// Ends all faults.
    pub fn calm(&self) {
        *self.poison.lock() = None;
        let is_simulated = self.observer.get().is_some();
        let is_on = is_simulated || self.yield_percent.load(Ordering::Relaxed) > 0;
        self.is_on.store(is_on, Ordering::Relaxed);
        let mut state = self.state.lock();
        state.edges.clear();
        state.strikes.clear();
        state.armed.clear();
    }

    /// Reports events to `observer` from now on. Only the first observer is set.
    pub fn set_observer(&self, observer: Arc<dyn Observer>) {
        // A second observer is ignored, because it would have missed events.
        let _ = self.observer.set(observer);
        self.switch_on();
    }

    /// Reports to the observer, if there is one.
    #[inline]
    pub fn observe(&self, what: &Observed<'_>) {
        if self.is_on() {
            self.report(what);
        }
    }

    #[cold]
    fn report(&self, what: &Observed<'_>) {
        if let Some(observer) = self.observer.get() {
            observer.observe(what);
        }
    }

    /// Returns the time to add to a step, where the device runs in simulated time.
    #[must_use]
    pub fn step_delay(&self) -> Duration {
        self.observer.get().map_or(Duration::ZERO, |observer| observer.step_delay())
    }

    /// Returns the time to encode images, where the device runs in simulated time.
    #[must_use]
    pub fn encode_delay(&self) -> Duration {
        self.observer.get().map_or(Duration::ZERO, |observer| observer.encode_delay())
    }

    /// Returns the time to compile a grammar, where threads run in simulated time.
    #[must_use]
    pub fn compile_delay(&self, format: &StructuredOutput) -> Duration {
        let observer = self.observer.get();
        observer.map_or(Duration::ZERO, |observer| observer.compile_delay(format))
    }

    /// Returns the number of faults so far.
    #[must_use]
    pub fn num_faults(&self) -> u64 {
        self.state.lock().num_faults
    }

    /// Returns the delivery of a message on `edge`.
    #[inline]
    #[must_use]
    pub fn on_send(&self, edge: Edge) -> Delivery {
        if self.is_on() { self.observed_delivery(edge) } else { Delivery::PLAIN }
    }

    #[cold]
    fn observed_delivery(&self, edge: Edge) -> Delivery {
        let delivery = self.delivery(edge);
        self.observe(&Observed::Message { edge, delivery });
        delivery
    }

    fn delivery(&self, edge: Edge) -> Delivery {
        let mut state = self.state.lock();
        let Some(faults) = state.edges.get(&edge).copied() else { return Delivery::PLAIN };
        let mut delivery = Delivery::PLAIN;
        if state.happens(faults.drop) {
            delivery.copies = 0;
        } else if state.happens(faults.duplicate) {
            delivery.copies = 2;
        }
        if delivery.copies > 0 && state.happens(faults.late) {
            let most = faults.delay.as_micros() as u64;
            delivery.delay = Some(Duration::from_micros(1 + state.next() % most.max(1)));
        }
        delivery
    }

    /// Returns the fate of a call to `callee`, from the faults of its edge.
    #[inline]
    #[must_use]
    pub fn on_call(&self, callee: Role) -> CallFate {
        if self.is_on() { self.fate(callee) } else { CallFate::Plain }
    }

    #[cold]
    fn fate(&self, callee: Role) -> CallFate {
        let edge = match callee {
            Role::InputProcessor => edge!(Door -> InputProcessor),
            Role::Ledger => edge!(Door -> Ledger),
            Role::KvCacheManager => edge!(Scheduler -> KvCacheManager),
            Role::Scheduler => edge!(Door -> Scheduler),
            _ => return CallFate::Plain,
        };
        match self.on_send(edge) {
            Delivery { copies: 0, .. } if self.state.lock().coin() => CallFate::LoseRequest,
            Delivery { copies: 0, .. } => CallFate::LoseAnswer,
            Delivery { delay: Some(delay), .. } => CallFate::Delay(delay),
            // A call has one answer, so it is not doubled.
            _ => CallFate::Plain,
        }
    }

    /// Delivers a late message after `delay`.
    pub fn later(&self, delay: Duration, deliver: impl FnOnce() + Send + 'static) {
        match &self.runtime {
            None => deliver(),
            Some(runtime) => drop(runtime.spawn(async move {
                tokio::time::sleep(delay).await;
                deliver();
            })),
        }
    }

    /// Returns the strike of an actor before or after it handles a message, if there is one.
    #[inline]
    #[must_use]
    pub fn on_handle(&self, role: Role, index: usize) -> Option<How> {
        if self.is_on() { self.observed_strike(role, index) } else { None }
    }

    #[cold]
    fn observed_strike(&self, role: Role, index: usize) -> Option<How> {
        let how = self.strike(role, index)?;
        self.observe(&Observed::Struck { role, index, how });
        Some(how)
    }

    fn strike(&self, role: Role, index: usize) -> Option<How> {
        let mut state = self.state.lock();
        let is_it = |armed: &(Role, usize, How)| (armed.0, armed.1) == (role, index);
        if let Some(found) = state.armed.iter().position(is_it) {
            state.num_faults += 1;
            return Some(state.armed.remove(found).2);
        }
        let strikes = state.strikes.get(&role).copied()?;
        if state.happens(strikes.panic) {
            Some(How::Panic)
        } else if state.happens(strikes.kill) {
            Some(How::Kill)
        } else if state.happens(strikes.hang) {
            Some(How::Hang)
        } else {
            None
        }
    }
}

impl State {
    /// Returns the next number of SplitMix64.
    fn next(&mut self) -> u64 {
        self.rng = self.rng.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.rng;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn coin(&mut self) -> bool {
        self.next() >> 63 == 0
    }

    fn happens(&mut self, probability: f64) -> bool {
        if probability <= 0.0 {
            return false;
        }
        let drawn = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        let happens = drawn < probability && self.budget != Some(0);
        if happens {
            self.num_faults += 1;
            self.budget = self.budget.map(|left| left - 1);
        }
        happens
    }
}
