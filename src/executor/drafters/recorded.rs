//! The guesses of a replay: the tokens that the recording shows. How many tokens a drafter guesses
//! depends on measured times, so a replay cannot ask the drafter. With these guesses, each step
//! yields as many tokens as it did, if the model draws the recorded ones.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use playhouse_actors::{
    logic::request::ids::{RequestId, TokenId},
    ports::ExecuteError,
};

use super::{Drafter, GuessTime, Wanted};

/// The guesses of the next step, which the replay sets.
#[derive(Debug, Clone, Default)]
pub(crate) struct RecordedGuesses(Arc<Mutex<BTreeMap<RequestId, Vec<TokenId>>>>);

impl RecordedGuesses {
    /// Replaces the guesses by those of the next step.
    pub(crate) fn set(&self, guesses: BTreeMap<RequestId, Vec<TokenId>>) {
        *self.0.lock() = guesses;
    }
}

impl Drafter for RecordedGuesses {
    fn propose(&mut self, wanted: &mut [Wanted<'_>]) -> Result<GuessTime, ExecuteError> {
        let guesses = self.0.lock();
        for wanted in wanted {
            let recorded = guesses.get(&wanted.sequence.request.id);
            wanted.guesses = recorded.into_iter().flatten().take(wanted.most).copied().collect();
        }
        // The places are recorded, too.
        Ok(GuessTime::default())
    }
}
