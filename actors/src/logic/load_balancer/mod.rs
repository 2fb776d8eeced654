//! Decides which engine gets a request, where one front has several. An engine that has computed
//! the beginning of the prompt is preferred, because its KV cache may still have it. It is passed
//! over when it has many more requests than the one with the fewest.

mod prefixes;
#[cfg(test)]
mod tests;

use self::prefixes::{Prefixes, keys};
use super::request::{EngineRequest, ids::EngineIndex};

/// Number of requests that an engine may have more than the one with the fewest, to get a request
/// whose beginning it has computed.
pub const LEAD_MAX: usize = 4;

/// An engine that may get requests: its core runs, and no operator drains it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// The engine.
    pub engine: EngineIndex,
    /// Number of live requests that it has.
    pub num_requests: usize,
}

/// The beginnings of prompts that each engine has computed lately. They are derived from the
/// requests given, so a loss costs time alone.
#[derive(Debug, Default)]
pub struct LoadBalancer {
    /// By the engines' indices.
    prefixes: Vec<Prefixes>,
}

impl LoadBalancer {
    /// Returns a load balancer that has given no request.
    #[must_use]
    pub fn new(num_engines: usize) -> Self {
        Self { prefixes: (0..num_engines).map(|_| Prefixes::default()).collect() }
    }

    /// Chooses the engine for a request, and counts the request there. An engine with more than
    /// [`LEAD_MAX`] requests above the fewest is passed over. Of the others, the one with the
    /// longest shared prefix gets it. Ties go to fewer requests, and then to the first. Returns
    /// `None` without candidates.
    pub fn give(
        &mut self,
        request: &EngineRequest,
        candidates: &mut [Candidate],
    ) -> Option<EngineIndex> {
        let fewest = candidates.iter().map(|candidate| candidate.num_requests).min()?;
        let keys = keys(request);
        let prefixes = &self.prefixes;
        let shared = |engine: EngineIndex| {
            prefixes.get(engine.0).map_or(0, |prefixes| prefixes.num_shared(&keys))
        };
        let near = candidates.iter_mut();
        let near = near.filter(|candidate| candidate.num_requests <= fewest + LEAD_MAX);
        let chosen = near.min_by_key(|candidate| {
            let shared = std::cmp::Reverse(shared(candidate.engine));
            (shared, candidate.num_requests, candidate.engine)
        })?;
        chosen.num_requests += 1;
        let engine = chosen.engine;
        if let Some(prefixes) = self.prefixes.get_mut(engine.0) {
            prefixes.add(&keys);
        }
        Some(engine)
    }

    /// Forgets the prefixes of an engine, whose KV cache is lost.
    pub fn forget(&mut self, engine: EngineIndex) {
        if let Some(prefixes) = self.prefixes.get_mut(engine.0) {
            *prefixes = Prefixes::default();
        }
    }
}
