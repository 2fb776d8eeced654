//! The recordings that are kept: the most recently used, within a number and a number of bytes.

/// Most recordings. Each also holds memory of the driver, which is not counted.
const COUNT_MAX: usize = 64;

/// Things and the bytes that each holds, the most recently used last.
#[derive(Debug)]
pub(super) struct Kept<T> {
    bytes_max: u64,
    entries: Vec<Entry<T>>,
}

#[derive(Debug)]
struct Entry<T> {
    thing: T,
    bytes: u64,
}

impl<T> Kept<T> {
    /// Makes an empty store, which never holds more than `bytes_max` bytes.
    pub(super) fn new(bytes_max: u64) -> Self {
        Self { bytes_max, entries: Vec::new() }
    }

    /// Returns the thing for which `is_it` holds, and makes it the most recently used.
    pub(super) fn find(&mut self, is_it: impl Fn(&T) -> bool) -> Option<&T> {
        let at = self.entries.iter().position(|entry| is_it(&entry.thing))?;
        self.entries[at..].rotate_left(1);
        self.entries.last().map(|entry| &entry.thing)
    }

    /// Returns the bytes that they may hold together.
    pub(super) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Drops the least recently used until one of `bytes` bytes fits. Returns whether any were
    /// dropped.
    pub(super) fn make_room(&mut self, bytes: u64) -> bool {
        let room = self.bytes_max.saturating_sub(bytes);
        let (mut held, mut dropped) = (self.bytes(), 0);
        for entry in &self.entries {
            if held <= room && self.entries.len() - dropped < COUNT_MAX {
                break;
            }
            held -= entry.bytes;
            dropped += 1;
        }
        self.entries.drain(..dropped);
        dropped > 0
    }

    /// Keeps one more. [`Kept::make_room`] must have made room for it.
    pub(super) fn push(&mut self, thing: T, bytes: u64) {
        self.entries.push(Entry { thing, bytes });
    }

    /// Drops all.
    pub(super) fn clear(&mut self) {
        self.entries.clear();
    }

    /// Returns the bytes that they hold together.
    pub(super) fn bytes(&self) -> u64 {
        self.entries.iter().map(|entry| entry.bytes).sum()
    }

    /// Returns how many there are.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns all of them, and their bytes.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&T, u64)> {
        self.entries.iter().map(|entry| (&entry.thing, entry.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn things(kept: &Kept<char>) -> String {
        kept.iter().map(|(thing, _)| *thing).collect()
    }

    #[test]
    fn the_last_used_stay() {
        let mut kept = Kept::new(100);
        for (thing, bytes) in [('a', 40), ('b', 30), ('c', 30)] {
            assert!(!kept.make_room(bytes));
            kept.push(thing, bytes);
        }
        assert_eq!(kept.find(|thing| *thing == 'a'), Some(&'a'));
        assert_eq!(kept.find(|thing| *thing == 'x'), None);
        assert_eq!((things(&kept).as_str(), kept.bytes()), ("bca", 100));
        assert!(kept.make_room(31));
        assert_eq!((things(&kept).as_str(), kept.bytes()), ("a", 40));
        assert!(!kept.make_room(60));
        assert!(kept.make_room(100));
        assert_eq!((kept.len(), kept.bytes()), (0, 0));
    }

    #[test]
    fn there_are_never_more_than_the_maximum() {
        let mut kept = Kept::new(u64::MAX);
        for i in 0..COUNT_MAX + 3 {
            assert_eq!(kept.make_room(1), i >= COUNT_MAX);
            kept.push('a', 1);
        }
        assert_eq!(kept.len(), COUNT_MAX);
        kept.clear();
        assert_eq!(kept.len(), 0);
    }
}
