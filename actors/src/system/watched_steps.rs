//! The steps that observers outside the engine see. They are kept only while an observer watches.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::Mutex;

use crate::logic::{observe::Timelines, scheduler::output::SchedulerOutput};

/// Largest number of steps between two looks. A look is due long before.
const MAX_STEPS: usize = 2_048;

/// The steps since the last look, and the timelines of the requests in earlier steps.
#[derive(Debug, Default)]
pub(crate) struct WatchedSteps {
    is_watched: AtomicBool,
    steps: Mutex<VecDeque<Arc<SchedulerOutput>>>,
    timelines: Mutex<Timelines>,
}

impl WatchedSteps {
    /// Keeps a step that goes to the worker, if an observer watches.
    pub(crate) fn note(&self, step: &Arc<SchedulerOutput>) {
        if !self.is_watched.load(Ordering::Relaxed) {
            return;
        }
        let mut steps = self.steps.lock();
        if steps.len() == MAX_STEPS {
            steps.pop_front();
        }
        steps.push_back(Arc::clone(step));
    }

    /// Sets whether steps are kept from now on. Without an observer, kept steps are forgotten.
    pub(crate) fn set_watched(&self, is_watched: bool) {
        self.is_watched.store(is_watched, Ordering::Relaxed);
        if !is_watched {
            self.steps.lock().clear();
            *self.timelines.lock() = Timelines::default();
        }
    }

    /// Returns the timelines of all requests, with the steps since the last look.
    pub(crate) fn timelines(&self) -> Timelines {
        // The scheduler must not wait for an observer, so the steps' lock is released at once.
        let steps = std::mem::take(&mut *self.steps.lock());
        let mut timelines = self.timelines.lock();
        steps.iter().for_each(|step| timelines.record(step));
        timelines.clone()
    }
}
