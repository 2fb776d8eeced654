//! The ledger's conversations with the schedulers: one for each engine.

use crate::logic::{
    ledger::Restriction,
    recovery::message_numbers::{Inbox, Outbox},
    request::ids::{EngineIndex, Epoch},
};

/// The conversation with one engine's scheduler. A new ledger actor begins a new epoch of each
/// engine, and so a new conversation.
#[derive(Debug, Default)]
pub(super) struct Conversation {
    pub(super) orders: Outbox,
    pub(super) reports: Inbox,
    /// Incarnations of the core when the epoch began.
    pub(super) core_incarnations: u64,
    /// The limits that the scheduler knows.
    pub(super) restriction: Option<Restriction>,
}

/// The conversations with all engines.
#[derive(Debug)]
pub(super) struct Conversations(Vec<Conversation>);

impl Conversations {
    pub(super) fn new(num_engines: usize) -> Self {
        Self((0..num_engines.max(1)).map(|_| Conversation::default()).collect())
    }

    pub(super) fn engines(&self) -> impl Iterator<Item = EngineIndex> + use<> {
        (0..self.0.len()).map(EngineIndex)
    }

    pub(super) fn are_several(&self) -> bool {
        self.0.len() > 1
    }

    pub(super) fn of(&mut self, engine: EngineIndex) -> Option<&mut Conversation> {
        self.0.get_mut(engine.0)
    }

    /// Returns the engine whose current epoch this is. With one engine it is that one, which then
    /// judges the epoch itself.
    pub(super) fn engine_in(&self, epoch: Epoch) -> Option<EngineIndex> {
        let is_current = |talk: &Conversation| talk.orders.position().epoch == epoch;
        match self.0.as_slice() {
            [_] => Some(EngineIndex(0)),
            all => all.iter().position(is_current).map(EngineIndex),
        }
    }
}
