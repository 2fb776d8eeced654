//! The loads of adapters: those that run, and the results that the scheduler has not taken.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;

use crate::logic::request::{failure::Failure, ids::Micros, lora::LoraRequest};

/// Most threads that load at once, including threads that hang.
const MAX_THREADS: usize = 4;
/// Longest time of a load, in microseconds: a minute. Later, its requests fail.
const LOAD_LIMIT: Micros = 60_000_000;

/// Number of a load, unique in its system.
pub(crate) type LoadId = u64;

/// The loads of one system. They outlive every scheduler.
#[derive(Debug, Default)]
pub(crate) struct AdapterLoads(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    loads: BTreeMap<Arc<LoraRequest>, Load>,
    next: LoadId,
    num_threads: usize,
}

/// One load.
#[derive(Debug)]
struct Load {
    id: LoadId,
    /// The time when it began.
    since: Micros,
    /// Its result, unless it runs.
    result: Option<Result<(), Failure>>,
}

impl AdapterLoads {
    /// Removes and returns the failure of an adapter's load, if it has failed or takes too long.
    /// The result of a load that has succeeded is removed, too.
    pub(crate) fn take_failure(&self, adapter: &LoraRequest, now: Micros) -> Option<Failure> {
        let mut state = self.0.lock();
        let load = state.loads.get(adapter)?;
        let is_late = now.saturating_sub(load.since) >= LOAD_LIMIT;
        if load.result.is_none() && !is_late {
            return None;
        }
        match state.loads.remove(adapter)?.result {
            Some(result) => result.err(),
            None => {
                let why = format!("adapter '{}' takes too long to load", adapter.name);
                Some(Failure::Adapter(why))
            }
        }
    }

    /// Registers a load, unless the adapter is being loaded, or too many threads load others.
    pub(crate) fn begin(&self, adapter: &Arc<LoraRequest>, now: Micros) -> Option<LoadId> {
        let mut state = self.0.lock();
        if state.loads.contains_key(adapter) || state.num_threads >= MAX_THREADS {
            return None;
        }
        let id = state.next;
        state.next += 1;
        state.num_threads += 1;
        state.loads.insert(Arc::clone(adapter), Load { id, since: now, result: None });
        Some(id)
    }

    /// Records the result of a load whose thread ends. A load that took too long has none.
    pub(crate) fn end(&self, adapter: &LoraRequest, id: LoadId, result: Result<(), Failure>) {
        let mut state = self.0.lock();
        state.num_threads -= 1;
        if let Some(load) = state.loads.get_mut(adapter).filter(|load| load.id == id) {
            load.result = Some(result);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adapter(name: &str) -> Arc<LoraRequest> {
        Arc::new(LoraRequest::for_test(name))
    }

    #[test]
    fn one_load_of_an_adapter_runs_at_a_time() {
        let loads = AdapterLoads::default();
        let id = loads.begin(&adapter("a"), 0).unwrap();
        assert_eq!(loads.begin(&adapter("a"), 0), None);
        assert_eq!(loads.take_failure(&adapter("a"), 5), None);
        let failure = Failure::Adapter("broken".to_owned());
        loads.end(&adapter("a"), id, Err(failure.clone()));
        assert_eq!(loads.take_failure(&adapter("a"), 5), Some(failure));
        assert!(loads.begin(&adapter("a"), 5).is_some());
    }

    #[test]
    fn a_load_that_hangs_fails_and_keeps_its_thread() {
        let loads = AdapterLoads::default();
        let ids: Vec<_> =
            ["a", "b", "c", "d"].map(|name| loads.begin(&adapter(name), 0).unwrap()).into();
        assert_eq!(loads.begin(&adapter("e"), 0), None, "no thread is left");
        assert!(loads.take_failure(&adapter("a"), LOAD_LIMIT).is_some());
        assert_eq!(loads.begin(&adapter("a"), LOAD_LIMIT), None);
        loads.end(&adapter("a"), ids[0], Ok(()));
        assert!(loads.begin(&adapter("a"), LOAD_LIMIT).is_some());
    }
}
