//! The journals of other processes, which an engine takes over when these end.

use std::{io, sync::Arc};

use playhouse_actors::{
    logic::journal::Answer,
    system::{Journal, JournalError, Left, Takeover},
};

use super::Engine;

/// Journals whose processes have ended, with the answers that this engine continues.
pub(crate) struct LeftAnswers {
    pub(crate) answers: Vec<Answer>,
    journal: Arc<Journal>,
    takeover: Takeover,
}

/// The reason why journals are not taken over now. A later attempt may succeed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TakeoverError {
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error("its {num_bytes} bytes of answers do not fit beside those of this process")]
    NoRoom { num_bytes: usize },
    #[error("the journal of this process is closed")]
    Closed,
}

impl From<io::Error> for TakeoverError {
    fn from(error: io::Error) -> Self {
        Self::Journal(error.into())
    }
}

impl Engine {
    /// Returns whether another process writes a journal beside this engine's.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn shares_journals(&self) -> io::Result<bool> {
        self.inner.journals.as_ref().map_or(Ok(false), |folder| folder.is_shared())
    }

    /// Takes over the journals whose processes have ended since the last call. Returns their
    /// answers, of which the engine has no requests yet. Blocks while the disk does.
    ///
    /// # Errors
    /// [`TakeoverError`]. The journals stay as they are.
    pub(crate) fn take_over_journals(&self) -> Result<Option<LeftAnswers>, TakeoverError> {
        let (Some(folder), Some(journal)) = (&self.inner.journals, self.journal()) else {
            return Ok(None);
        };
        folder.take_lock()?;
        let (numbers, left) = folder.newly_left()?;
        if left.is_empty() {
            return Ok(None);
        }
        let taken = self.take_over(journal, left);
        if taken.is_err() {
            folder.forget(&numbers);
        }
        taken.map(Some)
    }

    fn take_over(
        &self,
        journal: &Arc<Journal>,
        left: Vec<Left>,
    ) -> Result<LeftAnswers, TakeoverError> {
        let mut takeover = journal.read_left(left)?;
        if !journal.has_room_for(&takeover) {
            return Err(TakeoverError::NoRoom { num_bytes: takeover.num_bytes() });
        }
        let reserve = |count| self.inner.system.reserve_requests(count);
        let answers = journal.take_over(&mut takeover, reserve).ok_or(TakeoverError::Closed)?;
        Ok(LeftAnswers { answers, journal: Arc::clone(journal), takeover })
    }
}

impl LeftAnswers {
    /// Removes the journals once their answers are durable in this process's own.
    pub(crate) async fn settle(self) {
        let Self { journal, takeover, .. } = self;
        if journal.written().await {
            // A task that panics leaves the journals to the next process.
            let _ = tokio::task::spawn_blocking(move || takeover.settle()).await;
        }
    }
}
