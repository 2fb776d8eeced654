//! The queue of grammars to compile. It also decides which of them take too long. It has no
//! threads: the compiler's pool starts the next job when a thread is free.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use super::request::{failure::Failure, ids::Micros, structured_output::StructuredOutput};
use crate::logic::planted::{Bug, planted};

/// Maximum number of formats that wait for a thread. Further formats are not recorded, because a
/// request that waits for one asks again.
pub const QUEUE_CAPACITY: usize = 1_024;

/// Returns the failure of requests whose grammar was not compiled within `limit`.
#[must_use]
pub fn takes_too_long(limit: Duration) -> Failure {
    let seconds = limit.as_secs_f64();
    let why = format!("the grammar takes longer to compile than the limit of {seconds} s");
    Failure::InvalidGrammar(why)
}

/// Returns whether a job that has run for `elapsed` microseconds has failed. It fails even if it
/// has finished.
#[must_use]
pub fn is_too_long(elapsed: Micros, limit: Micros) -> bool {
    elapsed >= limit && !planted(Bug::KeepHungCompiler)
}

/// Number of a job, unique in one incarnation.
pub type JobId = u64;

/// The jobs of one pool of threads. Identical formats that wait or run are one job.
#[derive(Debug)]
pub struct GrammarJobs {
    /// Maximum time of a job.
    limit: Micros,
    next: JobId,
    /// Waiting formats, each with the time when it was queued.
    queue: VecDeque<(Arc<StructuredOutput>, Micros)>,
    /// Running jobs, each with the time when it started.
    running: BTreeMap<JobId, (Arc<StructuredOutput>, Micros)>,
    /// All waiting and running formats.
    in_hand: BTreeSet<Arc<StructuredOutput>>,
}

impl GrammarJobs {
    /// Returns an empty queue whose jobs may each run for `limit` microseconds.
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

    /// Queues a format. Nothing changes when it already waits or runs, or when the queue is full.
    pub fn ask(&mut self, format: Arc<StructuredOutput>, now: Micros) {
        if self.queue.len() < QUEUE_CAPACITY && self.in_hand.insert(Arc::clone(&format)) {
            self.queue.push_back((format, now));
        }
    }

    /// Returns the next job, for a thread that is free.
    pub fn start(&mut self, now: Micros) -> Option<(JobId, Arc<StructuredOutput>)> {
        let (format, _) = self.queue.pop_front()?;
        let job = self.next;
        self.next += 1;
        self.running.insert(job, (Arc::clone(&format), now));
        Some((job, format))
    }

    /// Ends a job and returns its format. `None`: it had ended before.
    pub fn end(&mut self, job: JobId) -> Option<Arc<StructuredOutput>> {
        let (format, _) = self.running.remove(&job)?;
        self.in_hand.remove(&format);
        Some(format)
    }

    /// Returns the jobs that have run for too long.
    #[must_use]
    pub fn overdue(&self, now: Micros) -> Vec<JobId> {
        let is_overdue = |since: Micros| is_too_long(now.saturating_sub(since), self.limit);
        let running = self.running.iter().filter(|(_, (_, since))| is_overdue(*since));
        running.map(|(&job, _)| job).collect()
    }

    /// Removes and returns the formats that have waited as long as a job may run. It is called when
    /// no thread is left to run them.
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
    fn identical_formats_are_one_job() {
        let mut jobs = GrammarJobs::new(10);
        for text in ["a", "b", "a", "a"] {
            jobs.ask(format(text), 0);
        }
        assert_eq!(jobs.start(0), Some((0, format("a"))));
        jobs.ask(format("a"), 0);
        assert_eq!(jobs.start(0), Some((1, format("b"))));
        assert_eq!(jobs.start(0), None);
        assert_eq!(jobs.end(0), Some(format("a")));
        assert_eq!(jobs.end(0), None, "a job ends once");
        jobs.ask(format("a"), 0);
        assert_eq!(
            jobs.start(0),
            Some((2, format("a"))),
            "the format is no longer queued or running"
        );
    }

    #[test]
    fn a_job_is_overdue_by_its_run_time_and_not_by_its_time_in_the_queue() {
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
    fn the_queue_is_bounded_and_a_rejected_format_may_be_asked_for_again() {
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
    fn without_threads_formats_that_waited_for_the_limit_are_given_up() {
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
