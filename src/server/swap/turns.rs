//! Turns to change a server. A swap of its model and an upgrade exclude each other.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::server::http::error::ApiError;

/// A change of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum Change {
    Swap,
    Upgrade,
}

/// The change that is under way, or the one after which there is none.
#[derive(Debug, Default)]
enum Taken {
    #[default]
    Free,
    By(Change),
    /// Another process serves.
    ForEver,
}

/// The turns of one server. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Turns(Arc<Mutex<Taken>>);

/// A turn. No other change begins until it is dropped.
#[derive(Debug)]
pub(in crate::server) struct Turn {
    turns: Turns,
    is_last: bool,
}

impl Turns {
    /// # Errors
    /// 409 if a change is under way, or if another process serves.
    pub(super) fn take(&self, change: Change) -> Result<Turn, ApiError> {
        let mut taken = self.0.lock();
        let message = match (&*taken, change) {
            (Taken::Free, _) => {
                *taken = Taken::By(change);
                return Ok(Turn { turns: self.clone(), is_last: false });
            }
            (Taken::By(Change::Swap), Change::Swap) => "another swap is under way",
            (Taken::By(Change::Swap), Change::Upgrade) => "a swap of the model is under way",
            (Taken::By(Change::Upgrade), Change::Swap) => "an upgrade is under way",
            (Taken::By(Change::Upgrade), Change::Upgrade) => "another upgrade is under way",
            (Taken::ForEver, _) => "another process serves, and this one ends its requests",
        };
        Err(ApiError::conflict(message))
    }
}

impl Turn {
    /// Lets no other change begin after this one.
    pub(in crate::server) fn keep(mut self) {
        self.is_last = true;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *self.turns.0.lock() = match self.is_last {
            true => Taken::ForEver,
            false => Taken::Free,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_change_is_under_way_at_a_time() {
        let turns = Turns::default();
        let refused = |change| {
            let error = turns.take(change).map(drop).unwrap_err();
            (error.status.as_u16(), error.message)
        };
        let conflict = |message: &str| (409, message.to_owned());
        let swap = turns.take(Change::Swap).unwrap();
        assert_eq!(refused(Change::Swap), conflict("another swap is under way"));
        assert_eq!(refused(Change::Upgrade), conflict("a swap of the model is under way"));
        drop(swap);
        let upgrade = turns.take(Change::Upgrade).unwrap();
        assert_eq!(refused(Change::Swap), conflict("an upgrade is under way"));
        assert_eq!(refused(Change::Upgrade), conflict("another upgrade is under way"));
        drop(upgrade);
        turns.take(Change::Upgrade).unwrap().keep();
        for change in [Change::Swap, Change::Upgrade] {
            assert!(refused(change).1.starts_with("another process serves"));
        }
    }
}
