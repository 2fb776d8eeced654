//! Writes records to the disk. It knows no clock, no thread and no client.

use super::{
    error::{JournalError, JournalFault},
    left::{Left, Takeover},
};
use crate::{
    logic::{
        journal::{Answer, FRAMES, Fingerprint, Live, Record},
        planted::{Bug, planted},
        request::ids::RequestId,
    },
    ports::JournalDisk,
};

/// Bytes that a segment may have beyond twice those of its content, before a new one begins.
const SLACK_BYTES: usize = 4 << 20;

/// The journal of one engine, open for writing.
pub struct Writer {
    disk: Box<dyn JournalDisk>,
    fingerprint: Fingerprint,
    live: Live,
    max_bytes: usize,
    slack_bytes: usize,
    segment_bytes: usize,
    buffer: Vec<u8>,
    /// Whether the newest segment may lack records. Then a new one is begun before the next write.
    is_torn: bool,
    /// Number of times that bytes were made durable.
    pub(super) num_syncs: u64,
}

/// The findings of [`Writer::open`].
#[derive(Debug, Default)]
pub struct Opened {
    /// The answers of earlier processes, which this one continues.
    pub answers: Vec<Answer>,
    /// The lowest id that no request has had.
    pub next_request: RequestId,
    /// Number of incomplete answers of other models. Their journals stay.
    pub num_of_other_models: usize,
    /// Events for the log, each a sentence.
    pub told: Vec<String>,
}

impl Writer {
    /// Begins a journal on `disk`, which is empty, for a process with this fingerprint. Its content
    /// is that of the journals in `left`, of which the newest is the first. They are removed then.
    /// The times of the requests count from `zero`, in microseconds since 1970.
    ///
    /// # Errors
    /// [`JournalError`] if a disk fails, or a journal is of another version.
    pub fn open(
        disk: Box<dyn JournalDisk>,
        left: Vec<Left>,
        fingerprint: Fingerprint,
        max_bytes: usize,
        zero: u64,
    ) -> Result<(Self, Opened), JournalError> {
        let mut takeover = Takeover::read(left, &fingerprint)?;
        let live = std::mem::take(&mut takeover.live);
        let opened = Opened {
            answers: live.answers(zero),
            next_request: live.next_request(),
            num_of_other_models: takeover.num_of_other_models,
            told: std::mem::take(&mut takeover.told),
        };
        let mut writer = Self {
            disk,
            fingerprint,
            live,
            max_bytes,
            slack_bytes: SLACK_BYTES.min(max_bytes / 4),
            segment_bytes: 0,
            buffer: Vec::new(),
            is_torn: true,
            num_syncs: 0,
        };
        if planted(Bug::RemoveBeforeDurable) {
            std::mem::take(&mut takeover).settle();
        }
        writer.write(&[])?;
        takeover.settle();
        Ok((writer, opened))
    }

    /// Makes `records` durable, and all records before them.
    ///
    /// # Errors
    /// [`JournalFault`]. The records are part of the content nevertheless. The next call that
    /// succeeds makes them durable.
    pub fn write(&mut self, records: &[Record]) -> Result<(), JournalFault> {
        self.buffer.clear();
        let mut encoded = Ok(());
        for record in records {
            let start = self.buffer.len();
            match FRAMES.encode(record, &mut self.buffer) {
                Ok(()) => self.live.apply(record, self.buffer.len() - start),
                Err(error) => encoded = Err(error),
            }
        }
        if encoded.is_err() {
            // The other records are part of the content, and in no segment.
            self.is_torn = true;
        }
        encoded?;
        if self.live.num_bytes() > self.max_bytes {
            // The records are in no segment.
            self.is_torn = true;
            let (needed, max) = (self.live.num_bytes(), self.max_bytes);
            return Err(JournalFault::Full { needed, max });
        }
        let after = self.segment_bytes + self.buffer.len();
        if self.is_torn || after > 2 * self.live.num_bytes() + self.slack_bytes {
            return self.compact();
        }
        if self.buffer.is_empty() {
            return Ok(());
        }
        let appended = self.disk.append(&self.buffer).and_then(|()| {
            self.num_syncs += 1;
            if planted(Bug::EarlyDurable) { Ok(()) } else { self.disk.sync() }
        });
        match appended {
            Ok(()) => self.segment_bytes = after,
            // A sync that failed may have dropped the pages, so a later one proves nothing.
            Err(_) => self.is_torn = !planted(Bug::AppendAfterFault),
        }
        Ok(appended?)
    }

    /// Begins a new segment with the content alone.
    fn compact(&mut self) -> Result<(), JournalFault> {
        self.is_torn = true;
        self.buffer.clear();
        for record in self.live.snapshot(&self.fingerprint) {
            FRAMES.encode(&record, &mut self.buffer)?;
        }
        self.disk.replace(&self.buffer)?;
        self.num_syncs += 1;
        self.segment_bytes = self.buffer.len();
        self.is_torn = false;
        // A large content would keep as much memory as it took once.
        self.buffer = Vec::new();
        Ok(())
    }

    /// Forgets what the newest segment holds, because a write was interrupted.
    pub(super) fn distrust(&mut self) {
        self.is_torn = true;
    }

    /// Returns the number of bytes of the newest segment.
    #[must_use]
    pub fn segment_bytes(&self) -> usize {
        self.segment_bytes
    }

    /// Returns the content.
    #[must_use]
    pub fn live(&self) -> &Live {
        &self.live
    }
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("answers", &self.live.len()).finish_non_exhaustive()
    }
}
