//! The front's stand-ins for the parts of an engine process: the executors with the KV cache, and
//! the grammars.

use std::sync::Arc;

use super::{engine_process::EngineProcess, engines::Engines};
use crate::{
    link::frames::{Answer, Question},
    logic::request::{ids::Epoch, structured_output::StructuredOutput},
    ports::{
        ExecuteError, ExecutorFactory, GrammarCompiler, GrammarError, ModelExecutor, ModelInfo,
    },
};

/// The executors of the engine processes.
#[derive(Debug)]
pub(crate) struct LinkedExecutors {
    info: ModelInfo,
    engines: Arc<Engines>,
}

impl LinkedExecutors {
    /// Returns the executors of a model that engine processes have loaded.
    pub(crate) fn new(info: ModelInfo, engines: Arc<Engines>) -> Self {
        Self { info, engines }
    }

    /// Lets every engine work on its KV cache, and waits for the end of all.
    fn memory(&self, question: &Question) -> Result<(), ExecuteError> {
        let done = self.engines.all().map(|process| Self::memory_of(process, question.clone()));
        // Each is asked, also after one that failed.
        done.collect::<Vec<_>>().into_iter().collect()
    }

    fn memory_of(process: &EngineProcess, question: Question) -> Result<(), ExecuteError> {
        let gone = || ExecuteError::Device("the engine process is being replaced".to_owned());
        let (sender, answer) = flume::bounded(1);
        let line = process.line().ok_or_else(gone)?;
        line.ask(question, move |answer| drop(sender.send(answer))).map_err(|_| gone())?;
        drop(line);
        match answer.recv() {
            Ok(Answer::Memory(done)) => done,
            _ => Err(gone()),
        }
    }
}

impl ExecutorFactory for LinkedExecutors {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn release_kv_cache(&self) -> Result<(), ExecuteError> {
        self.memory(&Question::ReleaseKvCache)
    }

    fn restore_kv_cache(&self) -> Result<(), ExecuteError> {
        self.memory(&Question::RestoreKvCache)
    }

    fn create(&self, _epoch: Epoch) -> Result<Box<dyn ModelExecutor>, ExecuteError> {
        Err(ExecuteError::Device("the engine process has the model".to_owned()))
    }
}

/// The grammars of an engine process.
#[derive(Debug)]
pub(crate) struct LinkedGrammars;

impl GrammarCompiler for LinkedGrammars {
    fn compile(&self, _output: &StructuredOutput) -> Result<(), GrammarError> {
        Err(GrammarError::System("the engine process has the grammars".to_owned()))
    }
}
