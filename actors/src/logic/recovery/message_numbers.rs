//! Numbered messages between two actors. A lost message is detected as a gap at the next one, or
//! when the sender reports its position. A repeated message, or one of a past epoch, is detected at
//! once. A loss always leads to a new epoch, which is begun elsewhere.

use serde::{Deserialize, Serialize};

use crate::logic::{
    planted::{Bug, planted},
    request::ids::Epoch,
};

/// The place of a message among those of its sender in an epoch.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Stamp {
    /// The epoch.
    pub epoch: Epoch,
    /// Number of messages before it in that epoch.
    pub number: u64,
}

/// The receiver's judgement of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// The message is the next one.
    InOrder,
    /// The message is of a past epoch, or was received before.
    Stale,
    /// An earlier message of its epoch is missing, or its epoch has not begun at the receiver.
    Gap,
}

/// The sender's side.
#[derive(Debug, Clone, Default)]
pub struct Outbox {
    next: Stamp,
}

impl Outbox {
    /// Begins an epoch and counts from 0.
    pub fn begin(&mut self, epoch: Epoch) {
        self.next = Stamp { epoch, number: 0 };
    }

    /// Returns the stamp of the next message and counts it.
    pub fn stamp(&mut self) -> Stamp {
        let stamp = self.next;
        self.next.number += 1;
        stamp
    }

    /// Returns the stamp that the next message will have.
    #[must_use]
    pub fn position(&self) -> Stamp {
        self.next
    }
}

/// The receiver's side.
#[derive(Debug, Clone, Default)]
pub struct Inbox {
    next: Stamp,
}

impl Inbox {
    /// Expects the first message of an epoch.
    pub fn begin(&mut self, epoch: Epoch) {
        self.next = Stamp { epoch, number: 0 };
    }

    /// Expects no further message of `epoch`, nor of earlier epochs.
    pub fn close(&mut self, epoch: Epoch) {
        self.next = Stamp { epoch, number: u64::MAX };
    }

    /// Returns whether no further message of its current epoch is expected.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.next.number == u64::MAX
    }

    /// Returns the epoch whose messages it expects.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.next.epoch
    }

    /// Receives a message and judges it.
    pub fn receive(&mut self, stamp: Stamp) -> Arrival {
        let arrival = self.check(stamp);
        // `self.next` equals `stamp`, unless a bug is planted.
        if arrival == Arrival::InOrder && stamp >= self.next {
            self.next.number = stamp.number + 1;
        }
        arrival
    }

    /// Judges a position that the sender reports.
    #[must_use]
    pub fn check(&self, position: Stamp) -> Arrival {
        let is_same_epoch = position.epoch == self.next.epoch;
        match position.cmp(&self.next) {
            std::cmp::Ordering::Less if planted(Bug::NoDedup) && is_same_epoch => Arrival::InOrder,
            std::cmp::Ordering::Less if planted(Bug::NoEpochFence) && !is_same_epoch => {
                Arrival::InOrder
            }
            std::cmp::Ordering::Greater if planted(Bug::NoGapCheck) && is_same_epoch => {
                Arrival::InOrder
            }
            std::cmp::Ordering::Less => Arrival::Stale,
            std::cmp::Ordering::Equal => Arrival::InOrder,
            std::cmp::Ordering::Greater => Arrival::Gap,
        }
    }

    /// Receives as [`Inbox::receive`] does, but the first message of a later epoch begins that
    /// epoch.
    pub fn follow(&mut self, stamp: Stamp) -> Arrival {
        if stamp.epoch > self.next.epoch && stamp.number == 0 {
            self.begin(stamp.epoch);
        }
        self.receive(stamp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(epoch: u64, number: u64) -> Stamp {
        Stamp { epoch: Epoch(epoch), number }
    }

    fn inbox(epoch: u64) -> Inbox {
        let mut inbox = Inbox::default();
        inbox.begin(Epoch(epoch));
        inbox
    }

    #[test]
    fn messages_that_are_sent_in_order_arrive_in_order() {
        let (mut outbox, mut inbox) = (Outbox::default(), inbox(3));
        outbox.begin(Epoch(3));
        for _ in 0..4 {
            assert_eq!(inbox.receive(outbox.stamp()), Arrival::InOrder);
        }
        assert_eq!(inbox.check(outbox.position()), Arrival::InOrder);
    }

    #[test]
    fn a_lost_message_shows_at_the_next() {
        let mut inbox = inbox(3);
        assert_eq!(inbox.receive(stamp(3, 1)), Arrival::Gap);
        assert_eq!(inbox.receive(stamp(3, 0)), Arrival::InOrder, "a gap changes nothing");
    }

    #[test]
    fn a_lost_last_message_shows_when_the_sender_reports_its_position() {
        let (mut outbox, inbox) = (Outbox::default(), inbox(3));
        outbox.begin(Epoch(3));
        outbox.stamp();
        assert_eq!(inbox.check(outbox.position()), Arrival::Gap);
    }

    #[test]
    fn repeated_and_old_messages_are_stale() {
        let mut inbox = inbox(3);
        assert_eq!(inbox.receive(stamp(3, 0)), Arrival::InOrder);
        assert_eq!(inbox.receive(stamp(3, 0)), Arrival::Stale);
        assert_eq!(inbox.receive(stamp(2, 7)), Arrival::Stale);
    }

    #[test]
    fn a_closed_epoch_is_past() {
        let mut inbox = inbox(3);
        inbox.close(Epoch(3));
        assert_eq!(inbox.follow(stamp(3, 0)), Arrival::Stale);
        assert_eq!(inbox.follow(stamp(4, 0)), Arrival::InOrder);
    }

    #[test]
    fn an_unannounced_epoch_is_a_gap_unless_the_receiver_follows() {
        let mut inbox = inbox(3);
        assert_eq!(inbox.receive(stamp(4, 0)), Arrival::Gap);
        assert_eq!(inbox.follow(stamp(4, 1)), Arrival::Gap, "its beginning was missed");
        assert_eq!(inbox.follow(stamp(4, 0)), Arrival::InOrder);
        assert_eq!(inbox.follow(stamp(3, 1)), Arrival::Stale);
    }
}
