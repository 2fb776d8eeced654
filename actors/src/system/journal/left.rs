//! Journals that other processes have left, or other engines of this one.
//!
//! Each engine writes a journal of its own. When its process has ended, another process takes its
//! content over: it makes the content durable in its own journal, and then removes the first one.
//! A death between the two leaves the content in both, and the newest journal counts.

use super::error::{JournalError, JournalFault};
use crate::{
    codec::DecodeError,
    logic::journal::{FRAMES, Fingerprint, Live, ScanFault, scan},
    ports::JournalDisk,
};

/// A journal without a process, locked for this one.
pub struct Left {
    /// Its files.
    pub disk: Box<dyn JournalDisk>,
    /// Its place, for the log.
    pub place: String,
}

/// The content of journals that this process takes over.
#[derive(Default)]
pub struct Takeover {
    pub(super) live: Live,
    sources: Vec<Source>,
    /// Number of incomplete answers of other models. They stay where they are.
    pub num_of_other_models: usize,
    /// Events for the log, each a sentence.
    pub told: Vec<String>,
}

/// A journal whose content was read.
struct Source {
    disk: Box<dyn JournalDisk>,
    place: String,
    remainder: Remainder,
}

/// The part of a journal that is not taken over.
enum Remainder {
    /// The journal is removed.
    None,
    /// Some answers were taken out, and these stay.
    Some(Live),
}

impl Takeover {
    /// Reads journals, of which the newest is the first, for a process with this fingerprint.
    ///
    /// # Errors
    /// [`JournalError`] if a disk fails, or a journal has another version.
    pub fn read(left: Vec<Left>, fingerprint: &Fingerprint) -> Result<Self, JournalError> {
        let mut takeover = Self::default();
        for journal in left {
            takeover.add(journal, fingerprint)?;
        }
        Ok(takeover)
    }

    fn add(&mut self, left: Left, fingerprint: &Fingerprint) -> Result<(), JournalError> {
        let Left { mut disk, place } = left;
        let scan = scan(&disk.read()?.unwrap_or_default());
        if let Some(fault) = &scan.fault {
            if let ScanFault::Damaged { cause, .. } = fault
                && let DecodeError::Version { found, expected } = *cause
            {
                return Err(JournalError::Version { found, expected });
            }
            let (aside, intact) = (disk.set_aside()?, scan.num_records);
            self.told.push(format!(
                "the journal is damaged after {intact} records: {fault}; the segment is kept as \
                 {aside}"
            ));
        }
        let mut live = scan.live;
        let differences = live.fingerprint().differences(fingerprint);
        if differences.is_empty() {
            live.count_death();
            self.live.absorb(live);
            self.sources.push(Source { disk, place, remainder: Remainder::None });
            return Ok(());
        }
        let made = live.take_made();
        let (num_made, num_answers) = (made.len(), live.len());
        self.live.absorb(made);
        let is_of_model = |fact: &str| matches!(fact, "weights" | "numbers");
        let other = differences.iter().find(|difference| is_of_model(difference.fact));
        match other {
            _ if num_answers == 0 => {
                self.sources.push(Source { disk, place, remainder: Remainder::None });
            }
            // Another process draws other tokens. Clients would see tokens that do not continue
            // those that they have.
            Some(difference) => {
                self.num_of_other_models += num_answers;
                self.told.push(format!(
                    "{num_answers} answers of another model stay in {place} ({difference}): start \
                     with that model, or swap to it, to continue them"
                ));
                if num_made > 0 {
                    let remainder = Remainder::Some(live);
                    self.sources.push(Source { disk, place, remainder });
                }
            }
            None => {
                let aside = disk.set_aside()?;
                let differences: Vec<_> = differences.iter().map(ToString::to_string).collect();
                self.told.push(format!(
                    "{num_answers} answers in the journal are dropped, because this process may \
                     draw other tokens ({}); the segment is kept as {aside}",
                    differences.join("; ")
                ));
                self.sources.push(Source { disk, place, remainder: Remainder::None });
            }
        }
        Ok(())
    }

    /// Returns whether no journal was read, or none has content for this process.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// Returns the number of bytes that its answers take in a journal.
    #[must_use]
    pub fn num_bytes(&self) -> usize {
        self.live.num_bytes()
    }

    /// Removes the journals, or the answers in them that were taken over. Call it once these are
    /// durable elsewhere. A journal that cannot be removed is logged, and is taken over again by
    /// the next process.
    pub fn settle(self) {
        for source in self.sources {
            let Source { mut disk, place, remainder } = source;
            let settled = match remainder {
                Remainder::None => disk.remove().map_err(JournalFault::from),
                Remainder::Some(live) => reduce(&mut *disk, &live),
            };
            if let Err(error) = settled {
                tracing::warn!(place, %error, "a journal that was taken over is not removed");
            }
        }
    }
}

/// Leaves this content alone in a journal. The fingerprint of its process stays.
fn reduce(disk: &mut dyn JournalDisk, live: &Live) -> Result<(), JournalFault> {
    let mut segment = Vec::new();
    for record in live.snapshot(live.fingerprint()) {
        FRAMES.encode(&record, &mut segment)?;
    }
    Ok(disk.replace(&segment)?)
}
