//! Which engine has which request: new requests get one, and those of an engine that has ended, or
//! that has to be empty, go on in others. With one engine there is nothing to decide.

use std::{collections::BTreeMap, sync::Arc};

use super::store::LedgerStore;
use crate::{
    logic::{
        ledger::{GroundState, Ledger, LedgerObserver},
        load_balancer::{Candidate, LoadBalancer},
        request::{
            EngineRequest,
            ids::{EngineIndex, RequestId},
        },
    },
    system::engines::Engines,
};

/// New requests by the engine that gets them.
pub(super) type Placed = BTreeMap<EngineIndex, Vec<Arc<EngineRequest>>>;

/// Returns the engines that may get requests, with their loads.
fn candidates(engines: &Engines, state: &GroundState) -> Vec<Candidate> {
    let open = engines.all().filter(|process| process.is_serving() && !process.is_draining());
    let candidate = |engine| Candidate { engine, num_requests: state.num_live_of(engine) };
    open.map(|process| candidate(process.engine())).collect()
}

/// Chooses engines for new requests. Where no engine may get them, they wait for the process of one
/// that is not drained.
pub(super) fn place<O: LedgerObserver>(
    new: Vec<Arc<EngineRequest>>,
    engines: &Engines,
    balancer: &mut LoadBalancer,
    ledger: &mut Ledger<O>,
) -> Placed {
    let mut candidates = candidates(engines, ledger.state());
    // They count for the first engine by now.
    for candidate in &mut candidates {
        if candidate.engine == EngineIndex::default() {
            candidate.num_requests = candidate.num_requests.saturating_sub(new.len());
        }
    }
    let starts = engines.all().find(|process| !process.is_draining());
    let starts = starts.map(|process| process.engine()).unwrap_or_default();
    let mut placed = Placed::new();
    for request in new {
        let engine = balancer.give(&request, &mut candidates).unwrap_or(starts);
        ledger.assign(vec![request.id], engine);
        placed.entry(engine).or_default().push(request);
    }
    placed
}

/// Returns the engines whose requests have to go on in others.
fn engines_to_leave(engines: &Engines) -> Vec<EngineIndex> {
    let leave = engines.all().filter(|process| process.lets_requests_go());
    leave.map(|process| process.engine()).collect()
}

/// The requests that were moved, by the engines that have them now and before.
#[derive(Debug, Default)]
pub(super) struct Moved {
    pub(super) to: BTreeMap<EngineIndex, usize>,
    /// Those of an engine that serves, which must stop them.
    pub(super) from: BTreeMap<EngineIndex, Vec<RequestId>>,
}

/// Gives the live requests of engines that cannot or must not go on with them to others. They stay
/// where they are while no other engine may get them.
pub(super) fn move_requests(
    engines: &Engines,
    balancer: &mut LoadBalancer,
    store: &LedgerStore,
) -> Moved {
    let mut moved = Moved::default();
    let left = engines_to_leave(engines);
    if left.is_empty() {
        return moved;
    }
    let mut ledger = store.lock();
    let mut candidates = candidates(engines, ledger.state());
    for from in left {
        let serves = engines.get(from).is_some_and(|process| process.is_serving());
        if !serves {
            balancer.forget(from);
        }
        let requests: Vec<_> =
            ledger.state().live_of(from).map(|entry| Arc::clone(entry.request())).collect();
        for request in requests {
            let Some(to) = balancer.give(&request, &mut candidates) else { return moved };
            ledger.assign(vec![request.id], to);
            *moved.to.entry(to).or_default() += 1;
            if serves {
                moved.from.entry(from).or_default().push(request.id);
            }
        }
    }
    moved
}
