//! The observer of one process's actors. The tasks of a dead process may run for a moment, which
//! nothing sees.

use std::{sync::Arc, time::Duration};

use super::life::Life;
use crate::{
    fault::{Observed, Observer},
    logic::request::structured_output::StructuredOutput,
    sim::{checker::Checker, grammar},
};

/// Reports the events of one process to the checker.
pub(super) struct ProcessObserver {
    checker: Arc<Checker>,
    engine: usize,
    process: u32,
    life: Arc<Life>,
}

impl ProcessObserver {
    pub(super) fn new(checker: Arc<Checker>, engine: usize, process: u32, life: Arc<Life>) -> Self {
        Self { checker, engine, process, life }
    }

    /// Records that the actors of the process are about to start.
    pub(super) fn begin(&self) {
        self.life.begin();
        self.checker.begin_process(self.engine, self.process);
    }
}

impl Observer for ProcessObserver {
    fn observe(&self, what: &Observed<'_>) {
        if !self.life.is_dead() {
            self.checker.observe_process(self.engine, self.process, what);
        }
    }

    fn compile_delay(&self, format: &StructuredOutput) -> Duration {
        grammar::delay(format)
    }

    fn encode_delay(&self) -> Duration {
        self.checker.encode_delay_of(self.engine)
    }

    fn step_delay(&self) -> Duration {
        self.checker.step_delay_of(self.engine)
    }
}
