//! The edges between actors: each names a sender and a receiver. Chaos injects faults by edge, and
//! losses are reported by edge.

use super::role::Role;

/// One direction of messages between two roles. There are as many edges as the table of this file
/// has lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Edge {
    from: Role,
    to: Role,
}

/// All edges, each with its name in the chaos interface.
const TABLE: [(Role, Role, &str); 25] = [
    // Jobs for the input processors.
    (Role::Door, Role::InputProcessor, "door->input"),
    // Requests to accept or to abort.
    (Role::Door, Role::Ledger, "door->ledger"),
    // Orders and questions of an operator.
    (Role::Door, Role::Scheduler, "door->scheduler"),
    // Requests to schedule or to abort, and new epochs.
    (Role::Ledger, Role::Scheduler, "ledger->scheduler"),
    // Reports of the steps: tokens and ends that are final for the scheduler.
    (Role::Scheduler, Role::Ledger, "scheduler->ledger"),
    // Allocation plans.
    (Role::Scheduler, Role::KvCacheManager, "scheduler->kv_cache"),
    // Steps.
    (Role::Scheduler, Role::Worker, "scheduler->worker"),
    // Results of steps.
    (Role::Worker, Role::Scheduler, "worker->scheduler"),
    // Steps that failed.
    (Role::Worker, Role::Ledger, "worker->ledger"),
    // Results from the device thread.
    (Role::Device, Role::Worker, "device->worker"),
    // Committed tokens.
    (Role::Ledger, Role::Detokenizer, "ledger->detokenizer"),
    // Text.
    (Role::Detokenizer, Role::OutputStreamer, "detokenizer->streamer"),
    // Stop strings that were found, and a new detokenizer's request for everything from the start.
    (Role::Detokenizer, Role::Ledger, "detokenizer->ledger"),
    // Deliveries, and a new streamer's request for everything from the start.
    (Role::OutputStreamer, Role::Ledger, "streamer->ledger"),
    // News that an actor of the core was replaced.
    (Role::Core, Role::Ledger, "supervisor->ledger"),
    // See `Edge::TIMER`.
    (Role::Timer, Role::Timer, "timer"),
    // Grammars to compile.
    (Role::Scheduler, Role::StructuredOutput, "scheduler->structured_output"),
    // Results of compiling grammars.
    (Role::StructuredOutput, Role::Scheduler, "structured_output->scheduler"),
    // News that a thread has finished a grammar.
    (Role::Compiler, Role::StructuredOutput, "compiler->structured_output"),
    // Images and sounds that requests need.
    (Role::Scheduler, Role::EncoderCacheManager, "scheduler->encoder_cache"),
    // Images and sounds that are ready.
    (Role::EncoderCacheManager, Role::Scheduler, "encoder_cache->scheduler"),
    // Images and sounds to encode.
    (Role::EncoderCacheManager, Role::EncoderWorker, "encoder_cache->encoder_worker"),
    // Images and sounds that were encoded.
    (Role::EncoderWorker, Role::EncoderCacheManager, "encoder_worker->encoder_cache"),
    // Results from the encoder's device thread.
    (Role::Device, Role::EncoderWorker, "device->encoder_worker"),
    // Orders of an operator.
    (Role::Door, Role::EncoderCacheManager, "door->encoder_cache"),
];

const NUM_ROLES: usize = Role::Timer as usize + 1;

/// The number of each edge by its sender and its receiver.
const NUMBERS: [[Option<u8>; NUM_ROLES]; NUM_ROLES] = {
    let mut numbers = [[None; NUM_ROLES]; NUM_ROLES];
    let mut number = 0;
    while number < TABLE.len() {
        let (from, to, _) = TABLE[number];
        assert!(numbers[from as usize][to as usize].is_none(), "an edge is in the table twice");
        numbers[from as usize][to as usize] = Some(number as u8);
        number += 1;
    }
    numbers
};

impl Edge {
    /// All edges.
    pub const ALL: [Self; TABLE.len()] = {
        let mut all = [Self::TIMER; TABLE.len()];
        let mut number = 0;
        while number < TABLE.len() {
            all[number] = Self { from: TABLE[number].0, to: TABLE[number].1 };
            number += 1;
        }
        all
    };

    /// An actor's own timer, the watchdog's pings, and queries of observers outside the engine.
    /// These messages are not part of the work on requests, so all receivers have one edge for
    /// them.
    pub const TIMER: Self = Self { from: Role::Timer, to: Role::Timer };

    /// Returns the edge between two roles, if the table has it.
    #[must_use]
    pub const fn between(from: Role, to: Role) -> Option<Self> {
        match NUMBERS[from as usize][to as usize] {
            Some(_) => Some(Self { from, to }),
            None => None,
        }
    }

    /// Returns the sender.
    #[must_use]
    pub const fn from(self) -> Role {
        self.from
    }

    /// Returns the receiver.
    #[must_use]
    pub const fn to(self) -> Role {
        self.to
    }

    /// Returns the edge's place in [`Edge::ALL`].
    #[must_use]
    pub const fn number(self) -> usize {
        match NUMBERS[self.from as usize][self.to as usize] {
            Some(number) => number as usize,
            // Only edges of the table can be made.
            None => TABLE.len(),
        }
    }

    /// Returns the name in the chaos interface: `sender->receiver`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        TABLE[self.number()].2
    }
}

/// The edge between two roles, checked while the program is compiled.
macro_rules! edge {
    ($from:ident -> $to:ident) => {
        const {
            let (from, to) = ($crate::message::Role::$from, $crate::message::Role::$to);
            match $crate::message::Edge::between(from, to) {
                Some(edge) => edge,
                None => panic!("the table of edges lacks it"),
            }
        }
    };
}
pub(crate) use edge;

impl std::str::FromStr for Edge {
    type Err = UnknownEdge;

    fn from_str(name: &str) -> Result<Self, UnknownEdge> {
        let named = Self::ALL.into_iter().find(|edge| edge.as_str() == name);
        named.ok_or_else(|| UnknownEdge(name.to_owned()))
    }
}

/// The error for a name that no edge has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no edge {0:?}; an edge is named like \"scheduler->worker\"")]
pub struct UnknownEdge(pub String);

/// The facts that every message of an actor knows about itself.
pub trait Letter: ractor::Message {
    /// Returns the message's sender and receiver.
    fn edge(&self) -> Edge;

    /// Returns the watchdog's question whether the actor still takes messages.
    fn ping() -> Self;

    /// Returns whether the message is that question.
    fn is_ping(&self) -> bool;

    /// Returns a second copy, so that chaos can deliver the message twice. Returns `None` for a
    /// message that carries a reply port, because a reply is sent only once. The default copies
    /// pings only; it serves receivers whose every order needs a reply.
    fn duplicate(&self) -> Option<Self> {
        self.is_ping().then(Self::ping)
    }
}

/// Implements the watchdog's question for a [`Letter`] that has a variant `Ping`.
macro_rules! pings {
    () => {
        fn ping() -> Self {
            Self::Ping
        }

        fn is_ping(&self) -> bool {
            matches!(self, Self::Ping)
        }
    };
}
pub(super) use pings;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edge_is_named_by_its_roles() {
        for edge in Edge::ALL {
            assert_eq!(edge.as_str().parse(), Ok(edge));
            assert_eq!(Edge::between(edge.from(), edge.to()), Some(edge));
            let name = format!("{}->{}", edge.from().as_str(), edge.to().as_str());
            let expected = match edge.as_str() {
                "timer" => "timer->timer",
                // The name is older than the role's.
                "supervisor->ledger" => "core->ledger",
                other => other,
            };
            assert_eq!(name, expected);
        }
    }

    #[test]
    fn an_edge_is_found_by_its_number() {
        for (number, edge) in Edge::ALL.into_iter().enumerate() {
            assert_eq!(edge.number(), number, "{edge:?}");
        }
    }

    #[test]
    fn roles_without_messages_have_no_edge() {
        assert_eq!(Edge::between(Role::Worker, Role::Detokenizer), None);
        assert_eq!(Edge::between(Role::Worker, Role::Device), None);
    }
}
