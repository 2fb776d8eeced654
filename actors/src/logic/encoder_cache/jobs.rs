//! The encoder worker's batch. If its items fail together, each is encoded alone, so that only the
//! faulty one fails.

use std::collections::VecDeque;

use super::{Encoded, EncoderBatch};
use crate::logic::request::{failure::Failure, media::MultimodalFeature};

/// An item that fails this often alone cannot be encoded.
const FAILURES_MAX: u32 = 2;

/// The text for the client of an item at which the encoder fails.
pub const UNENCODABLE: &str = "an image or sound of the request could not be encoded";

/// The state of a batch that arrives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arrived {
    /// It is new. It begins now, or after the current one.
    New,
    /// It is being encoded.
    Current,
    /// It has ended with these results.
    Ended(EndedBatch),
}

/// A batch that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedBatch {
    /// The manager that made it.
    pub manager: u64,
    /// Its number.
    pub number: u64,
    /// The end of each item.
    pub encoded: Vec<Encoded>,
}

/// Items that are encoded together.
#[derive(Debug)]
struct Job {
    items: Vec<MultimodalFeature>,
    failures: u32,
}

#[derive(Debug)]
struct Current {
    manager: u64,
    number: u64,
    jobs: VecDeque<Job>,
    encoded: Vec<Encoded>,
}

/// The batches of the encoder worker: one that is encoded, and one that waits.
#[derive(Debug, Default)]
pub struct EncoderJobs {
    current: Option<Current>,
    /// The batch of a later manager.
    next: Option<EncoderBatch>,
    last: Option<EndedBatch>,
}

impl EncoderJobs {
    /// Takes a batch. A batch replaces one that waits, because its manager is dead.
    pub fn take(&mut self, batch: EncoderBatch) -> Arrived {
        let name = (batch.manager, batch.number);
        if let Some(last) = self.last.as_ref().filter(|it| (it.manager, it.number) == name) {
            return Arrived::Ended(last.clone());
        }
        if self.current.as_ref().is_some_and(|it| (it.manager, it.number) == name) {
            return Arrived::Current;
        }
        self.next = Some(batch);
        self.begin_next();
        Arrived::New
    }

    fn begin_next(&mut self) {
        if self.current.is_some() {
            return;
        }
        self.current = self.next.take().map(|EncoderBatch { manager, number, items }| {
            let jobs = VecDeque::from([Job { items, failures: 0 }]);
            Current { manager, number, jobs, encoded: Vec::new() }
        });
    }

    /// Returns the items to encode now.
    #[must_use]
    pub fn items(&self) -> Option<&[MultimodalFeature]> {
        self.current.as_ref()?.jobs.front().map(|job| &*job.items)
    }

    /// Takes the ends of the current items. Returns the batch if it has ended.
    pub fn done(&mut self, ends: Vec<Result<(), Failure>>) -> Option<EndedBatch> {
        let current = self.current.as_mut()?;
        let job = current.jobs.pop_front()?;
        let identifiers = job.items.into_iter().map(|item| item.identifier);
        current.encoded.extend(identifiers.zip(ends));
        self.end()
    }

    /// Records that the current items failed together. Returns the batch if it has ended. The
    /// reason is in the log: the text of a panic is not for clients.
    pub fn failed(&mut self) -> Option<EndedBatch> {
        let current = self.current.as_mut()?;
        let Job { items, failures } = current.jobs.pop_front()?;
        let failures = if items.len() > 1 { 0 } else { failures + 1 };
        for item in items.into_iter().rev() {
            if failures >= FAILURES_MAX {
                let failure = Failure::Encoder(UNENCODABLE.to_owned());
                current.encoded.push((item.identifier, Err(failure)));
            } else {
                current.jobs.push_front(Job { items: vec![item], failures });
            }
        }
        self.end()
    }

    /// Ends the current batch if it has no items left, and begins the next.
    fn end(&mut self) -> Option<EndedBatch> {
        let Current { manager, number, encoded, .. } =
            self.current.take_if(|current| current.jobs.is_empty())?;
        let ended = EndedBatch { manager, number, encoded };
        self.last = Some(ended.clone());
        self.begin_next();
        Some(ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(number: u64, names: &[&str]) -> EncoderBatch {
        let item = |name: &&str| MultimodalFeature::for_test(name, 0, 4);
        EncoderBatch { manager: 1, number, items: names.iter().map(item).collect() }
    }

    fn names(jobs: &EncoderJobs) -> Vec<&str> {
        jobs.items().unwrap_or_default().iter().map(|item| &*item.identifier).collect()
    }

    #[test]
    fn only_the_faulty_item_of_a_batch_fails() {
        let mut jobs = EncoderJobs::default();
        assert_eq!(jobs.take(batch(1, &["a", "b", "c"])), Arrived::New);
        assert_eq!(names(&jobs), ["a", "b", "c"]);
        assert!(jobs.failed().is_none());
        assert_eq!(names(&jobs), ["a"]);
        assert!(jobs.done(vec![Ok(())]).is_none());
        for _ in 0..2 {
            assert_eq!(names(&jobs), ["b"]);
            assert!(jobs.failed().is_none());
        }
        let ended = jobs.done(vec![Ok(())]).unwrap();
        let failed: Vec<&str> = ended
            .encoded
            .iter()
            .filter(|(_, end)| end.is_err())
            .map(|(identifier, _)| &**identifier)
            .collect();
        assert_eq!((failed, ended.encoded.len()), (vec!["b"], 3));
        assert!(jobs.items().is_none());
    }

    #[test]
    fn a_repeated_batch_is_encoded_once() {
        let mut jobs = EncoderJobs::default();
        assert_eq!(jobs.take(batch(1, &["a"])), Arrived::New);
        assert_eq!(jobs.take(batch(1, &["a"])), Arrived::Current);
        let ended = jobs.done(vec![Ok(())]).unwrap();
        assert_eq!(jobs.take(batch(1, &["a"])), Arrived::Ended(ended));
    }

    #[test]
    fn the_batch_of_a_later_manager_follows_the_current_one() {
        let mut jobs = EncoderJobs::default();
        jobs.take(batch(1, &["a"]));
        let later = EncoderBatch { manager: 2, ..batch(1, &["b"]) };
        assert_eq!(jobs.take(later), Arrived::New);
        assert_eq!(names(&jobs), ["a"]);
        assert_eq!(jobs.done(vec![Ok(())]).map(|ended| ended.manager), Some(1));
        assert_eq!(names(&jobs), ["b"]);
        assert_eq!(jobs.done(vec![Ok(())]).map(|ended| ended.manager), Some(2));
    }
}
