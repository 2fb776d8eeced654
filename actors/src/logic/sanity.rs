//! Whether the model computes numbers at all. One request whose logits are not finite fails alone;
//! when different ones fail so in a row, and none gets a token between them, the model is suspected,
//! and a request of our own decides.

use std::collections::BTreeSet;

use super::quarantine::Fingerprint;

/// Different requests in a row whose logits are not finite that make the model suspect.
pub const NUM_SUSPICIOUS: usize = 3;

/// What is known of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelState {
    /// It computes numbers, as far as is known.
    Sound,
    /// It may compute none: a probe is due.
    Suspect,
    /// It computes none.
    NonFiniteLogits,
}

/// Judges the model by how requests end.
#[derive(Debug, Clone, Default)]
pub struct Sanity {
    failed: BTreeSet<Fingerprint>,
    is_convicted: bool,
}

impl Sanity {
    /// A request ended because its logits were not finite, twice.
    pub fn failed(&mut self, request: Fingerprint) {
        if self.failed.len() < NUM_SUSPICIOUS {
            self.failed.insert(request);
        }
    }

    /// A request got a token.
    pub fn succeeded(&mut self) {
        if !self.failed.is_empty() {
            self.failed.clear();
        }
        self.is_convicted = false;
    }

    /// The logits of the probe were not finite either. Of no effect unless the model is suspect: a
    /// request may have got a token meanwhile.
    pub fn probe_failed(&mut self) {
        self.is_convicted |= self.state() == ModelState::Suspect;
    }

    /// What is known.
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
        sanity.probe_failed();
        assert_eq!(sanity.state(), ModelState::NonFiniteLogits);
        sanity.failed(fingerprint(4));
        assert_eq!(sanity.state(), ModelState::NonFiniteLogits);
        sanity.succeeded();
        assert_eq!(sanity.state(), ModelState::Sound);
        sanity.probe_failed();
        assert_eq!(sanity.state(), ModelState::Sound, "its news are old");
    }
}
