//! Whether a client could read something, and since when.

use crate::logic::request::ids::Micros;

/// The unread output of one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Unread {
    #[default]
    Nothing,
    /// The client has just come. The time counts from the next look.
    Fresh,
    Since(Micros),
}

impl Unread {
    /// Notes that output was added at `now`.
    pub(super) fn add(&mut self, now: Micros) {
        if *self == Self::Nothing {
            *self = Self::Since(now);
        }
    }

    /// Forgets the output, which is read. Returns whether there was any.
    pub(super) fn take(&mut self) -> bool {
        std::mem::take(self) != Self::Nothing
    }

    /// Counts the time of unread output from the next look on.
    pub(super) fn renew(&mut self) {
        if *self != Self::Nothing {
            *self = Self::Fresh;
        }
    }

    /// Returns whether output is unread for `patience`.
    pub(super) fn has_waited(&mut self, now: Micros, patience: Micros) -> bool {
        if *self == Self::Fresh {
            *self = Self::Since(now);
        }
        matches!(*self, Self::Since(since) if now.saturating_sub(since) >= patience)
    }
}
