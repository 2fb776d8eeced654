//! Decides whether a handler hangs, from the facts that a watchdog sees at each look.
//!
//! Time alone does not show a hang, because on a loaded machine a thread waits for a processor for
//! hundreds of milliseconds. A handler is charged only for time in which it could have gone on and
//! did not:
//!
//! | The handler | is charged |
//! |---|---|
//! | waits for an event that it did not declare, and nothing woke it | the time |
//! | computes, and its thread runs | the processor's time |
//! | computes, and its thread sleeps | the time, less that in which any thread lacked a processor |
//! | computes, and its thread waits for a processor or a disk | nothing |
//! | was woken, and no thread has taken it up | nothing |
//! | declared that it waits | nothing |
//!
//! An actor that has messages and no handler is charged the time, less that in which any thread
//! lacked a processor. Its task may wait behind a blocked thread, and then nothing else shows it.
//! It hangs when its charge reaches the upper bound of its actor.
//!
//! A handler hangs when its charge reaches
//! `max(100 ms, 10 × the known time of its kind of message)`. It also hangs after the upper bound
//! of its actor, whatever its charge is. A new poll of the handler is progress and begins a new
//! charge.

use std::collections::BTreeMap;

use crate::logic::request::ids::Micros;

/// A handler may always be charged this much, in microseconds.
pub const FLOOR: Micros = 100_000;
/// A handler may be charged this many times its known time.
pub const TIMES: Micros = 10;
/// Largest charge for one look, so that a single late look never reports a hang.
pub const CHARGE_MAX: Micros = FLOOR / 3;
/// After this time, in microseconds, a known maximum counts half.
const HALF_LIFE: Micros = 60_000_000;

/// The current activity of a handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    /// The handler is being polled.
    Computing,
    /// The handler waits for an event.
    Waiting,
    /// The handler waits, as it declared. Or it computes something that it declared to be long.
    Declared,
    /// The handler's event came, and no thread has taken it up since.
    Woken,
    /// No handler runs, and messages wait.
    Unread,
}

/// One look at an actor that is not idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sight {
    /// Number of the handler's current or last poll, unique within its actor.
    pub turn: u64,
    /// The handler's activity.
    pub doing: Doing,
    /// Time since the handler began with its message. 0: no handler runs.
    pub busy_for: Micros,
}

/// The activity of a computing handler's thread since the last look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThreadUse {
    /// The system does not report it.
    Unknown,
    /// The thread ran for this long, and could run on.
    Ran(Micros),
    /// The thread sleeps or waits for a lock.
    Slept,
    /// The thread waits for a disk.
    WaitedForDisk,
}

/// The time since the last look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    /// Length of the interval.
    pub wall: Micros,
    /// How long threads of the process lacked a processor, added up one after the other.
    pub starved: Micros,
    /// Activity of the handler's thread.
    pub thread: ThreadUse,
}

/// The times after which a handler hangs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Limit of the charged time.
    pub charged: Micros,
    /// Limit of the whole time.
    pub total: Micros,
}

/// The result of a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The handler does not hang, as far as is known.
    Alive,
    /// The handler hangs, and it ends when its actor is killed.
    HangsWaiting,
    /// The handler hangs, and it holds a thread that a kill does not end.
    HangsComputing,
}

/// The charge of one actor for its current poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Suspicion {
    turn: u64,
    charged: Micros,
}

impl Suspicion {
    /// Returns whether the next look needs the activity of the handler's thread.
    #[must_use]
    pub fn needs_evidence(&self, sight: Sight) -> bool {
        self.turn == sight.turn && matches!(sight.doing, Doing::Computing | Doing::Unread)
    }

    /// Returns the number of the poll that is charged.
    #[must_use]
    pub const fn turn(&self) -> u64 {
        self.turn
    }

    /// Returns the time charged so far. For a poll that has ended, this is the time that it took,
    /// as far as looks saw it.
    #[must_use]
    pub const fn charged(&self) -> Micros {
        self.charged
    }

    /// Adds a look and returns the verdict.
    pub fn look(&mut self, sight: Sight, interval: Interval, limits: Limits) -> Verdict {
        if self.turn == sight.turn {
            self.charged += charge(sight.doing, interval).min(CHARGE_MAX);
        } else {
            *self = Self { turn: sight.turn, charged: 0 };
        }
        let limit = if sight.doing == Doing::Unread { limits.total } else { limits.charged };
        if self.charged < limit && sight.busy_for < limits.total {
            return Verdict::Alive;
        }
        match sight.doing {
            Doing::Computing => Verdict::HangsComputing,
            Doing::Waiting | Doing::Declared | Doing::Woken | Doing::Unread => {
                Verdict::HangsWaiting
            }
        }
    }
}

fn charge(doing: Doing, interval: Interval) -> Micros {
    match (doing, interval.thread) {
        (Doing::Waiting, _) => interval.wall,
        (Doing::Computing, ThreadUse::Ran(time)) => time,
        (Doing::Computing, ThreadUse::Slept) | (Doing::Unread, _) => {
            interval.wall.saturating_sub(interval.starved)
        }
        (Doing::Computing, ThreadUse::Unknown | ThreadUse::WaitedForDisk)
        | (Doing::Declared | Doing::Woken, _) => 0,
    }
}

/// The known times of handlers: for each kind of message, a maximum that halves with time.
#[derive(Debug, Clone)]
pub struct HandlerTimes<K> {
    times: BTreeMap<K, (Micros, Micros)>,
}

impl<K> Default for HandlerTimes<K> {
    fn default() -> Self {
        Self { times: BTreeMap::new() }
    }
}

impl<K: Ord> HandlerTimes<K> {
    /// Records the time that a handler of this kind took.
    pub fn learn(&mut self, kind: K, took: Micros, now: Micros) {
        if took > self.known(&kind, now) {
            self.times.insert(kind, (took, now));
        }
    }

    /// Returns the known time of a handler of this kind, or 0 if none is known.
    #[must_use]
    pub fn known(&self, kind: &K, now: Micros) -> Micros {
        let Some((took, at)) = self.times.get(kind) else { return 0 };
        let halvings = now.saturating_sub(*at) / HALF_LIFE;
        took.checked_shr(u32::try_from(halvings).unwrap_or(u32::MAX)).unwrap_or(0)
    }

    /// Returns the limit of the charge for a handler of this kind, which itself expects to take
    /// `expected`.
    #[must_use]
    pub fn limit(&self, kind: &K, expected: Micros, now: Micros) -> Micros {
        FLOOR.max(TIMES.saturating_mul(self.known(kind, now).max(expected)))
    }
}

/// The times that steps may take, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepDeadlines {
    /// Least deadline of any step.
    pub least: Micros,
    /// Deadline of a step before which no step was measured.
    pub first: Micros,
}

/// The least deadline grows with failures up to this, in microseconds, because the alarms may have
/// been false.
const AGAIN: Micros = 2_000_000;

impl StepDeadlines {
    /// Returns the deadline `max(least, 10 × predicted)`. Beyond the first step's deadline, only
    /// twice the prediction is allowed. After steps of one token, the prediction for a step of many
    /// is far too long. The least deadline grows fourfold with each failure in a row.
    #[must_use]
    pub fn deadline(&self, predicted: Option<Micros>, failures: u32) -> Micros {
        let Some(predicted) = predicted else { return self.first };
        let grown = self.least.saturating_mul(4_u64.saturating_pow(failures));
        let least = grown.min(self.least.max(AGAIN));
        let most = self.first.max(predicted.saturating_mul(2));
        least.max(most.min(predicted.saturating_mul(TIMES)))
    }
}

/// Time after which a step hangs whatever its excuse, in microseconds, unless twenty times its
/// limit is longer. A machine can be so busy that a step of 20 ms takes several seconds.
const MOST_EXCUSED: Micros = 10_000_000;

/// Returns how much longer a step may take, after `elapsed`. For `excused` of this time its threads
/// lacked a processor, or the watchdog has not looked yet. Returns `None` if the step hangs. After
/// twenty times the limit, and at least 10 s, a step hangs however much of it is excused.
#[must_use]
pub fn step_time_left(limit: Micros, elapsed: Micros, excused: Micros) -> Option<Micros> {
    let computed = elapsed.saturating_sub(excused);
    let most = limit.saturating_mul(20).max(MOST_EXCUSED);
    let is_hung = computed >= limit || elapsed >= most;
    (!is_hung).then(|| limit - computed)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PERIOD: Micros = 20_000;
    const LIMITS: Limits = Limits { charged: FLOOR, total: 5_000_000 };

    fn interval(thread: ThreadUse, starved: Micros) -> Interval {
        Interval { wall: PERIOD, starved, thread }
    }

    /// Returns the first verdict against a handler that stays in the same poll for ever, and its
    /// time.
    fn convicted_after(doing: Doing, thread: ThreadUse, starved: Micros) -> (Verdict, Micros) {
        let mut suspicion = Suspicion::default();
        for look in 1.. {
            let busy_for = look * PERIOD;
            let sight = Sight { turn: 7, doing, busy_for };
            let verdict = suspicion.look(sight, interval(thread, starved), LIMITS);
            if verdict != Verdict::Alive {
                return (verdict, busy_for);
            }
        }
        unreachable!()
    }

    #[test]
    fn what_is_charged() {
        use Doing::{Computing, Declared, Waiting, Woken};
        use ThreadUse::{Ran, Slept, Unknown, WaitedForDisk};
        use Verdict::{HangsComputing, HangsWaiting};
        let (soon, bound) = (FLOOR + PERIOD, LIMITS.total);
        let cases = [
            ((Waiting, Unknown, 0), (HangsWaiting, soon), "nothing can wake it"),
            ((Waiting, Unknown, PERIOD), (HangsWaiting, soon), "it needs no processor for that"),
            ((Woken, Unknown, 0), (HangsWaiting, bound), "the runtime has not come to it"),
            ((Declared, Unknown, 0), (HangsWaiting, bound), "it said so"),
            ((Computing, Ran(PERIOD), 0), (HangsComputing, soon), "an endless loop"),
            ((Computing, Ran(PERIOD / 2), 0), (HangsComputing, 2 * FLOOR + PERIOD), "half a core"),
            ((Computing, Ran(0), PERIOD), (HangsComputing, bound), "it has no processor"),
            ((Computing, Slept, 0), (HangsComputing, soon), "a lock that is never released"),
            ((Computing, Slept, PERIOD), (HangsComputing, bound), "a lock's owner may be starved"),
            ((Computing, WaitedForDisk, 0), (HangsComputing, bound), "a page of a mapped file"),
            ((Computing, Unknown, 0), (HangsComputing, bound), "as without a watchdog"),
        ];
        for ((doing, thread, starved), expected, why) in cases {
            assert_eq!(convicted_after(doing, thread, starved), expected, "{why}");
        }
    }

    #[test]
    fn an_actor_that_does_not_take_its_messages_hangs_after_its_upper_bound() {
        let unread = Sight { turn: 7, doing: Doing::Unread, busy_for: 0 };
        let looks = |starved| {
            let mut suspicion = Suspicion::default();
            let mut look = || suspicion.look(unread, interval(ThreadUse::Unknown, starved), LIMITS);
            (1..1_000).find(|_| look() == Verdict::HangsWaiting)
        };
        assert_eq!(looks(0), Some(LIMITS.total / PERIOD + 1));
        assert_eq!(looks(PERIOD), None, "its thread may lack a processor");
    }

    #[test]
    fn a_new_poll_is_progress() {
        let mut suspicion = Suspicion::default();
        for turn in 0..200 {
            let sight = Sight { turn, doing: Doing::Waiting, busy_for: turn * PERIOD };
            let verdict = suspicion.look(sight, interval(ThreadUse::Unknown, 0), LIMITS);
            assert_eq!(verdict, Verdict::Alive, "{turn}");
        }
    }

    #[test]
    fn one_late_look_convicts_nobody() {
        let mut suspicion = Suspicion::default();
        let sight = |busy_for| Sight { turn: 1, doing: Doing::Waiting, busy_for };
        let late = Interval { wall: 3_000_000, starved: 0, thread: ThreadUse::Unknown };
        assert_eq!(
            suspicion.look(sight(1), interval(ThreadUse::Unknown, 0), LIMITS),
            Verdict::Alive
        );
        assert_eq!(suspicion.look(sight(3_000_000), late, LIMITS), Verdict::Alive);
        assert_eq!(suspicion.charged(), CHARGE_MAX);
    }

    #[test]
    fn a_kind_that_is_known_to_take_long_may_take_ten_times_that() {
        let mut times = HandlerTimes::default();
        assert_eq!(times.limit(&"recover", 0, 0), FLOOR);
        times.learn("recover", 50_000, 0);
        assert_eq!(times.limit(&"recover", 0, 0), 500_000);
        times.learn("recover", 20_000, 1);
        assert_eq!(times.limit(&"recover", 0, 1), 500_000, "a maximum");
        assert_eq!(times.limit(&"tick", 0, 0), FLOOR, "of its own kind");
        assert_eq!(times.limit(&"tick", 30_000, 0), 300_000, "what it expects counts");
        assert_eq!(times.limit(&"recover", 0, HALF_LIFE), 250_000);
        assert_eq!(times.limit(&"recover", 0, 200 * HALF_LIFE), FLOOR);
    }

    #[test]
    fn a_step_may_take_ten_times_its_prediction() {
        let deadlines = StepDeadlines { least: FLOOR, first: 300_000_000 };
        let deadline = |predicted, failures| deadlines.deadline(predicted, failures);
        assert_eq!(deadline(None, 0), 300_000_000, "nothing is known of the device");
        assert_eq!(deadline(Some(2_000), 0), FLOOR);
        assert_eq!(deadline(Some(50_000), 0), 500_000);
        assert_eq!(deadline(Some(60_000_000), 0), 300_000_000);
        assert_eq!(deadline(Some(200_000_000), 0), 400_000_000);
        let again: Vec<_> = (1..5).map(|failures| deadline(Some(2_000), failures)).collect();
        assert_eq!(again, [400_000, 1_600_000, 2_000_000, 2_000_000]);
        let patient = StepDeadlines { least: 7_000_000, first: 300_000_000 };
        assert_eq!(patient.deadline(Some(1), 9), 7_000_000);
    }

    #[test]
    fn a_starved_step_gets_the_time_that_it_lacked() {
        assert_eq!(step_time_left(100, 100, 0), None);
        assert_eq!(step_time_left(100, 100, 90), Some(90));
        assert_eq!(step_time_left(100, 250, 150), None);
        assert_eq!(step_time_left(100, 2_000, 1_990), Some(90));
        assert_eq!(step_time_left(100, MOST_EXCUSED, MOST_EXCUSED), None, "no machine is so busy");
        let (limit, elapsed) = (MOST_EXCUSED, 20 * MOST_EXCUSED);
        assert_eq!(step_time_left(limit, elapsed - 1, elapsed), Some(limit));
        assert_eq!(step_time_left(limit, elapsed, elapsed), None, "twenty times is enough");
    }

    proptest! {
        /// On any loaded machine, a handler that gets no processor does not count as hung before
        /// the upper bound. The bound holds however little the handler is charged.
        #[test]
        fn no_false_alarm_without_a_processor_and_no_hang_without_an_end(
            looks in prop::collection::vec((0..4_u8, 1..400_000_u64), 1..200),
        ) {
            let mut suspicion = Suspicion::default();
            let mut busy_for = 0;
            for (kind, wall) in looks {
                busy_for += wall;
                let (doing, thread) = match kind {
                    0 => (Doing::Computing, ThreadUse::Ran(0)),
                    1 => (Doing::Woken, ThreadUse::Unknown),
                    2 => (Doing::Computing, ThreadUse::Slept),
                    _ => (Doing::Declared, ThreadUse::Unknown),
                };
                let sight = Sight { turn: 1, doing, busy_for };
                let interval = Interval { wall, starved: wall, thread };
                let verdict = suspicion.look(sight, interval, LIMITS);
                prop_assert_eq!(verdict == Verdict::Alive, busy_for < LIMITS.total);
            }
        }

        /// A handler that waits for ever is found after the floor, plus at most two looks.
        #[test]
        fn a_hang_is_found_in_time(walls in prop::collection::vec(5_000..CHARGE_MAX, 60)) {
            let (mut suspicion, mut busy_for) = (Suspicion::default(), 0);
            for wall in walls {
                busy_for += wall;
                let sight = Sight { turn: 1, doing: Doing::Waiting, busy_for };
                let interval = Interval { wall, starved: wall, thread: ThreadUse::Unknown };
                if suspicion.look(sight, interval, LIMITS) == Verdict::HangsWaiting {
                    break;
                }
            }
            prop_assert!((FLOOR..FLOOR + 2 * CHARGE_MAX).contains(&busy_for), "{busy_for}");
        }
    }
}
