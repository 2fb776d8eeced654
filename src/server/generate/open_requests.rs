//! The engine's work for each open answer.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::api::{RequestId, Tenant};

/// All open answers. Clones share it.
#[derive(Debug, Clone, Default)]
pub(in crate::server) struct OpenRequests {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    next: u64,
    /// Keyed by number, because clients choose names, and may choose the same ones.
    open: BTreeMap<u64, Open>,
}

#[derive(Debug)]
struct Open {
    names: Vec<String>,
    /// The tenant that sent it, where there are keys.
    owner: Option<Tenant>,
    work: Work,
}

/// A selection of answers.
#[derive(Debug, Clone, Copy)]
pub(in crate::server) enum Names<'a> {
    Any,
    OneOf(&'a BTreeSet<&'a str>),
}

/// The engine's work for one answer.
#[derive(Debug, Clone)]
pub(in crate::server) enum Work {
    /// One request for each choice.
    Requests(Vec<RequestId>),
    /// The whole answer, whose requests change: beam searches, and lists of prompts that are pooled
    /// a part at a time.
    Whole(CancellationToken),
}

/// Keeps an answer's entry until it is dropped.
#[derive(Debug)]
pub(in crate::server) struct Registration {
    number: u64,
    table: OpenRequests,
}

impl OpenRequests {
    /// Enters an answer under its own id and its client's name for it.
    pub(in crate::server) fn enter(
        &self,
        names: &[&str],
        owner: Option<Tenant>,
        work: Work,
    ) -> Registration {
        let mut inner = self.inner.lock();
        let number = inner.next;
        inner.next += 1;
        let names = names.iter().map(|&name| name.to_owned()).collect();
        inner.open.insert(number, Open { names, owner, work });
        Registration { number, table: self.clone() }
    }

    /// Returns the work for the answers of these names. With an owner, only that of its own
    /// answers.
    pub(in crate::server) fn find(&self, names: Names<'_>, owner: Option<Tenant>) -> Vec<Work> {
        let is_meant = |open: &&Open| match names {
            Names::Any => true,
            Names::OneOf(names) => open.names.iter().any(|name| names.contains(name.as_str())),
        };
        let is_own = |open: &&Open| owner.is_none() || open.owner == owner;
        let inner = self.inner.lock();
        let found = inner.open.values().filter(is_own).filter(is_meant);
        found.map(|open| open.work.clone()).collect()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.table.inner.lock().open.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(found: Vec<Work>) -> Vec<RequestId> {
        let found = found.into_iter().map(|work| match work {
            Work::Requests(requests) => requests,
            Work::Whole(_) => Vec::new(),
        });
        found.flatten().collect()
    }

    #[test]
    fn an_owner_finds_its_own_alone_though_names_are_the_same() {
        let table = OpenRequests::default();
        let enter = |owner, id| {
            table.enter(&["mine"], Some(Tenant(owner)), Work::Requests(vec![RequestId(id)]))
        };
        let _both = [enter(0, 1), enter(1, 2)];
        let names = BTreeSet::from(["mine"]);
        for names in [Names::OneOf(&names), Names::Any] {
            assert_eq!(ids(table.find(names, Some(Tenant(0)))), [RequestId(1)]);
            assert_eq!(ids(table.find(names, Some(Tenant(1)))), [RequestId(2)]);
            assert_eq!(ids(table.find(names, Some(Tenant(2)))), []);
            assert_eq!(ids(table.find(names, None)), [RequestId(1), RequestId(2)]);
        }
    }

    #[test]
    fn an_answer_is_found_by_its_id_and_by_its_clients_name_while_it_is_open() {
        let table = OpenRequests::default();
        let requests = |ids: &[u64]| Work::Requests(ids.iter().copied().map(RequestId).collect());
        let first = table.enter(&["cmpl-mine", "mine"], None, requests(&[1, 2]));
        let _second = table.enter(&["chatcmpl-mine", "mine"], None, requests(&[3]));
        let find = |id: &str| ids(table.find(Names::OneOf(&BTreeSet::from([id])), None));
        assert_eq!(find("mine"), [RequestId(1), RequestId(2), RequestId(3)]);
        assert_eq!(find("cmpl-mine"), [RequestId(1), RequestId(2)]);
        assert_eq!(find("cmpl"), []);
        drop(first);
        assert_eq!(find("mine"), [RequestId(3)]);
    }
}
