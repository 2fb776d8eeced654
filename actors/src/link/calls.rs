//! Questions on their way to the engine process.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering},
};

use parking_lot::Mutex;

use super::{
    frames::{Answer, Question, ToEngine},
    outgoing::{NotSent, Outgoing},
};

/// Takes the answer to a question.
type Take = Box<dyn FnOnce(Answer) + Send>;

/// The questions of one link that have no answer yet. When the link breaks, they are dropped with
/// their reply ports, so their callers learn that no answer comes.
#[derive(Default)]
pub struct Calls {
    next: AtomicU64,
    waiting: Mutex<Option<BTreeMap<u64, Take>>>,
}

impl std::fmt::Debug for Calls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Calls").finish_non_exhaustive()
    }
}

impl Calls {
    /// Returns an empty set of questions.
    #[must_use]
    pub fn new() -> Self {
        Self { next: AtomicU64::new(0), waiting: Mutex::new(Some(BTreeMap::new())) }
    }

    /// Sends a question. `take` gets the answer, or is dropped if none comes.
    ///
    /// # Errors
    /// [`NotSent`] if the question is lost.
    pub fn ask(
        &self,
        link: &Outgoing<ToEngine>,
        question: Question,
        take: impl FnOnce(Answer) + Send + 'static,
    ) -> Result<(), NotSent> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut waiting = self.waiting.lock();
        let Some(waiting) = waiting.as_mut() else { return Err(NotSent::Down) };
        link.send(&ToEngine::Ask(number, question))?;
        waiting.insert(number, Box::new(take));
        Ok(())
    }

    /// Gives an answer to its caller. An answer without a question is ignored.
    pub fn answer(&self, number: u64, answer: Answer) {
        let take = self.waiting.lock().as_mut().and_then(|waiting| waiting.remove(&number));
        if let Some(take) = take {
            take(answer);
        }
    }

    /// Drops all questions, because the link is down.
    pub fn close(&self) {
        drop(self.waiting.lock().take());
    }
}
