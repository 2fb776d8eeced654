//! The watchdog looks at every actor's pulse. It has a thread of its own, outside the runtime whose
//! tasks it watches. An actor whose message does not end is killed. If a kill does not reach it,
//! because its handler blocks a thread, it is abandoned and replaced.
//! [`crate::logic::recovery::hang`] decides which actor hangs.
//!
//! Abandoned handlers hold threads of the runtime, so there are at most as many as it has threads.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    time::Duration,
};

use ractor::{ActorCell, ActorId, ActorStatus};

use super::{pulse::Pulse, slot::AnySlot, supervisor::STOP_TIMEOUT, threads::Threads};
use crate::{
    logic::{
        recovery::hang::{
            Doing, FLOOR, HandlerTimes, Interval, Limits, Suspicion, ThreadUse, Verdict,
        },
        request::ids::Micros,
    },
    message::{Edge, Role, SupervisorMessage},
    system::{config::DeviceMode, context::Context},
};

/// Time between two looks.
const PERIOD: Duration = Duration::from_millis(20);
/// Time between two pings, which ask every actor for a sign of life.
const PING_PERIOD: Micros = 250_000;
/// Time that a killed actor has to end, if it holds no thread.
const KILL_GRACE: Micros = 1_000_000;
/// How often a supervisor may wait for a whole [`STOP_TIMEOUT`] in one message: once for each of at
/// most seven children, and once more, as for the start of a worker.
const NUM_STOPS: u32 = 8;

/// The key of known handler times.
type Kind = (Role, Option<Edge>);

/// The suspicion against one incarnation.
#[derive(Debug)]
struct Case {
    kind: Kind,
    suspicion: Suspicion,
    /// Whether the charge is for messages that wait, so no handler took the time.
    is_unread: bool,
    killed: Option<Micros>,
}

#[derive(Debug, Default)]
struct Watchdog {
    cases: BTreeMap<ActorId, Case>,
    times: HandlerTimes<Kind>,
    /// The threads at the look before, if it had to read them.
    threads: Option<Threads>,
    /// The time of the look before.
    looked: Micros,
    pinged: Micros,
}

/// Starts the watchdog. It ends with the system.
///
/// # Errors
/// When the system provides no thread.
pub(crate) fn spawn(context: &Arc<Context>) -> std::io::Result<()> {
    let watched = Arc::downgrade(context);
    match context.config.device {
        DeviceMode::Thread => {
            let watch = move || {
                let mut watchdog = Watchdog::default();
                while watchdog.look(&watched) {
                    #[allow(clippy::disallowed_methods, reason = "the thread is its own")]
                    std::thread::sleep(PERIOD);
                }
            };
            std::thread::Builder::new().name("playhouse-watchdog".to_owned()).spawn(watch)?;
        }
        DeviceMode::Task { .. } => drop(tokio::spawn(async move {
            let mut watchdog = Watchdog::default();
            while watchdog.look(&watched) {
                tokio::time::sleep(PERIOD).await;
            }
        })),
    }
    Ok(())
}

impl Watchdog {
    /// Looks once. Returns whether there is still something to watch.
    fn look(&mut self, context: &Weak<Context>) -> bool {
        let Some(context) = context.upgrade() else { return false };
        if context.is_stopped() {
            return false;
        }
        let now = context.now();
        let seats: Vec<_> = context.directory.slots().filter_map(Seat::of).collect();
        self.cases.retain(|actor, _| seats.iter().any(|seat| seat.actor.get_id() == *actor));
        let passed = self.passed(&context, &seats, now);
        for seat in &seats {
            self.check(&context, seat, &passed, now);
        }
        self.threads = passed.threads;
        if now.saturating_sub(self.pinged) >= PING_PERIOD {
            self.pinged = now;
            context.directory.slots().for_each(AnySlot::ping);
        }
        true
    }

    /// Returns the time and thread use since the look before. Reading the threads is the dearest
    /// part of a look, so it is done only in two cases: a step is long, or an actor was in one
    /// handler for two looks.
    fn passed(&mut self, context: &Context, seats: &[Seat<'_>], now: Micros) -> Passed {
        let wall = now.saturating_sub(std::mem::replace(&mut self.looked, now));
        let is_suspect = |seat: &Seat<'_>| {
            let sight = seat.pulse.sight(now);
            let case = self.cases.get(&seat.actor.get_id());
            sight.zip(case).is_some_and(|(sight, case)| case.suspicion.needs_evidence(sight))
        };
        let is_step_long = context.observers.progress.is_long(now);
        let is_real = context.config.device == DeviceMode::Thread;
        let must_know = is_real && (is_step_long || seats.iter().any(is_suspect));
        let mut threads = must_know.then(Threads::look);
        let before = self.threads.take();
        let late = wall.saturating_sub(PERIOD.as_micros() as u64);
        let lacked = match (&mut threads, &before) {
            (Some(now), Some(before)) => now.starved_since(before, wall),
            // The first look knows nothing of the time before it, so that time is excused.
            (Some(now), None) if !now.is_empty() => wall,
            _ => 0,
        };
        let starved = late.max(lacked);
        context.observers.progress.looked(now, if is_step_long { starved } else { 0 });
        Passed { wall, starved, threads, before }
    }

    fn check(&mut self, context: &Context, seat: &Seat<'_>, passed: &Passed, now: Micros) {
        let (role, id, pulse) = (seat.slot.role(), seat.actor.get_id(), &seat.pulse);
        let sight = pulse.sight(now);
        // A poll has ended: its charged time becomes a known time of its kind.
        if let Some(case) = self.cases.get(&id)
            && !case.is_unread
            && sight.is_none_or(|sight| sight.turn != case.suspicion.turn())
        {
            self.times.learn(case.kind, case.suspicion.charged(), now);
        }
        let Some(sight) = sight else {
            self.cases.remove(&id);
            return;
        };
        let kind = (role, pulse.edge());
        let limits = limits(context, role, self.times.limit(&kind, pulse.expected(), now));
        let case = self.cases.entry(id).or_insert_with(|| Case::new(kind));
        (case.kind, case.is_unread) = (kind, sight.doing == Doing::Unread);
        let verdict = case.suspicion.look(sight, passed.interval(pulse.thread()), limits);
        let grace = match verdict {
            Verdict::Alive => return,
            Verdict::HangsWaiting => KILL_GRACE,
            Verdict::HangsComputing => FLOOR,
        };
        match case.killed {
            None => {
                case.killed = Some(now);
                if verdict == Verdict::HangsComputing {
                    // If it was work after all, its successor gets ten times as long.
                    self.times.learn(kind, case.suspicion.charged(), now);
                }
                let (role, busy_ms) = (role.as_str(), sight.busy_for / 1_000);
                tracing::warn!(role, busy_ms, ?verdict, "an actor hangs and is killed");
                context.observers.actor_hangs(seat.slot.role(), pulse.is_struck());
                seat.actor.kill();
            }
            Some(at) if now.saturating_sub(at) >= grace => {
                case.killed = Some(now);
                tracing::error!(role = role.as_str(), "an actor does not end and is abandoned");
                let (role, index) = (seat.slot.role(), seat.slot.index());
                if let Some(supervisor) = context.directory.supervisor_of(role, index) {
                    supervisor.cast(SupervisorMessage::Abandon(id));
                }
            }
            Some(_) => {}
        }
    }
}

/// One living actor.
struct Seat<'a> {
    slot: &'a dyn AnySlot,
    actor: ActorCell,
    pulse: Arc<Pulse>,
}

impl<'a> Seat<'a> {
    fn of(slot: &'a dyn AnySlot) -> Option<Self> {
        let (actor, pulse) = slot.occupant()?;
        (actor.get_status() != ActorStatus::Stopped).then_some(Self { slot, actor, pulse })
    }
}

impl Case {
    fn new(kind: Kind) -> Self {
        Self { kind, suspicion: Suspicion::default(), is_unread: false, killed: None }
    }
}

/// The time and thread use since the look before.
struct Passed {
    wall: Micros,
    starved: Micros,
    threads: Option<Threads>,
    before: Option<Threads>,
}

impl Passed {
    fn interval(&self, thread: u64) -> Interval {
        let known = self.threads.as_ref().zip(self.before.as_ref());
        let thread =
            known.map_or(ThreadUse::Unknown, |(now, before)| now.use_since(before, thread));
        Interval { wall: self.wall, starved: self.starved, thread }
    }
}

fn limits(context: &Context, role: Role, charged: Micros) -> Limits {
    let hang_timeout = context.config.hang_timeout;
    let (total, has_floor) = match role {
        // The end of the root is the end of the engine.
        Role::Root => (supervisor_timeout(hang_timeout), false),
        Role::Core | Role::Egress | Role::Ingress => (supervisor_timeout(hang_timeout), true),
        Role::InputProcessor => (context.config.input_timeout, true),
        _ => (hang_timeout, true),
    };
    let total = total.as_micros() as u64;
    Limits { charged: if has_floor { charged.min(total) } else { total }, total }
}

/// Returns how long a supervisor may take for a message. When it gives up, it waits for its
/// children to stop, one after the other.
fn supervisor_timeout(hang_timeout: Duration) -> Duration {
    (3 * hang_timeout).max(NUM_STOPS * STOP_TIMEOUT + hang_timeout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_supervisor_has_time_to_stop_all_its_children() {
        for hang_timeout in [0, 1, 5, 60].map(Duration::from_secs) {
            let timeout = supervisor_timeout(hang_timeout);
            assert!(timeout >= 7 * STOP_TIMEOUT + hang_timeout, "{timeout:?}");
            assert!(timeout >= 3 * hang_timeout, "{timeout:?}");
        }
    }
}
