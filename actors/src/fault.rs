//! Faults on purpose: messages that get lost, doubled or late, and actors that panic, are killed or
//! hang. Built in with the feature `chaos`; without it, asking for a fault costs nothing and there
//! is never one.

use std::time::Duration;

mod observe;

pub use self::observe::{Observed, Observer};
pub use crate::logic::planted::{Bug, planted};

/// How an actor is struck.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum How {
    /// A panic in its handler.
    Panic,
    /// Killed from outside, between two `.await`s.
    Kill,
    /// Its handler never comes back.
    Hang,
}

impl How {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Panic, Self::Kill, Self::Hang];

    /// The name on the chaos surface.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Panic => "panic",
            Self::Kill => "kill",
            Self::Hang => "hang",
        }
    }
}

/// What happens to one message on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivery {
    /// How often it arrives: 0, 1 or 2 times.
    pub copies: u8,
    /// How much later.
    pub delay: Option<Duration>,
}

impl Delivery {
    /// Once and at once.
    pub const PLAIN: Self = Self { copies: 1, delay: None };
}

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallFate {
    /// Nothing.
    Plain,
    /// It never arrives, and its caller waits in vain.
    LoseRequest,
    /// It is carried out, and its caller waits in vain.
    LoseAnswer,
    /// It is this much late.
    Delay(Duration),
}

/// What befalls the messages of an edge. The probabilities are independent.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct EdgeFaults {
    /// Probability in `[0, 1]` that a message is lost.
    pub drop: f64,
    /// Probability in `[0, 1]` that it arrives twice.
    pub duplicate: f64,
    /// Probability in `[0, 1]` that it is late, and so overtaken by later ones.
    pub late: f64,
    /// A late message is late by up to this much.
    pub delay: Duration,
}

#[cfg(feature = "chaos")]
pub use self::on::{Chaos, Strikes};

#[cfg(not(feature = "chaos"))]
pub use self::off::Chaos;

#[cfg(not(feature = "chaos"))]
mod off {
    use std::time::Duration;

    use super::{CallFate, Delivery, How, Observed};
    use crate::{
        logic::request::structured_output::StructuredOutput,
        message::{Edge, Role},
    };

    /// The source of all faults: here, of none.
    #[derive(Debug, Default)]
    pub struct Chaos(());

    impl Chaos {
        /// What happens to a message on `edge`.
        #[inline]
        #[must_use]
        pub const fn on_send(&self, _edge: Edge) -> Delivery {
            Delivery::PLAIN
        }

        /// What happens to a call to `callee`.
        #[inline]
        #[must_use]
        pub const fn on_call(&self, _callee: Role) -> CallFate {
            CallFate::Plain
        }

        /// Delivers what is late; here, nothing is.
        #[inline]
        pub fn later(&self, _delay: Duration, deliver: impl FnOnce()) {
            deliver();
        }

        /// Whether the actor is struck before or after it handles a message.
        #[inline]
        #[must_use]
        pub const fn on_handle(&self, _role: Role, _index: usize) -> Option<How> {
            None
        }

        /// How often an actor lets others go first before it handles a message.
        #[inline]
        #[must_use]
        pub const fn yields(&self) -> u32 {
            0
        }

        /// Tells the observer, if there is one.
        #[inline]
        pub const fn observe(&self, _what: &Observed<'_>) {}

        /// What compiling a grammar takes in simulated time.
        #[inline]
        #[must_use]
        pub const fn compile_delay(&self, _format: &StructuredOutput) -> Duration {
            Duration::ZERO
        }

        /// What a step takes beyond what it takes.
        #[inline]
        #[must_use]
        pub const fn step_delay(&self) -> Duration {
            Duration::ZERO
        }
    }
}

#[cfg(feature = "chaos")]
mod on {
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
        logic::request::structured_output::StructuredOutput,
        message::{Edge, Role, edge::edge},
    };

    /// How likely an actor is struck, each time before it handles a message and each time after.
    #[derive(Debug, Clone, Copy, PartialEq, Default)]
    pub struct Strikes {
        /// Probability of a panic.
        pub panic: f64,
        /// Probability of a kill.
        pub kill: f64,
        /// Probability of a hang.
        pub hang: f64,
    }

    /// The source of all faults of one system. Draws are a function of its seed and of the order
    /// of the questions.
    pub struct Chaos {
        is_on: AtomicBool,
        state: Mutex<State>,
        /// How likely an actor lets others go first, in percent, and how often it was asked.
        yield_percent: AtomicU64,
        yield_draws: AtomicU64,
        observer: OnceLock<Arc<dyn Observer>>,
        /// Where late messages wait; they may be sent from threads that know no runtime.
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
        /// Faults that may still happen by chance; what was armed always does.
        budget: Option<u64>,
    }

    impl Chaos {
        /// Begins the sequence of draws.
        pub fn reseed(&self, seed: u64) {
            self.state.lock().rng = seed;
        }

        /// From now on, messages on `edge` meet these faults.
        pub fn set_edge(&self, edge: Edge, faults: EdgeFaults) {
            self.state.lock().edges.insert(edge, faults);
            self.is_on.store(true, Ordering::Release);
        }

        /// From now on, actors of `role` are struck by chance.
        pub fn set_strikes(&self, role: Role, strikes: Strikes) {
            self.state.lock().strikes.insert(role, strikes);
            self.is_on.store(true, Ordering::Release);
        }

        /// At most so many further faults by chance.
        pub fn set_budget(&self, faults: u64) {
            self.state.lock().budget = Some(faults);
        }

        /// Strikes one actor when it next looks at a message.
        pub fn arm(&self, role: Role, index: usize, how: How) {
            self.state.lock().armed.push((role, index, how));
            self.is_on.store(true, Ordering::Release);
        }

        /// From now on, actors let others go first before a message, with this probability: what is
        /// concurrent happens in another order.
        pub fn set_yields(&self, seed: u64, percent: u64) {
            self.yield_draws.store(seed, Ordering::Relaxed);
            self.yield_percent.store(percent, Ordering::Relaxed);
        }

        /// How often an actor lets others go first before it handles a message.
        pub fn yields(&self) -> u32 {
            let percent = self.yield_percent.load(Ordering::Relaxed);
            if percent == 0 {
                return 0;
            }
            let mut draw =
                State { rng: self.yield_draws.fetch_add(1, Ordering::Relaxed), ..State::default() };
            let drawn = draw.next();
            if drawn % 100 < percent { 1 + (drawn >> 32) as u32 % 3 } else { 0 }
        }

        /// No more faults.
        pub fn calm(&self) {
            self.is_on.store(false, Ordering::Release);
            let mut state = self.state.lock();
            state.edges.clear();
            state.strikes.clear();
            state.armed.clear();
        }

        /// From now on, `observer` is told of what happens. There can be one.
        pub fn set_observer(&self, observer: Arc<dyn Observer>) {
            // A second one comes too late: what the first knows is all or nothing.
            let _ = self.observer.set(observer);
        }

        /// Tells the observer, if there is one.
        pub fn observe(&self, what: &Observed<'_>) {
            if let Some(observer) = self.observer.get() {
                observer.observe(what);
            }
        }

        /// What a step takes beyond what it takes, where the device runs in simulated time.
        pub fn step_delay(&self) -> Duration {
            self.observer.get().map_or(Duration::ZERO, |observer| observer.step_delay())
        }

        /// What compiling a grammar takes, where threads run in simulated time.
        pub fn compile_delay(&self, format: &StructuredOutput) -> Duration {
            let observer = self.observer.get();
            observer.map_or(Duration::ZERO, |observer| observer.compile_delay(format))
        }

        /// Faults so far.
        pub fn num_faults(&self) -> u64 {
            self.state.lock().num_faults
        }

        /// What happens to a message on `edge`.
        pub fn on_send(&self, edge: Edge) -> Delivery {
            let delivery = self.delivery(edge);
            self.observe(&Observed::Message { edge, delivery });
            delivery
        }

        fn delivery(&self, edge: Edge) -> Delivery {
            if !self.is_on.load(Ordering::Acquire) {
                return Delivery::PLAIN;
            }
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

        /// What happens to a call to `callee`, by the edge on which it is asked.
        pub fn on_call(&self, callee: Role) -> CallFate {
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
                // A question has one answer, so it is not asked twice.
                _ => CallFate::Plain,
            }
        }

        /// Delivers what is late.
        pub fn later(&self, delay: Duration, deliver: impl FnOnce() + Send + 'static) {
            match &self.runtime {
                None => deliver(),
                Some(runtime) => drop(runtime.spawn(async move {
                    tokio::time::sleep(delay).await;
                    deliver();
                })),
            }
        }

        /// Whether the actor is struck before or after it handles a message.
        pub fn on_handle(&self, role: Role, index: usize) -> Option<How> {
            let how = self.strike(role, index)?;
            self.observe(&Observed::Struck { role, index, how });
            Some(how)
        }

        fn strike(&self, role: Role, index: usize) -> Option<How> {
            if !self.is_on.load(Ordering::Acquire) {
                return None;
            }
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
        /// SplitMix64.
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
}
