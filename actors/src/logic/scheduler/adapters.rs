//! The adapters of requests. A request waits aside until its adapter is in memory, and until the
//! adapters of the requests before it leave room: at most `max_loras` adapters are in use at once.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Scheduler, aside::Resource, request_state::Status};
use crate::logic::{
    adapter_slots::AdaptersInUse,
    request::{
        ids::{Micros, RequestId},
        lora::LoraRequest,
    },
};

/// A request that waits aside for so long lets no further request join the adapters in use.
const PATIENCE: Micros = 1_000_000;

/// Whether requests for an adapter may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdapterRoom {
    /// They may.
    Free,
    /// They may, beyond every limit: suspects must run, so that other requests can.
    Forced,
    /// The adapters in use are as many as may be.
    None,
}

impl Scheduler {
    /// Returns the adapters of all requests that do not wait aside. They must stay in memory.
    #[must_use]
    pub fn adapters_in_use(&self) -> AdaptersInUse {
        if !self.requests.has_adapters() {
            return AdaptersInUse::new();
        }
        let may_run = |status: &Status| {
            let waits_for_media = matches!(status, Status::WaitingFor(Resource::Encoder(_), _));
            matches!(status, Status::Waiting(_) | Status::Admitting(_) | Status::Running)
                || waits_for_media
        };
        let states = self.requests.live().filter(|state| may_run(&state.status));
        states.filter_map(|state| state.request.lora.clone()).collect()
    }

    /// Returns whether requests for an adapter may leave their places aside, where `in_use` are the
    /// adapters in use.
    #[must_use]
    pub fn adapter_room(&self, adapter: &Arc<LoraRequest>, in_use: &AdaptersInUse) -> AdapterRoom {
        if let Some(cohort) = self.active_cohort() {
            let resource = Resource::Adapter(Arc::clone(adapter));
            let mut waiting = self.queues.aside.waiting_for(&resource);
            return match waiting.any(|request| cohort.contains(&request)) {
                true => AdapterRoom::Forced,
                false => AdapterRoom::None,
            };
        }
        let is_full = in_use.len() >= self.config.max_loras;
        match in_use.contains(adapter) {
            true if is_full && self.an_old_request_lacks_room(in_use) => AdapterRoom::None,
            false if is_full => AdapterRoom::None,
            _ => AdapterRoom::Free,
        }
    }

    /// Returns whether a request has waited aside for long because its adapter is not in use. Then
    /// no other request joins the adapters in use, so that they come to an end.
    fn an_old_request_lacks_room(&self, in_use: &AdaptersInUse) -> bool {
        self.queues.aside.adapters().any(|(adapter, first)| {
            let waited = |arrival: Micros| self.now.saturating_sub(arrival);
            let arrival = first.and_then(|id: RequestId| self.requests.find(id));
            let arrival = arrival.map(|slot| self.requests[slot].request.arrival);
            !in_use.contains(adapter) && arrival.is_some_and(|at| waited(at) >= PATIENCE)
        })
    }

    /// Returns the names of the adapters of running requests, and of those that wait.
    #[must_use]
    pub fn adapter_names(&self) -> AdapterNames {
        let mut names = AdapterNames::default();
        if !self.requests.has_adapters() {
            return names;
        }
        for state in self.requests.live() {
            let Some(adapter) = &state.request.lora else { continue };
            let list = match state.status {
                Status::Running => &mut names.running,
                _ => &mut names.waiting,
            };
            if !list.contains(&adapter.name) {
                list.push(adapter.name.clone());
            }
        }
        names.running.sort();
        names.waiting.sort();
        names
    }
}

/// Names of adapters, each once, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AdapterNames {
    /// Those of running requests.
    pub running: Vec<String>,
    /// Those of requests that wait.
    pub waiting: Vec<String>,
}

impl AdapterNames {
    /// Returns the names of two engines' adapters.
    pub(super) fn and(self, other: Self) -> Self {
        let both = |mut names: Vec<String>, more: Vec<String>| {
            names.extend(more);
            names.sort();
            names.dedup();
            names
        };
        Self {
            running: both(self.running, other.running),
            waiting: both(self.waiting, other.waiting),
        }
    }
}
