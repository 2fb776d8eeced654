//! Finds items by their ids. A response is searched once for each reference to one of its items.

use std::{cmp::Ordering, sync::Arc};

use super::items::{Item, Items};

/// The places of items, in the order of their ids.
pub(super) struct ItemIndex(Box<[u32]>);

impl ItemIndex {
    /// Bytes that an item takes in an index.
    pub(super) const ITEM_BYTES: usize = size_of::<u32>();

    /// Returns the index of `items`.
    pub(super) fn new(items: &Items) -> Self {
        let mut places: Box<[u32]> = (0..items.len() as u32).collect();
        // Stable: of two items with one id, the first is found.
        places.sort_by(|&a, &b| items[a as usize].id().cmp(items[b as usize].id()));
        Self(places)
    }

    /// Returns the first item of `items` with this id. `items` are those of [`Self::new`].
    pub(super) fn find<'a>(&self, items: &'a Items, id: &str) -> Option<&'a Arc<Item>> {
        let item = |place: &u32| items.get(*place as usize);
        let is_before =
            |place: &u32| item(place).is_some_and(|item| item.id().cmp(id) == Ordering::Less);
        let first = self.0.partition_point(is_before);
        self.0.get(first).and_then(item).filter(|item| item.id() == id)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::server::responses::items::{ItemStatus, Message, Part, Role};

    fn message(id: &str, text: &str) -> Arc<Item> {
        let content = vec![Part::InputText { text: text.to_owned() }];
        let (id, status, role) = (id.to_owned(), ItemStatus::Completed, Role::User);
        Arc::new(Item::Message(Message { id, status, role, content }))
    }

    #[test]
    fn the_first_item_of_a_name_is_found_as_by_a_search_from_the_front() {
        let ids = ["b", "a", "b", "", "c", "a", "msg_r_10", "msg_r_9"];
        let items: Items =
            ids.iter().enumerate().map(|(at, id)| message(id, &at.to_string())).collect();
        let index = ItemIndex::new(&items);
        for id in ids.into_iter().chain(["0", "bb", "msg_r_1", "z"]) {
            let searched = items.iter().find(|item| item.id() == id);
            assert_eq!(index.find(&items, id), searched, "{id}");
        }
        let none = Items::new();
        assert_eq!(ItemIndex::new(&none).find(&none, "a"), None);
    }

    #[test]
    fn as_many_references_as_a_request_may_have_are_found_at_once() {
        // A long common beginning makes each comparison slow.
        let id = |number: usize| format!("{}{number}", "msg_".repeat(200));
        let ids: Vec<String> = (0..200_000).map(id).collect();
        let items: Items = ids.iter().map(|id| message(id, "x")).collect();
        let index = ItemIndex::new(&items);
        let took = || {
            let began = Instant::now();
            assert!(ids.iter().rev().take(4_096).all(|id| index.find(&items, id).is_some()));
            began.elapsed()
        };
        // The thread may lack a processor, but not each time.
        assert!(
            (0..5).any(|_| took() < Duration::from_millis(500)),
            "one by one takes 100 times that"
        );
    }
}
