//! The front's stand-ins for the parts of an engine process: the executors with the KV cache, and
//! the grammars.

use std::sync::Arc;

use super::engine_process::EngineProcess;
use crate::{
    link::frames::{Answer, Question},
    logic::request::{ids::Epoch, structured_output::StructuredOutput},
    ports::{
        ExecuteError, ExecutorFactory, GrammarCompiler, GrammarError, ModelExecutor, ModelInfo,
    },
};

/// The executors of an engine process.
#[derive(Debug)]
pub(crate) struct LinkedExecutors {
    info: ModelInfo,
    process: Arc<EngineProcess>,
}

impl LinkedExecutors {
    /// Returns the executors of a model that an engine process has loaded.
    pub(crate) fn new(info: ModelInfo, process: Arc<EngineProcess>) -> Self {
        Self { info, process }
    }

    /// Asks for work on the KV cache, and waits for its end.
    fn memory(&self, question: Question) -> Result<(), ExecuteError> {
        let gone = || ExecuteError::Device("the engine process is being replaced".to_owned());
        let (sender, answer) = flume::bounded(1);
        let line = self.process.line().ok_or_else(gone)?;
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
        self.memory(Question::ReleaseKvCache)
    }

    fn restore_kv_cache(&self) -> Result<(), ExecuteError> {
        self.memory(Question::RestoreKvCache)
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
