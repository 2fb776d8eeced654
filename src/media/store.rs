//! The processor's cache: processed items by identifier, bounded in bytes. Those unused for longest
//! go first.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use playhouse_actors::logic::request::media::ProcessedMedia;

/// Bytes that an entry takes beside its tensors and its name.
const ENTRY_BYTES: usize = 256;

/// Processed items of earlier requests.
pub(crate) struct ProcessedStore {
    bytes_max: usize,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    entries: BTreeMap<Arc<str>, Entry>,
    /// The identifiers by the time of their last use.
    by_use: BTreeMap<u64, Arc<str>>,
    clock: u64,
    bytes: usize,
}

struct Entry {
    media: Arc<ProcessedMedia>,
    used: u64,
    bytes: usize,
}

impl ProcessedStore {
    /// Returns a store of at most `bytes_max` bytes.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, inner: Mutex::default() }
    }

    /// Returns the item with this identifier, if the store has it.
    pub(crate) fn get(&self, identifier: &str) -> Option<Arc<ProcessedMedia>> {
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        inner.clock += 1;
        let entry = inner.entries.get_mut(identifier)?;
        if let Some(identifier) = inner.by_use.remove(&entry.used) {
            inner.by_use.insert(inner.clock, identifier);
        }
        entry.used = inner.clock;
        Some(Arc::clone(&entry.media))
    }

    /// Keeps an item, unless it alone is larger than the store.
    pub(crate) fn insert(&self, identifier: &Arc<str>, media: &Arc<ProcessedMedia>) {
        let bytes = ENTRY_BYTES + 2 * identifier.len() + media.num_bytes();
        if bytes > self.bytes_max {
            return;
        }
        let mut inner = self.inner.lock();
        inner.remove(identifier);
        while inner.bytes + bytes > self.bytes_max {
            let Some((_, oldest)) = inner.by_use.pop_first() else { break };
            inner.remove(&oldest);
        }
        inner.clock += 1;
        let used = inner.clock;
        inner.by_use.insert(used, Arc::clone(identifier));
        inner.bytes += bytes;
        let entry = Entry { media: Arc::clone(media), used, bytes };
        inner.entries.insert(Arc::clone(identifier), entry);
    }

    /// Forgets all items.
    pub(crate) fn clear(&self) {
        *self.inner.lock() = Inner::default();
    }

    /// Returns the bytes of all items.
    #[cfg(test)]
    fn bytes(&self) -> usize {
        self.inner.lock().bytes
    }
}

impl Inner {
    fn remove(&mut self, identifier: &str) {
        if let Some(entry) = self.entries.remove(identifier) {
            self.by_use.remove(&entry.used);
            self.bytes -= entry.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use playhouse_actors::logic::request::media::{MediaDtype, MediaTensor};
    use proptest::prelude::*;

    use super::*;

    fn item(bytes: usize) -> Arc<ProcessedMedia> {
        let data = vec![0; bytes].into();
        let tensor = MediaTensor { shape: vec![bytes], dtype: MediaDtype::U8, data };
        Arc::new(ProcessedMedia { tensors: vec![tensor], ..ProcessedMedia::default() })
    }

    #[test]
    fn the_item_unused_for_longest_goes_first() {
        let store = ProcessedStore::new(3 * (ENTRY_BYTES + 2 + 100));
        for name in ["a", "b", "c"] {
            store.insert(&name.into(), &item(100));
        }
        assert!(store.get("a").is_some());
        store.insert(&"d".into(), &item(100));
        let kept: Vec<bool> = ["a", "b", "c", "d"].map(|name| store.get(name).is_some()).into();
        assert_eq!(kept, [true, false, true, true]);
        store.insert(&"e".into(), &item(10_000));
        assert!(store.get("e").is_none() && store.get("d").is_some());
        store.clear();
        assert_eq!((store.get("d").is_none(), store.bytes()), (true, 0));
    }

    proptest! {
        #[test]
        fn the_bytes_are_those_of_the_entries(steps in prop::collection::vec((0..9_u8, 0..900_usize), 1..90)) {
            let store = ProcessedStore::new(4_000);
            for (name, bytes) in steps {
                let name: Arc<str> = name.to_string().into();
                let _ = store.get(&name);
                store.insert(&name, &item(bytes));
                let inner = store.inner.lock();
                let sum: usize = inner.entries.values().map(|entry| entry.bytes).sum();
                prop_assert!(inner.bytes == sum && sum <= 4_000);
                prop_assert_eq!(inner.by_use.len(), inner.entries.len());
            }
        }
    }
}
