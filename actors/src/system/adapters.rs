//! The loads of adapters: those that run, and the failures that the scheduler has not taken.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;

use crate::logic::request::{failure::Failure, ids::Micros, lora::LoraRequest};

/// Most threads that load at once, apart from threads that hang.
const MAX_THREADS: usize = 4;
/// Most threads that hang. With more of them, a further one takes a place among `MAX_THREADS`.
const MAX_ABANDONED: usize = 8;
/// Longest time of a load, in microseconds: a minute. Later, its requests fail, and its thread is
/// left behind.
const LOAD_LIMIT: Micros = 60_000_000;
/// Time for which a failure is kept, in microseconds. Requests that wait for the adapter ask for it
/// within this time. A failure that no request takes must not fail a later request.
const FAILURE_LIMIT: Micros = 10_000_000;
/// Most failures that are kept. The oldest makes room.
const MAX_FAILURES: usize = 64;

/// Number of a load, unique in its system.
pub(crate) type LoadId = u64;

/// The loads of one system. They outlive every scheduler.
#[derive(Debug, Default)]
pub(crate) struct AdapterLoads(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The loads whose time has not passed, each with a thread.
    running: BTreeMap<Arc<LoraRequest>, Running>,
    /// The folders of loads whose time has passed, and whose threads have not ended.
    abandoned: BTreeMap<LoadId, String>,
    failures: BTreeMap<Arc<LoraRequest>, Failed>,
    next: LoadId,
}

/// A load that runs.
#[derive(Debug)]
struct Running {
    id: LoadId,
    /// The time when it began.
    since: Micros,
}

/// A load that has failed.
#[derive(Debug)]
struct Failed {
    failure: Failure,
    /// The time when it failed.
    at: Micros,
}

/// The answer to the request for a load.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Start {
    /// The caller starts a thread for the load.
    Load(LoadId),
    /// The adapter is being loaded, or all threads load others.
    Wait,
    /// The load would hang.
    Refused(Failure),
}

impl AdapterLoads {
    /// Removes and returns the failure of an adapter's load, if it has failed or takes too long.
    pub(crate) fn take_failure(&self, adapter: &LoraRequest, now: Micros) -> Option<Failure> {
        let mut state = self.0.lock();
        state.sweep(now);
        state.failures.remove(adapter).map(|failed| failed.failure)
    }

    /// Registers a load. It is refused if an earlier one from the same folder hangs, or if too many
    /// loads hang.
    pub(crate) fn begin(&self, adapter: &Arc<LoraRequest>, now: Micros) -> Start {
        let mut state = self.0.lock();
        state.sweep(now);
        if state.running.contains_key(adapter) {
            return Start::Wait;
        }
        let LoraRequest { name, path, .. } = &**adapter;
        if state.abandoned.values().any(|hanging| hanging == path) {
            let why = format!("adapter '{name}': an earlier load from {path} still hangs");
            return Start::Refused(Failure::Adapter(why));
        }
        if state.abandoned.len() >= MAX_THREADS + MAX_ABANDONED {
            let count = state.abandoned.len();
            let why = format!("adapter '{name}' is not loaded, because {count} loads hang");
            return Start::Refused(Failure::Adapter(why));
        }
        let surplus = state.abandoned.len().saturating_sub(MAX_ABANDONED);
        if state.running.len() + surplus >= MAX_THREADS {
            return Start::Wait;
        }
        let id = state.next;
        state.next += 1;
        state.running.insert(Arc::clone(adapter), Running { id, since: now });
        Start::Load(id)
    }

    /// Records the result of a load whose thread ends. A load that was left behind has none.
    pub(crate) fn end(
        &self,
        adapter: &Arc<LoraRequest>,
        id: LoadId,
        result: Result<(), Failure>,
        now: Micros,
    ) {
        let mut state = self.0.lock();
        if state.abandoned.remove(&id).is_some() {
            return;
        }
        state.running.remove(adapter);
        if let Err(failure) = result {
            state.fail(Arc::clone(adapter), failure, now);
        }
        state.sweep(now);
    }

    /// Gives up loads whose time has passed, and forgets failures that no request has taken.
    pub(crate) fn sweep(&self, now: Micros) {
        self.0.lock().sweep(now);
    }
}

impl State {
    fn sweep(&mut self, now: Micros) {
        let is_late = |load: &Running| now.saturating_sub(load.since) >= LOAD_LIMIT;
        let late: Vec<_> = self.running.extract_if(.., |_, load| is_late(load)).collect();
        for (adapter, load) in late {
            let LoraRequest { name, path, .. } = &*adapter;
            tracing::error!(name, path, "the load of an adapter hangs; its thread is left behind");
            let why = format!("adapter '{name}' takes too long to load");
            self.abandoned.insert(load.id, path.clone());
            self.fail(adapter, Failure::Adapter(why), now);
        }
        self.failures.retain(|_, failed| now.saturating_sub(failed.at) < FAILURE_LIMIT);
    }

    fn fail(&mut self, adapter: Arc<LoraRequest>, failure: Failure, now: Micros) {
        self.failures.insert(adapter, Failed { failure, at: now });
        while self.failures.len() > MAX_FAILURES {
            let oldest = self.failures.iter().min_by_key(|(_, failed)| failed.at);
            let Some(oldest) = oldest.map(|(adapter, _)| Arc::clone(adapter)) else { return };
            self.failures.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adapter(name: &str) -> Arc<LoraRequest> {
        Arc::new(LoraRequest::for_test(name))
    }

    fn start(loads: &AdapterLoads, name: &str, now: Micros) -> LoadId {
        match loads.begin(&adapter(name), now) {
            Start::Load(id) => id,
            other => unreachable!("{name}: {other:?}"),
        }
    }

    fn broken() -> Failure {
        Failure::Adapter("broken".to_owned())
    }

    /// Returns the numbers of running loads, of threads left behind, and of failures.
    fn sizes(loads: &AdapterLoads) -> [usize; 3] {
        let state = loads.0.lock();
        [state.running.len(), state.abandoned.len(), state.failures.len()]
    }

    #[test]
    fn one_load_of_an_adapter_runs_at_a_time() {
        let loads = AdapterLoads::default();
        let id = start(&loads, "a", 0);
        assert_eq!(loads.begin(&adapter("a"), 0), Start::Wait);
        assert_eq!(loads.take_failure(&adapter("a"), 5), None);
        loads.end(&adapter("a"), id, Err(broken()), 5);
        assert_eq!(loads.take_failure(&adapter("a"), 5), Some(broken()));
        start(&loads, "a", 5);
    }

    #[test]
    fn a_load_that_hangs_fails_its_adapter_alone_and_its_thread_is_replaced() {
        let loads = AdapterLoads::default();
        let ids = ["a", "b", "c", "d"].map(|name| start(&loads, name, 0));
        assert_eq!(loads.begin(&adapter("e"), 1), Start::Wait, "no thread is free");
        let other = start(&loads, "e", LOAD_LIMIT);
        for name in ["a", "b", "c", "d"] {
            assert!(loads.take_failure(&adapter(name), LOAD_LIMIT).is_some(), "{name}");
            let again = loads.begin(&adapter(name), LOAD_LIMIT);
            assert!(matches!(again, Start::Refused(_)), "{name} would hang again: {again:?}");
        }
        loads.end(&adapter("e"), other, Ok(()), LOAD_LIMIT + 1);
        assert_eq!(loads.take_failure(&adapter("e"), LOAD_LIMIT + 1), None);
        // The threads of the first loads end late. Their results count no longer.
        for (name, id) in ["a", "b", "c", "d"].into_iter().zip(ids) {
            loads.end(&adapter(name), id, Err(broken()), LOAD_LIMIT + 2);
        }
        assert_eq!(sizes(&loads), [0, 0, 0]);
        start(&loads, "a", LOAD_LIMIT + 2);
    }

    #[test]
    fn threads_that_hang_are_bounded() {
        let loads = AdapterLoads::default();
        let (mut now, mut started) = (0, 0);
        for number in 0..40 {
            match loads.begin(&adapter(&format!("{number}")), now) {
                Start::Load(_) => started += 1,
                Start::Wait => now += LOAD_LIMIT,
                Start::Refused(_) => assert_eq!(started, MAX_THREADS + MAX_ABANDONED),
            }
        }
        assert_eq!(started, MAX_THREADS + MAX_ABANDONED);
        assert!(matches!(loads.begin(&adapter("last"), now), Start::Refused(_)));
    }

    #[test]
    fn failures_that_no_request_takes_leave() {
        let loads = AdapterLoads::default();
        for number in 0..2 * MAX_FAILURES {
            let name = format!("{number}");
            let id = start(&loads, &name, 0);
            loads.end(&adapter(&name), id, Err(broken()), 0);
        }
        assert_eq!(sizes(&loads), [0, 0, MAX_FAILURES]);
        loads.sweep(FAILURE_LIMIT);
        assert_eq!(sizes(&loads), [0, 0, 0]);
        let id = start(&loads, "good", FAILURE_LIMIT);
        loads.end(&adapter("good"), id, Ok(()), FAILURE_LIMIT);
        assert_eq!(sizes(&loads), [0, 0, 0], "a success is not kept");
    }
}
