//! What of the engine's work belongs to which answer, while that is open.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use playhouse_actors::logic::ids::RequestId;
use tokio_util::sync::CancellationToken;

/// All answers in the making. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct OpenRequests {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    next: u64,
    /// By number: clients choose names, and may choose the same.
    open: BTreeMap<u64, (Vec<String>, Work)>,
}

/// What is done for one answer.
#[derive(Debug, Clone)]
pub(super) enum Work {
    /// Requests, one a choice.
    Requests(Vec<RequestId>),
    /// Beam searches, whose requests change with every step.
    Searches(CancellationToken),
}

/// Keeps an answer's entry for as long as it lives.
#[derive(Debug)]
pub(super) struct Registration {
    number: u64,
    table: OpenRequests,
}

impl OpenRequests {
    /// Enters an answer under its own id and its client's name for it.
    pub(super) fn enter(&self, names: &[&str], work: Work) -> Registration {
        let mut inner = self.inner.lock();
        let number = inner.next;
        inner.next += 1;
        let names = names.iter().map(|&name| name.to_owned()).collect();
        inner.open.insert(number, (names, work));
        Registration { number, table: self.clone() }
    }

    /// The work for the answers that go by one of `ids`.
    pub(super) fn find(&self, ids: &[String]) -> Vec<Work> {
        let inner = self.inner.lock();
        let found = inner.open.values().filter(|(names, _)| names.iter().any(|n| ids.contains(n)));
        found.map(|(_, work)| work).cloned().collect()
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

    #[test]
    fn an_answer_is_found_by_its_id_and_by_its_clients_name_while_it_is_open() {
        let table = OpenRequests::default();
        let requests = |ids: &[u64]| Work::Requests(ids.iter().copied().map(RequestId).collect());
        let first = table.enter(&["cmpl-mine", "mine"], requests(&[1, 2]));
        let _second = table.enter(&["chatcmpl-mine", "mine"], requests(&[3]));
        let find = |id: &str| {
            let found = table.find(&[id.to_owned()]).into_iter().map(|work| match work {
                Work::Requests(requests) => requests,
                Work::Searches(_) => Vec::new(),
            });
            found.flatten().collect::<Vec<_>>()
        };
        assert_eq!(find("mine"), [RequestId(1), RequestId(2), RequestId(3)]);
        assert_eq!(find("cmpl-mine"), [RequestId(1), RequestId(2)]);
        assert_eq!(find("cmpl"), []);
        drop(first);
        assert_eq!(find("mine"), [RequestId(3)]);
    }
}
