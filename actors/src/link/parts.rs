//! Messages with a list that is too long for one frame. The list travels in parts, and the frame
//! after them has the number of its items. If a part is lost, so is the message.

use serde::Serialize;

use crate::codec::payload_len;

/// Number of bytes of a part, unless a single item has more. Signs of life pass between two parts,
/// so a part must not take long.
pub const PART_LEN: usize = 4 << 20;

/// Number of bytes of a frame that its items cannot have: its kind, its stamp and the lengths of
/// its lists.
pub const ENVELOPE_LEN: usize = 128;

/// A list in parts.
#[derive(Debug, PartialEq, Eq)]
pub struct Parts<T> {
    /// The parts, in order. None is empty.
    pub parts: Vec<Vec<T>>,
    /// The items that no frame can have.
    pub too_long: Vec<T>,
}

impl<T: Serialize> Parts<T> {
    /// Cuts a list so that each part fits a frame of `max_len` bytes.
    pub fn of(items: impl IntoIterator<Item = T>, max_len: usize) -> Self {
        let item_max = max_len.saturating_sub(ENVELOPE_LEN);
        let mut cut = Self { parts: Vec::new(), too_long: Vec::new() };
        let mut room = 0;
        for item in items {
            let len = payload_len(&item);
            if len > item_max {
                cut.too_long.push(item);
                continue;
            }
            match cut.parts.last_mut().filter(|_| len <= room) {
                Some(part) => part.push(item),
                None => {
                    cut.parts.push(vec![item]);
                    room = PART_LEN.min(item_max);
                }
            }
            room = room.saturating_sub(len);
        }
        cut
    }

    /// Returns the number of items in all parts.
    pub fn num_items(&self) -> usize {
        self.parts.iter().map(Vec::len).sum()
    }
}

/// The parts of one message that have arrived.
#[derive(Debug)]
pub struct Gathered<K, T> {
    message: Option<K>,
    items: Vec<T>,
}

impl<K: PartialEq, T> Gathered<K, T> {
    /// Returns an empty list.
    #[must_use]
    pub const fn new() -> Self {
        Self { message: None, items: Vec::new() }
    }

    /// Adds a part of a message. Parts of another message are dropped.
    pub fn add(&mut self, message: K, part: Vec<T>) {
        if self.message.as_ref() != Some(&message) {
            *self = Self { message: Some(message), items: Vec::new() };
        }
        self.items.extend(part);
    }

    /// Returns the items of a message that has `num_items`, or `None` if a part was lost.
    pub fn take(&mut self, message: &K, num_items: usize) -> Option<Vec<T>> {
        let Self { message: gathered, items } = std::mem::take(self);
        let items = if gathered.as_ref() == Some(message) { items } else { Vec::new() };
        (items.len() == num_items).then_some(items)
    }
}

impl<K: PartialEq, T> Default for Gathered<K, T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(lens: &[usize]) -> Vec<String> {
        lens.iter().map(|len| "x".repeat(*len)).collect()
    }

    fn lens(texts: &[String]) -> Vec<usize> {
        texts.iter().map(String::len).collect()
    }

    #[test]
    fn parts_fit_their_frames_and_keep_the_order() {
        let max_len = ENVELOPE_LEN + 100;
        let all = [60, 30, 10, 99, 1, 2, 3, 100, 300, 4];
        let cut = Parts::of(texts(&all), max_len);
        let parts: Vec<_> = cut.parts.iter().map(|part| lens(part)).collect();
        // Each text has a byte for its length.
        assert_eq!(parts, [vec![60, 30], vec![10], vec![99], vec![1, 2, 3, 4]]);
        assert_eq!((lens(&cut.too_long), cut.num_items()), (vec![100, 300], 8));
        assert!(cut.parts.iter().all(|part| payload_len(part) <= max_len));
    }

    #[test]
    fn parts_are_small_and_long_items_travel_alone() {
        let all = [PART_LEN / 2, PART_LEN / 2, 1, 3 * PART_LEN, 1];
        let cut = Parts::of(texts(&all), 8 * PART_LEN);
        let parts: Vec<_> = cut.parts.iter().map(Vec::len).collect();
        assert_eq!((parts, cut.too_long.len()), (vec![1, 2, 1, 1], 0));
    }

    #[test]
    fn a_message_is_whole_or_lost() {
        let mut gathered = Gathered::new();
        assert_eq!(gathered.take(&1, 0), Some(Vec::<u8>::new()), "it has no items");
        gathered.add(1, vec![1, 2]);
        gathered.add(1, vec![3]);
        assert_eq!(gathered.take(&1, 3), Some(vec![1, 2, 3]));
        gathered.add(2, vec![1]);
        assert_eq!(gathered.take(&2, 2), None, "a part was lost");
        gathered.add(3, vec![1]);
        gathered.add(4, vec![5]);
        assert_eq!(gathered.take(&4, 1), Some(vec![5]), "the other message is dropped");
        gathered.add(5, vec![1]);
        assert_eq!(gathered.take(&6, 1), None);
    }
}
