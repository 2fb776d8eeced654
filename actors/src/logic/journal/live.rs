//! The content of a journal: the fold of its records.

use std::{collections::BTreeMap, sync::Arc};

use super::{Acceptance, Fingerprint, Record, Trial, trial::condemn};
use crate::logic::{
    planted::{Bug, planted},
    request::{EngineRequest, ids::RequestId},
};

/// The answers that clients may still ask for, with their requests.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Live {
    pub(super) fingerprint: Fingerprint,
    pub(super) next_request: RequestId,
    pub(super) answers: BTreeMap<Arc<str>, Held>,
    /// The answer of each request.
    pub(super) owners: BTreeMap<RequestId, Arc<str>>,
    pub(super) num_bytes: usize,
}

/// One answer, as its records made it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Held {
    data: Arc<[u8]>,
    pub(super) acceptances: Vec<Acceptance>,
    /// The requests that ended, each with whether the end can be repeated.
    pub(super) ends: BTreeMap<RequestId, bool>,
    /// Whether the server has the whole answer, so that its requests are not needed.
    pub(super) is_made: bool,
    trial: Trial,
    num_bytes: usize,
}

/// One answer, for the server.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// Its name.
    pub name: Arc<str>,
    /// The server's data about it.
    pub data: Arc<[u8]>,
    /// Its requests, in order of acceptance.
    pub requests: Vec<Request>,
    /// The processes that died while it was computed.
    pub trial: Trial,
}

/// A request of an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The request.
    pub request: Arc<EngineRequest>,
    /// `None` if it had not ended. Otherwise whether another computation would end equally.
    pub end: Option<bool>,
}

impl Live {
    /// Takes a record, of `num_bytes` bytes in a segment, into the content.
    pub fn apply(&mut self, record: &Record, num_bytes: usize) {
        match record {
            Record::Began { fingerprint, next_request } => {
                self.fingerprint = fingerprint.clone();
                self.next_request = self.next_request.max(*next_request);
            }
            Record::Accepted(acceptance) => self.accept(acceptance, num_bytes),
            Record::Ended { request, is_reproducible } => {
                if planted(Bug::LoseEnd) {
                    return;
                }
                let Some(name) = self.owners.get(request) else { return };
                let Some(held) = self.answers.get_mut(name) else { return };
                held.ends.insert(*request, *is_reproducible);
                held.num_bytes += num_bytes;
                self.num_bytes += num_bytes;
            }
            Record::Answer { name, data, needs_requests } => {
                let before = self.take(name);
                let kept = before.filter(|_| *needs_requests);
                let mut held = kept.unwrap_or_else(|| Held {
                    data: Arc::clone(data),
                    acceptances: Vec::new(),
                    ends: BTreeMap::new(),
                    is_made: false,
                    trial: Trial::default(),
                    num_bytes: 0,
                });
                held.data = Arc::clone(data);
                held.is_made = !needs_requests;
                held.num_bytes += num_bytes;
                self.put(name, held);
            }
            Record::Dropped { name } => {
                self.take(name);
            }
            Record::Tried { names } => {
                for name in names {
                    if let Some(held) = self.answers.get_mut(name) {
                        held.trial.is_running = true;
                    }
                }
            }
            Record::Tries { name, trial } => {
                if let Some(held) = self.answers.get_mut(name) {
                    held.trial = *trial;
                    held.num_bytes += num_bytes;
                    self.num_bytes += num_bytes;
                }
            }
            Record::Closed => {
                self.answers.values_mut().for_each(|held| held.trial.is_running = false);
            }
        }
    }

    /// Counts the death of the process that wrote last against the answers that it computed. If it
    /// was closed before, it computed none.
    pub fn count_death(&mut self) {
        let computed = self.answers.values_mut().filter(|held| held.is_open());
        condemn(computed.map(|held| &mut held.trial));
        self.answers.values_mut().for_each(|held| held.trial.is_running = false);
    }

    /// Adds requests to their answer. Requests that are accepted once more change nothing.
    fn accept(&mut self, acceptance: &Acceptance, num_bytes: usize) {
        let Some(name) = acceptance.answer_id() else { return };
        let ids = acceptance.ids();
        if ids.iter().any(|id| self.owners.contains_key(id)) {
            return;
        }
        let last = ids.iter().max().map_or(0, |id| id.0.saturating_add(1));
        if !planted(Bug::ReuseRequestIds) {
            self.next_request = self.next_request.max(RequestId(last));
        }
        let Some(held) = self.answers.get_mut(name) else { return };
        held.acceptances.push(acceptance.clone());
        held.trial.is_running = true;
        held.num_bytes += num_bytes;
        self.num_bytes += num_bytes;
        self.owners.extend(ids.into_iter().map(|id| (id, Arc::clone(name))));
    }

    pub(super) fn put(&mut self, name: &Arc<str>, held: Held) {
        self.num_bytes += held.num_bytes;
        let ids = held.acceptances.iter().flat_map(Acceptance::ids);
        self.owners.extend(ids.map(|id| (id, Arc::clone(name))));
        self.answers.insert(Arc::clone(name), held);
    }

    fn take(&mut self, name: &Arc<str>) -> Option<Held> {
        let held = self.answers.remove(name)?;
        self.num_bytes -= held.num_bytes;
        for id in held.acceptances.iter().flat_map(Acceptance::ids) {
            self.owners.remove(&id);
        }
        Some(held)
    }

    /// Returns the records whose fold is this content, for a new segment of a process with this
    /// fingerprint.
    pub fn snapshot(&self, fingerprint: &Fingerprint) -> impl Iterator<Item = Record> {
        let (fingerprint, next_request) = (fingerprint.clone(), self.next_request);
        let began = Record::Began { fingerprint, next_request };
        let answers = self.answers.iter().flat_map(|(name, held)| held.records(name));
        [began].into_iter().chain(answers)
    }

    /// Returns the answers. The times of their requests count from `zero`, in microseconds since
    /// 1970.
    #[must_use]
    pub fn answers(&self, zero: u64) -> Vec<Answer> {
        self.answers.iter().map(|(name, held)| held.answer(name, zero)).collect()
    }

    /// Returns the facts about the process that wrote last.
    #[must_use]
    pub fn fingerprint(&self) -> &Fingerprint {
        &self.fingerprint
    }

    /// Returns the lowest id that no request has had.
    #[must_use]
    pub fn next_request(&self) -> RequestId {
        self.next_request
    }

    /// Returns the number of bytes that the records of the content take.
    #[must_use]
    pub fn num_bytes(&self) -> usize {
        self.num_bytes
    }

    /// Returns the number of answers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.answers.len()
    }

    /// Returns whether there is no answer.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }
}

impl Held {
    fn records(&self, name: &Arc<str>) -> impl Iterator<Item = Record> {
        let (needs_requests, data) = (!self.is_made, Arc::clone(&self.data));
        let answer = Record::Answer { name: Arc::clone(name), data, needs_requests };
        let acceptances = self.acceptances.iter().filter(|_| !planted(Bug::CompactRequests));
        let acceptances = acceptances.cloned().map(Record::Accepted);
        let end = |(&request, &is_reproducible)| Record::Ended { request, is_reproducible };
        let tries = Record::Tries { name: Arc::clone(name), trial: self.trial };
        // An acceptance says that its answer is computed.
        let is_said =
            self.trial == Trial { is_running: !self.acceptances.is_empty(), ..Trial::default() };
        let tries = (!is_said).then_some(tries);
        [answer].into_iter().chain(acceptances).chain(self.ends.iter().map(end)).chain(tries)
    }

    /// Returns whether requests of it are not computed to their ends.
    fn is_open(&self) -> bool {
        let num_requests: usize =
            self.acceptances.iter().map(|acceptance| acceptance.ids().len()).sum();
        let have_ended = num_requests > 0 && self.ends.len() == num_requests;
        !self.is_made && !have_ended
    }

    fn answer(&self, name: &Arc<str>, zero: u64) -> Answer {
        let requests = self.acceptances.iter().flat_map(|acceptance| acceptance.requests(zero));
        let requests = requests.map(|request| {
            let end = self.ends.get(&request.id).copied();
            Request { request, end }
        });
        let (name, data) = (Arc::clone(name), Arc::clone(&self.data));
        Answer { name, data, requests: requests.collect(), trial: self.trial }
    }
}
