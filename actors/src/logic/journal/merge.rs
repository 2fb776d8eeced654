//! Journals that one process takes over from others.

use super::{Live, acceptance::moved};

impl Live {
    /// Takes the answers of `other` into this content. Its requests get ids that none of this
    /// content has. An answer that is here stays as it is. It may be in both, because a process may
    /// have died before it removed the journal that it had taken over.
    pub fn absorb(&mut self, other: Self) {
        let first = self.next_request;
        let other = other.moved(first.0);
        self.next_request = first.max(other.next_request);
        for (name, held) in other.answers {
            if !self.answers.contains_key(&name) {
                self.put(&name, held);
            }
        }
    }

    /// Returns this content with `by` added to all ids of requests.
    #[must_use]
    pub fn moved(self, by: u64) -> Self {
        let mut content = Self {
            fingerprint: self.fingerprint,
            next_request: moved(self.next_request, by),
            ..Self::default()
        };
        for (name, mut held) in self.answers {
            held.acceptances.iter_mut().for_each(|acceptance| acceptance.move_ids(by));
            let ends = std::mem::take(&mut held.ends);
            held.ends = ends.into_iter().map(|(id, end)| (moved(id, by), end)).collect();
            content.put(&name, held);
        }
        content
    }

    /// Takes the answers out that the server has whole. They need no tokens, so a process with any
    /// model can give them.
    #[must_use]
    pub fn take_made(&mut self) -> Self {
        let content = std::mem::take(self);
        let (fingerprint, next_request) = (content.fingerprint, content.next_request);
        let mut made = Self { fingerprint, next_request, ..Self::default() };
        let (fingerprint, next_request) = (made.fingerprint.clone(), made.next_request);
        *self = Self { fingerprint, next_request, ..Self::default() };
        for (name, held) in content.answers {
            let side = if held.is_made { &mut made } else { &mut *self };
            side.put(&name, held);
        }
        made
    }
}
