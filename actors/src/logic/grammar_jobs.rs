//! Which grammars are to be compiled, in which order, and which of them take too long. It knows no
//! threads: whoever has one free starts the next job.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use super::request::{failure::Failure, ids::Micros, structured_output::StructuredOutput};
use crate::logic::planted::{Bug, planted};

/// Formats that may wait for a thread. What is asked for beyond it is not noted: who waits for it
/// asks again.
pub const QUEUE_CAPACITY: usize = 1_024;

/// What those are told who wait for a grammar that was not compiled within `limit`.
#[must_use]
pub fn takes_too_long(limit: Duration) -> Failure {
    let seconds = limit.as_secs_f64();
    let why = format!("the grammar takes longer to compile than the limit of {seconds} s");
    Failure::InvalidGrammar(why)
}

/// Whether a job that has run for `elapsed` microseconds has failed, done or not.
#[must_use]
pub fn is_too_long(elapsed: Micros, limit: Micros) -> bool {
    elapsed >= limit && !planted(Bug::KeepHungCompiler)
}

/// Names one job of one incarnation.
pub type JobId = u64;

/// The jobs of one pool of threads. Identical formats in hand are one job.
#[derive(Debug)]
pub struct GrammarJobs {
    /// How long a job may run.
    limit: Micros,
    next: JobId,
    /// With the time since when each waits.
    queue: VecDeque<(Arc<StructuredOutput>, Micros)>,
    /// With the time since when each runs.
    running: BTreeMap<JobId, (Arc<StructuredOutput>, Micros)>,
    /// All of both.
    in_hand: BTreeSet<Arc<StructuredOutput>>,
}

impl GrammarJobs {
    /// No jobs, of which each may run for `limit` microseconds.
    #[must_use]
    pub fn new(limit: Micros) -> Self {
        Self {
            limit,
            next: 0,
            queue: VecDeque::new(),
            running: BTreeMap::new(),
            in_hand: BTreeSet::new(),
        }
    }

    /// A format is wanted. Nothing changes when it is in hand already, or the queue is full.
    pub fn ask(&mut self, format: Arc<StructuredOutput>, now: Micros) {
        if self.queue.len() < QUEUE_CAPACITY && self.in_hand.insert(Arc::clone(&format)) {
            self.queue.push_back((format, now));
        }
    }

    /// A thread is free: what it is to compile.
    pub fn start(&mut self, now: Micros) -> Option<(JobId, Arc<StructuredOutput>)> {
        let (format, _) = self.queue.pop_front()?;
        let job = self.next;
        self.next += 1;
        self.running.insert(job, (Arc::clone(&format), now));
        Some((job, format))
    }

    /// A job is over. `None` if it was before.
    pub fn end(&mut self, job: JobId) -> Option<Arc<StructuredOutput>> {
        let (format, _) = self.running.remove(&job)?;
        self.in_hand.remove(&format);
        Some(format)
    }

    /// Jobs that have run for too long.
    #[must_use]
    pub fn overdue(&self, now: Micros) -> Vec<JobId> {
        let is_overdue = |since: Micros| is_too_long(now.saturating_sub(since), self.limit);
        let running = self.running.iter().filter(|(_, (_, since))| is_overdue(*since));
        running.map(|(&job, _)| job).collect()
    }

    /// There is no thread, nor will be: takes out what has waited for one for as long as it might
    /// have run.
    pub fn give_up(&mut self, now: Micros) -> Vec<Arc<StructuredOutput>> {
        let mut given_up = Vec::new();
        while let Some((_, since)) = self.queue.front()
            && now.saturating_sub(*since) >= self.limit
            && let Some((format, _)) = self.queue.pop_front()
        {
            self.in_hand.remove(&format);
            given_up.push(format);
        }
        given_up
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logic::request::structured_output::OutputFormat;

    fn format(text: &str) -> Arc<StructuredOutput> {
        Arc::new(OutputFormat::Regex(text.to_owned()).into())
    }

    #[test]
    fn identical_formats_in_hand_are_one_job() {
        let mut jobs = GrammarJobs::new(10);
        for text in ["a", "b", "a", "a"] {
            jobs.ask(format(text), 0);
        }
        assert_eq!(jobs.start(0), Some((0, format("a"))));
        jobs.ask(format("a"), 0);
        assert_eq!(jobs.start(0), Some((1, format("b"))));
        assert_eq!(jobs.start(0), None);
        assert_eq!(jobs.end(0), Some(format("a")));
        assert_eq!(jobs.end(0), None, "an end is told once");
        jobs.ask(format("a"), 0);
        assert_eq!(jobs.start(0), Some((2, format("a"))), "it is not in hand any more");
    }

    #[test]
    fn a_job_is_overdue_by_its_own_time_not_by_that_in_the_queue() {
        let mut jobs = GrammarJobs::new(10);
        jobs.ask(format("a"), 0);
        jobs.ask(format("b"), 0);
        jobs.start(0);
        assert!(jobs.overdue(9).is_empty());
        jobs.start(9);
        assert_eq!(jobs.overdue(10), [0]);
        jobs.end(0);
        assert!(jobs.overdue(18).is_empty());
        assert_eq!(jobs.overdue(19), [1]);
    }

    #[test]
    fn the_queue_is_bounded_and_what_it_did_not_take_may_be_asked_for_again() {
        let mut jobs = GrammarJobs::new(10);
        for index in 0..=QUEUE_CAPACITY {
            jobs.ask(format(&index.to_string()), 0);
        }
        let last = QUEUE_CAPACITY.to_string();
        assert!(jobs.start(0).is_some());
        jobs.ask(format(&last), 0);
        let mut started = Vec::new();
        while let Some((_, format)) = jobs.start(0) {
            started.push(format);
        }
        assert_eq!((started.len(), started.last()), (QUEUE_CAPACITY, Some(&format(&last))));
    }

    #[test]
    fn without_threads_what_has_waited_for_the_limit_is_given_up() {
        let mut jobs = GrammarJobs::new(10);
        jobs.ask(format("a"), 0);
        jobs.ask(format("b"), 5);
        assert_eq!(jobs.give_up(9), Vec::<Arc<StructuredOutput>>::new());
        assert_eq!(jobs.give_up(10), [format("a")]);
        jobs.ask(format("a"), 10);
        assert_eq!(jobs.start(10), Some((0, format("b"))));
        assert_eq!(jobs.start(10), Some((1, format("a"))));
    }
}
