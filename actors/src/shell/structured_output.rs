//! The structured output actor's shell. Grammars are compiled on threads of their own, so a slow
//! grammar delays neither the scheduler nor other grammars.

use std::{collections::BTreeMap, sync::Arc};

use ractor::{Actor, ActorProcessingErr, ActorRef};

use super::grammar_threads::GrammarThreads;
use crate::{
    logic::{
        grammar_jobs::{GrammarJobs, JobId, takes_too_long},
        recovery::in_flight::SideWork,
        request::failure::Failure,
    },
    message::{CompiledGrammar, SchedulerMessage, StructuredOutputMessage},
    supervision::watched::waiting_for,
    system::context::Context,
};

/// The structured output actor.
#[derive(Debug)]
pub struct StructuredOutputActor {
    context: Arc<Context>,
}

/// The grammars that were asked for. If the actor dies, the scheduler asks the next one again.
pub struct State {
    jobs: GrammarJobs,
    threads: GrammarThreads,
    /// The numbers of running jobs at the front, if this is an engine process.
    works: BTreeMap<JobId, u64>,
}

impl StructuredOutputActor {
    /// Returns an actor with the context's compiler.
    pub fn new(context: Arc<Context>) -> Self {
        Self { context }
    }

    /// Takes finished grammars, gives up slow ones, starts waiting ones, and sends the outcomes to
    /// the scheduler.
    async fn advance(&self, state: &mut State) {
        let (now, mut compiled) = (self.context.now(), Vec::new());
        for (job, outcome) in state.threads.take_done() {
            self.ended(job, state);
            compiled.extend(state.jobs.end(job).map(|format| (format, outcome)));
        }
        for job in state.jobs.overdue(now) {
            self.ended(job, state);
            let limit = self.context.config.grammar_timeout;
            let outcome = state.threads.abandon(job).unwrap_or_else(|| {
                tracing::warn!(?limit, "a grammar takes too long to compile: its thread is left");
                Err(takes_too_long(limit))
            });
            compiled.extend(state.jobs.end(job).map(|format| (format, outcome)));
        }
        while state.threads.has_room()
            && let Some((job, format)) = state.jobs.start(now)
        {
            if let Some(front) = self.context.part.engine() {
                let work = SideWork::Compile(Arc::clone(&format));
                let number = waiting_for(front.work_given(work)).await;
                state.works.insert(job, number);
            }
            state.threads.compile(job, format);
        }
        if state.threads.is_empty() {
            let hopeless = Failure::GrammarCompiler("no thread is left for it".to_owned());
            let given_up = state.jobs.give_up(now).into_iter();
            compiled.extend(given_up.map(|format| (format, Err(hopeless.clone()))));
        }
        self.tell(compiled);
    }

    /// Records that a thread has left a job.
    fn ended(&self, job: JobId, state: &mut State) {
        if let (Some(work), Some(front)) = (state.works.remove(&job), self.context.part.engine()) {
            front.work_done(work);
        }
    }

    fn tell(&self, compiled: Vec<CompiledGrammar>) {
        if !compiled.is_empty() {
            let compiled = SchedulerMessage::GrammarsCompiled(compiled);
            self.context.directory.core.scheduler.cast(compiled);
        }
    }
}

impl Actor for StructuredOutputActor {
    type Msg = StructuredOutputMessage;
    type State = State;
    type Arguments = ();

    async fn pre_start(
        &self,
        _myself: ActorRef<StructuredOutputMessage>,
        (): (),
    ) -> Result<State, ActorProcessingErr> {
        let limit = self.context.config.grammar_timeout.as_micros() as u64;
        let threads = GrammarThreads::new(Arc::clone(&self.context));
        Ok(State { jobs: GrammarJobs::new(limit), threads, works: BTreeMap::new() })
    }

    async fn handle(
        &self,
        _myself: ActorRef<StructuredOutputMessage>,
        message: StructuredOutputMessage,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        if let StructuredOutputMessage::Compile(formats) = message {
            let now = self.context.now();
            for format in formats {
                state.jobs.ask(format, now);
            }
        }
        self.advance(state).await;
        Ok(())
    }
}
