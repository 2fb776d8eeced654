//! The current address of one actor. All messages to the actor pass here.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::RwLock;
use ractor::{ActorCell, RpcReplyPort};
use serde::{Deserialize, Serialize};

use super::{
    address::{Address, Carrier, NoAnswer},
    pulse::Pulse,
    term::Term,
    watched::Long,
};
use crate::{
    error::ActorError,
    fault::{CallFate, Chaos},
    logic::request::ids::Micros,
    message::{Letter, Role},
};

/// One incarnation of an actor.
#[derive(Debug)]
struct Seat<M> {
    address: Address<M>,
    pulse: Arc<Pulse>,
}

impl<M> Clone for Seat<M> {
    fn clone(&self) -> Self {
        Self { address: self.address.clone(), pulse: Arc::clone(&self.pulse) }
    }
}

/// The current address of one actor. It outlives every incarnation.
pub struct Slot<M> {
    role: Role,
    index: usize,
    chaos: Arc<Chaos>,
    seat: RwLock<Option<Seat<M>>>,
    /// The last report about an actor of the other process.
    reported: RwLock<Option<ActorStats>>,
    incarnations: AtomicU64,
}

/// The state of an actor, for an operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActorStats {
    /// The actor's role.
    pub role: Role,
    /// The actor's index among those of its role.
    pub index: usize,
    /// Whether it takes messages.
    pub is_alive: bool,
    /// The number of times that it was replaced.
    pub restarts: u64,
    /// Number of messages sent to it whose handlers have not begun.
    pub mailbox_depth: u64,
    /// Microseconds since a handler last began. The watchdog's pings count.
    pub heartbeat_age: Micros,
    /// Microseconds that the current message has taken. `None`: the actor is idle.
    pub busy_for: Option<Micros>,
}

impl<M: Letter> Slot<M> {
    /// Returns a slot without an actor.
    pub fn new(role: Role, index: usize, chaos: Arc<Chaos>) -> Self {
        let (seat, reported) = (RwLock::new(None), RwLock::new(None));
        Self { role, index, chaos, seat, reported, incarnations: AtomicU64::new(0) }
    }

    /// Registers a new incarnation.
    pub fn set(&self, address: Address<M>, pulse: Arc<Pulse>) {
        *self.seat.write() = Some(Seat { address, pulse });
        self.incarnations.fetch_add(1, Ordering::Relaxed);
    }

    /// Registers a new incarnation that a supervisor has started, unless the supervisor's term is
    /// over. Returns whether it did.
    pub(crate) fn set_in(&self, term: &Term, address: Address<M>, pulse: Arc<Pulse>) -> bool {
        let mut seat = self.seat.write();
        // Under the lock: a successor registers its actor after its term has begun. So either its
        // term is seen here, or its actor takes the slot later.
        if term.is_over() {
            return false;
        }
        *seat = Some(Seat { address, pulse });
        self.incarnations.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Registers an actor of a new process, which reported these figures.
    pub(crate) fn set_elsewhere(&self, carrier: Arc<dyn Carrier<M>>, reported: ActorStats) {
        *self.reported.write() = Some(reported);
        self.set(Address::Link(carrier), Arc::default());
    }

    /// Takes over a report of the other process about its actor.
    pub(crate) fn report(&self, stats: &ActorStats) {
        let mut reported = self.reported.write();
        let before = reported.as_ref().map_or(0, |before| before.restarts);
        let more = stats.restarts.saturating_sub(before);
        self.incarnations.fetch_add(more, Ordering::Relaxed);
        *reported = Some(stats.clone());
    }

    /// Returns the current address.
    #[must_use]
    pub fn get(&self) -> Option<Address<M>> {
        self.seat.read().as_ref().map(|seat| seat.address.clone())
    }

    /// Returns whether the current incarnation takes messages.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        let is_reported_alive = self.reported.read().as_ref().is_none_or(|stats| stats.is_alive);
        let seat = self.seat.read();
        is_reported_alive && seat.as_ref().is_some_and(|seat| seat.address.is_alive())
    }

    /// Returns the number of incarnations so far.
    #[must_use]
    pub fn incarnations(&self) -> u64 {
        self.incarnations.load(Ordering::Relaxed)
    }

    /// Returns how often the actor was replaced.
    #[must_use]
    pub fn restarts(&self) -> u64 {
        self.incarnations().saturating_sub(1)
    }

    /// Sends a message without waiting. A loss because of a dead receiver is noticed later: by a
    /// gap in the messages, or when the successor joins.
    pub fn cast(&self, message: M) {
        let Some(seat) = self.seat.read().clone() else { return };
        let delivery = self.chaos.on_send(message.edge());
        let copy = if delivery.copies == 2 { message.duplicate() } else { None };
        let first = (delivery.copies > 0).then_some(message);
        for message in first.into_iter().chain(copy) {
            match delivery.delay {
                None => self.deliver(&seat, message),
                Some(delay) => {
                    let seat = seat.clone();
                    self.chaos.later(delay, move || drop(seat.address.send(message)));
                }
            }
        }
    }

    /// Delivers a message that came over the link. Its sender's process has made it meet its
    /// faults already.
    pub(crate) fn receive(&self, message: M) {
        let Some(seat) = self.seat.read().clone() else { return };
        self.deliver(&seat, message);
    }

    fn deliver(&self, seat: &Seat<M>, message: M) {
        seat.pulse.sent(&message);
        if seat.address.send(message).is_err() {
            tracing::debug!(role = self.role.as_str(), "message to a dead actor dropped");
        }
    }

    /// Sends a question and waits for at most `limit`.
    ///
    /// # Errors
    /// [`ActorError::Gone`] when the receiver is dead or dies before it answers,
    /// [`ActorError::CallTimeout`] when it takes too long.
    pub async fn call<T: Send + 'static>(
        &self,
        call: &'static str,
        limit: Duration,
        message: impl FnOnce(RpcReplyPort<T>) -> M,
    ) -> Result<T, ActorError> {
        // The watchdog watches the callee as well, so this wait is declared.
        let _long = Long::begin();
        let callee = self.role.as_str();
        let seat = self.seat.read().clone().ok_or(ActorError::Gone { callee })?;
        let message = |reply| {
            let message = message(reply);
            seat.pulse.sent(&message);
            message
        };
        let timeout = ActorError::CallTimeout { callee, call, limit };
        match self.chaos.on_call(self.role) {
            CallFate::Plain => {}
            CallFate::LoseRequest => {
                tokio::time::sleep(limit).await;
                return Err(timeout);
            }
            CallFate::LoseAnswer => {
                let answered = seat.address.ask(message, limit).await;
                drop(answered);
                tokio::time::sleep(limit).await;
                return Err(timeout);
            }
            CallFate::Delay(delay) => tokio::time::sleep(delay).await,
        }
        seat.address.ask(message, limit).await.map_err(|error| match error {
            NoAnswer::Late => timeout,
            NoAnswer::Gone => ActorError::Gone { callee },
        })
    }

    /// Returns the state of the actor.
    #[must_use]
    pub fn stats(&self, now: Micros) -> ActorStats {
        let (is_alive, restarts) = (self.is_alive(), self.restarts());
        if let Some(reported) = self.reported.read().clone() {
            // Its process has one engine, and so another index.
            return ActorStats { index: self.index, is_alive, restarts, ..reported };
        }
        let seat = self.seat.read();
        let pulse = seat.as_ref().map(|seat| &seat.pulse);
        ActorStats {
            role: self.role,
            index: self.index,
            is_alive,
            restarts,
            mailbox_depth: pulse.map_or(0, |pulse| pulse.depth()),
            heartbeat_age: pulse.map_or(0, |pulse| pulse.age(now)),
            busy_for: pulse.and_then(|pulse| pulse.busy_for(now)),
        }
    }
}

/// A slot of any message type, for code that treats all actors alike.
pub trait AnySlot: Send + Sync {
    /// Returns the role of its actor.
    fn role(&self) -> Role;
    /// Returns the index among the actors of its role.
    fn index(&self) -> usize;
    /// Returns the current actor and its pulse, if it is an actor of this process.
    fn occupant(&self) -> Option<(ActorCell, Arc<Pulse>)>;
    /// Sends a ping, whose handling is a sign of life.
    fn ping(&self);
    /// See [`Slot::stats`].
    fn actor_stats(&self, now: Micros) -> ActorStats;
}

impl<M: Letter> AnySlot for Slot<M> {
    fn role(&self) -> Role {
        self.role
    }

    fn index(&self) -> usize {
        self.index
    }

    fn occupant(&self) -> Option<(ActorCell, Arc<Pulse>)> {
        let seat = self.seat.read();
        let seat = seat.as_ref()?;
        Some((seat.address.cell()?, Arc::clone(&seat.pulse)))
    }

    fn ping(&self) {
        self.cast(M::ping());
    }

    fn actor_stats(&self, now: Micros) -> ActorStats {
        self.stats(now)
    }
}

impl<M> fmt::Debug for Slot<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("role", &self.role).finish_non_exhaustive()
    }
}
