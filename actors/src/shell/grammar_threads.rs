//! The OS threads that compile grammars. A panic costs a job. A job that hangs costs its thread:
//! the thread is left behind and replaced, unless too many were left behind.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Weak},
};

use flume::{Receiver, Sender};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::device_thread::panic_message;
use crate::{
    logic::{
        grammar_jobs::{JobId, is_too_long, takes_too_long},
        request::{failure::Failure, structured_output::StructuredOutput},
    },
    message::StructuredOutputMessage,
    ports::GrammarError,
    system::{config::DeviceMode, context::Context, grammars::CompilerThread},
};

/// Largest number of threads that hang, beside those that work. With more of them, a working thread
/// that hangs is not replaced until another one ends.
const MAX_ABANDONED: usize = 8;

/// A job, and the place for its outcome.
struct Job {
    format: Arc<StructuredOutput>,
    fate: Arc<Mutex<Fate>>,
}

/// The end of a job. The first look decides whether the job was done or was left behind.
enum Fate {
    Running,
    Done(Result<(), Failure>),
    /// The actor no longer waits for the job. The thread ends when the job does.
    Abandoned,
}

/// The actor's end of its threads. Dropping it ends them after their current jobs.
pub(crate) struct GrammarThreads {
    context: Arc<Context>,
    jobs: Sender<Job>,
    inbox: Receiver<Job>,
    /// Number of threads that take jobs.
    count: usize,
    running: BTreeMap<JobId, Arc<Mutex<Fate>>>,
}

impl GrammarThreads {
    /// Returns the actor's end without threads.
    pub(crate) fn new(context: Arc<Context>) -> Self {
        let (jobs, inbox) = flume::bounded(context.config.num_grammar_threads.max(1));
        Self { context, jobs, inbox, count: 0, running: BTreeMap::new() }
    }

    /// Returns whether no thread takes jobs.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns whether a thread is free, which may be a thread started here.
    pub(crate) fn has_room(&mut self) -> bool {
        if self.running.len() < self.count {
            return true;
        }
        let most = self.context.config.num_grammar_threads.max(1);
        let may_start =
            self.count < most && self.context.vault.grammars.num_threads() < most + MAX_ABANDONED;
        if !may_start {
            return false;
        }
        match Thread::spawn(&self.context, self.inbox.clone()) {
            Ok(()) => {
                self.count += 1;
                true
            }
            Err(error) => {
                tracing::error!(%error, "the system gives no thread for grammars");
                false
            }
        }
    }

    /// Gives a job to a thread. The caller has checked [`Self::has_room`], so a thread takes it at
    /// once.
    pub(crate) fn compile(&mut self, job: JobId, format: Arc<StructuredOutput>) {
        let fate = Arc::new(Mutex::new(Fate::Running));
        self.running.insert(job, Arc::clone(&fate));
        if self.jobs.try_send(Job { format, fate }).is_err() {
            tracing::error!("there was no room for a grammar");
        }
    }

    /// Returns the jobs that are done, and their outcomes.
    pub(crate) fn take_done(&mut self) -> Vec<(JobId, Result<(), Failure>)> {
        let mut done = Vec::new();
        self.running.retain(|&job, fate| match &*fate.lock() {
            Fate::Done(outcome) => {
                done.push((job, outcome.clone()));
                false
            }
            Fate::Running | Fate::Abandoned => true,
        });
        done
    }

    /// Leaves a job behind with its thread. Returns the outcome if the job is done by now.
    pub(crate) fn abandon(&mut self, job: JobId) -> Option<Result<(), Failure>> {
        let fate = self.running.remove(&job)?;
        let mut fate = fate.lock();
        match &*fate {
            Fate::Done(outcome) => Some(outcome.clone()),
            Fate::Running | Fate::Abandoned => {
                *fate = Fate::Abandoned;
                self.count -= 1;
                None
            }
        }
    }
}

/// The thread's end.
struct Thread {
    grammars: CompilerThread,
    /// Weak, because a thread that hangs must not keep the model in memory.
    context: Weak<Context>,
    inbox: Receiver<Job>,
}

impl Thread {
    fn spawn(context: &Arc<Context>, inbox: Receiver<Job>) -> std::io::Result<()> {
        let grammars = context.vault.grammars.begin_thread();
        let thread = Self { grammars, context: Arc::downgrade(context), inbox };
        match context.config.device {
            DeviceMode::Thread => {
                let builder = std::thread::Builder::new().name("playhouse-grammar".to_owned());
                // On an error the thread is dropped, and with it its count.
                drop(builder.spawn(move || thread.run())?);
            }
            DeviceMode::Task { .. } => drop(tokio::spawn(thread.run_in_simulated_time())),
        }
        Ok(())
    }

    fn run(self) {
        while let Ok(job) = self.inbox.recv() {
            let started = Instant::now();
            if !self.compile(&job, started) {
                return;
            }
        }
    }

    async fn run_in_simulated_time(self) {
        while let Ok(job) = self.inbox.recv_async().await {
            let started = Instant::now();
            let delay =
                self.context.upgrade().map(|c| c.observers.chaos.compile_delay(&job.format));
            tokio::time::sleep(delay.unwrap_or_default()).await;
            if !self.compile(&job, started) {
                return;
            }
        }
    }

    /// Compiles a grammar. Returns whether the thread goes on. A job that took too long has failed,
    /// also if no actor looked in time: the answer must not depend on other faults.
    fn compile(&self, job: &Job, started: Instant) -> bool {
        let compiler = self.grammars.compiler();
        let compiled = catch_unwind(AssertUnwindSafe(|| compiler.compile(&job.format)));
        let limit = self.context.upgrade().map(|context| context.config.grammar_timeout);
        let overrun = limit.filter(|&limit| {
            let [elapsed, limit] = [started.elapsed(), limit].map(|time| time.as_micros() as u64);
            is_too_long(elapsed, limit)
        });
        let outcome = match compiled {
            Ok(Ok(())) => overrun.map_or(Ok(()), |limit| Err(takes_too_long(limit))),
            Ok(Err(GrammarError::Invalid(why) | GrammarError::TooLarge(why))) => {
                Err(Failure::InvalidGrammar(why))
            }
            Ok(Err(GrammarError::System(why))) => Err(Failure::GrammarCompiler(why)),
            Err(panic) => Err(Failure::GrammarCompiler(panic_message(&*panic))),
        };
        {
            let mut fate = job.fate.lock();
            if matches!(*fate, Fate::Abandoned) {
                return false;
            }
            *fate = Fate::Done(outcome);
        }
        let context = self.context.upgrade();
        if let Some(context) = &context {
            context.directory.core.structured_output.cast(StructuredOutputMessage::JobEnded);
        }
        context.is_some()
    }
}
