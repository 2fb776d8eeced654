//! Which of the engine's requests belong to which answer, while they are open.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use playhouse_actors::logic::ids::RequestId;

/// All answers in the making. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct OpenRequests {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    next: u64,
    /// By number: clients choose ids, and may choose the same.
    open: BTreeMap<u64, (String, Vec<RequestId>)>,
}

/// Keeps an answer's entry for as long as it lives.
#[derive(Debug)]
pub(super) struct Registration {
    number: u64,
    table: OpenRequests,
}

impl OpenRequests {
    /// Enters an answer.
    pub(super) fn enter(&self, id: &str, requests: Vec<RequestId>) -> Registration {
        let mut inner = self.inner.lock();
        let number = inner.next;
        inner.next += 1;
        inner.open.insert(number, (id.to_owned(), requests));
        Registration { number, table: self.clone() }
    }

    /// The engine's requests of the answers that go by one of `ids`: an answer's own id, or the
    /// part of it that its client chose.
    pub(super) fn find(&self, ids: &[String]) -> Vec<RequestId> {
        let inner = self.inner.lock();
        let named = |own: &str| {
            let chosen = own.split_once('-').map(|(_, chosen)| chosen);
            ids.iter().any(|id| id == own || Some(id.as_str()) == chosen)
        };
        let found = inner.open.values().filter(|(id, _)| named(id));
        found.flat_map(|(_, requests)| requests).copied().collect()
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
        let first = table.enter("cmpl-mine", vec![RequestId(1), RequestId(2)]);
        let _second = table.enter("chatcmpl-mine", vec![RequestId(3)]);
        let find = |id: &str| table.find(&[id.to_owned()]);
        assert_eq!(find("mine"), [RequestId(1), RequestId(2), RequestId(3)]);
        assert_eq!(find("cmpl-mine"), [RequestId(1), RequestId(2)]);
        assert_eq!(find("cmpl"), []);
        drop(first);
        assert_eq!(find("mine"), [RequestId(3)]);
    }
}
