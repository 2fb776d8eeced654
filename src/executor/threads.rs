//! The threads that one engine computes on, where it is told how many.

use std::sync::Arc;

use playhouse_actors::{
    logic::{outputs::StepOutput, scheduler_output::SchedulerOutput},
    ports::{ExecuteError, ModelExecutor},
};
use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};

/// `count` threads that belong to one engine.
///
/// # Errors
/// When the system does not give that many.
pub(super) fn pool(count: usize) -> Result<Arc<ThreadPool>, ThreadPoolBuildError> {
    let name = |index| format!("playhouse-compute-{index}");
    ThreadPoolBuilder::new().num_threads(count).thread_name(name).build().map(Arc::new)
}

/// Runs another executor's steps on a pool: whatever a kernel spreads out stays within it.
pub(super) struct PooledExecutor {
    pub(super) executor: Box<dyn ModelExecutor>,
    pub(super) pool: Arc<ThreadPool>,
}

impl ModelExecutor for PooledExecutor {
    fn execute(&mut self, step: &SchedulerOutput) -> Result<StepOutput, ExecuteError> {
        // A panic goes on in the caller, where the worker's thread expects it.
        let Self { executor, pool } = self;
        pool.install(|| executor.execute(step))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    struct CountsThreads(Arc<AtomicUsize>);

    impl ModelExecutor for CountsThreads {
        fn execute(&mut self, _: &SchedulerOutput) -> Result<StepOutput, ExecuteError> {
            self.0.store(rayon::current_num_threads(), Ordering::Relaxed);
            Err(ExecuteError::Device("only counts".to_owned()))
        }
    }

    #[test]
    fn a_step_sees_the_pools_threads_only() {
        let seen = Arc::new(AtomicUsize::new(0));
        let executor = Box::new(CountsThreads(Arc::clone(&seen)));
        let mut pooled = PooledExecutor { executor, pool: pool(3).unwrap() };
        assert!(pooled.execute(&SchedulerOutput::default()).is_err());
        assert_eq!(seen.load(Ordering::Relaxed), 3);
    }
}
