//! Drafters that look up earlier text.

use std::time::Instant;

use playhouse_actors::{
    logic::drafts::{
        ngram::NgramLookup,
        suffix::{SuffixConfig, SuffixTexts},
    },
    ports::ExecuteError,
};

use super::{Drafter, GuessTime, Wanted};
use crate::executor::batch::Sequence;

/// vLLM's `ngram`.
pub(super) struct NgramDrafter {
    lookup: NgramLookup,
}

impl NgramDrafter {
    pub(super) fn new(lookup: NgramLookup) -> Self {
        Self { lookup }
    }
}

impl Drafter for NgramDrafter {
    fn propose(&mut self, wanted: &mut [Wanted<'_>]) -> Result<GuessTime, ExecuteError> {
        let begun = Instant::now();
        for Wanted { sequence, most, guesses, .. } in wanted.iter_mut() {
            self.lookup.propose(&sequence.token_ids, *most, guesses);
        }
        Ok(GuessTime::of_all(wanted, begun))
    }
}

/// vLLM's `suffix`.
pub(super) struct SuffixDrafter {
    texts: SuffixTexts,
}

impl SuffixDrafter {
    pub(super) fn new(config: SuffixConfig) -> Self {
        Self { texts: SuffixTexts::new(config) }
    }
}

impl Drafter for SuffixDrafter {
    fn propose(&mut self, wanted: &mut [Wanted<'_>]) -> Result<GuessTime, ExecuteError> {
        let begun = Instant::now();
        for Wanted { sequence, most, guesses, .. } in wanted.iter_mut() {
            let request = &sequence.request;
            let text = (&sequence.token_ids[..], request.num_prompt_tokens());
            let salt = request.cache_salt.as_ref();
            self.texts.propose(request.id, text, salt, *most, guesses);
        }
        Ok(GuessTime::of_all(wanted, begun))
    }

    fn forget(&mut self, sequence: &Sequence, is_ended: bool) {
        self.texts.forget(sequence.request.id, &sequence.token_ids, is_ended);
    }
}
