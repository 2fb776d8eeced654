//! Decides whether the model computes finite numbers at all. One request whose logits are not
//! finite fails alone. If different requests fail in this way in a row, and no request gets a token
//! between them, the model is suspect. A probe, a request of the engine itself, then decides.

use std::collections::BTreeSet;

use super::quarantine::Fingerprint;

/// The model is suspect when the logits of this many different requests in a row are not finite.
pub const NUM_SUSPICIOUS: usize = 3;

/// The state of the model, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ModelState {
    /// The model computes finite numbers, as far as is known.
    #[default]
    Sound,
    /// The model may compute no finite numbers, so a probe is due.
    Suspect,
    /// The model computes no finite numbers.
    NonFiniteLogits,
}

impl ModelState {
    /// All states.
    pub const ALL: [Self; 3] = [Self::Sound, Self::Suspect, Self::NonFiniteLogits];
}

/// Judges the model by the ends of requests.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sanity {
    failed: BTreeSet<Fingerprint>,
    is_convicted: bool,
}

impl Sanity {
    /// Records that a request ended because its logits were not finite, twice.
    pub fn failed(&mut self, request: Fingerprint) {
        if self.failed.len() < NUM_SUSPICIOUS {
            self.failed.insert(request);
        }
    }

    /// Records that a request got a token.
    pub fn succeeded(&mut self) {
        if !self.failed.is_empty() {
            self.failed.clear();
        }
        self.is_convicted = false;
    }

    /// Records that the logits of the probe were not finite either, and returns whether this
    /// convicts the model. It has no effect unless the model is suspect, because a request may have
    /// got a token meanwhile.
    pub fn probe_failed(&mut self) -> bool {
        let convicts = self.state() == ModelState::Suspect;
        self.is_convicted |= convicts;
        convicts
    }

    /// Returns the state of the model.
    #[must_use]
    pub fn state(&self) -> ModelState {
        if self.is_convicted {
            ModelState::NonFiniteLogits
        } else if self.failed.len() >= NUM_SUSPICIOUS {
            ModelState::Suspect
        } else {
            ModelState::Sound
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fingerprint(byte: u8) -> Fingerprint {
        Fingerprint([byte; 32])
    }

    fn after(failed: &[u8]) -> Sanity {
        let mut sanity = Sanity::default();
        failed.iter().for_each(|&byte| sanity.failed(fingerprint(byte)));
        sanity
    }

    #[test]
    fn different_requests_in_a_row_make_the_model_suspect() {
        assert_eq!(after(&[1, 2]).state(), ModelState::Sound);
        assert_eq!(after(&[1, 1, 1, 1, 2]).state(), ModelState::Sound, "the same is one request");
        assert_eq!(after(&[1, 2, 3]).state(), ModelState::Suspect);
        let mut sanity = after(&[1, 2]);
        sanity.succeeded();
        sanity.failed(fingerprint(3));
        assert_eq!(sanity.state(), ModelState::Sound, "one got a token between them");
    }

    #[test]
    fn the_probe_decides_and_any_token_acquits() {
        let mut sanity = after(&[1, 2, 3]);
        assert!(sanity.probe_failed());
        assert_eq!(sanity.state(), ModelState::NonFiniteLogits);
        sanity.failed(fingerprint(4));
        assert_eq!(sanity.state(), ModelState::NonFiniteLogits);
        sanity.succeeded();
        assert_eq!(sanity.state(), ModelState::Sound);
        assert!(!sanity.probe_failed());
        assert_eq!(sanity.state(), ModelState::Sound, "its news are old");
    }
}
