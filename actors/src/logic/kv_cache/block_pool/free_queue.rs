//! The free blocks, least recently used first. They are a doubly linked list whose links are
//! indices. So a block leaves it in O(1) when a prefix hit uses it again.

use crate::logic::request::ids::BlockId;

/// Marks a block that is not in the queue.
const ABSENT: u32 = u32::MAX;

/// A circle of links with a sentinel at index `num_blocks`.
#[derive(Debug, Clone)]
pub(super) struct FreeQueue {
    links: Vec<Link>,
    len: usize,
}

#[derive(Debug, Clone, Copy)]
struct Link {
    prev: u32,
    next: u32,
}

impl FreeQueue {
    /// Returns an empty queue for blocks `0..num_blocks`.
    pub(super) fn new(num_blocks: u32) -> Self {
        let absent = Link { prev: ABSENT, next: ABSENT };
        let mut links = vec![absent; num_blocks as usize + 1];
        links[num_blocks as usize] = Link { prev: num_blocks, next: num_blocks };
        Self { links, len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Removes and returns the block to reuse next.
    pub(super) fn pop_front(&mut self) -> Option<BlockId> {
        let front = self.links[self.sentinel() as usize].next;
        (front != self.sentinel()).then(|| {
            self.remove(front);
            front
        })
    }

    /// Adds a block that is reused first.
    pub(super) fn push_front(&mut self, block: BlockId) {
        let sentinel = self.sentinel();
        self.insert_after(sentinel, block);
    }

    /// Adds a block that is reused last.
    pub(super) fn push_back(&mut self, block: BlockId) {
        let back = self.links[self.sentinel() as usize].prev;
        self.insert_after(back, block);
    }

    pub(super) fn remove(&mut self, block: BlockId) {
        let Link { prev, next } = self.links[block as usize];
        assert!(next != ABSENT && block != self.sentinel(), "block {block} is not free");
        self.links[prev as usize].next = next;
        self.links[next as usize].prev = prev;
        self.links[block as usize] = Link { prev: ABSENT, next: ABSENT };
        self.len -= 1;
    }

    /// Returns the blocks, from the first to be reused to the last.
    pub(super) fn iter(&self) -> impl Iterator<Item = BlockId> + '_ {
        let sentinel = self.sentinel();
        let after = move |at: u32| {
            let next = self.links[at as usize].next;
            (next != sentinel).then_some(next)
        };
        std::iter::successors(after(sentinel), move |&at| after(at))
    }

    fn insert_after(&mut self, at: u32, block: BlockId) {
        assert!(self.links[block as usize].next == ABSENT, "block {block} is free already");
        let next = self.links[at as usize].next;
        self.links[block as usize] = Link { prev: at, next };
        self.links[at as usize].next = block;
        self.links[next as usize].prev = block;
        self.len += 1;
    }

    fn sentinel(&self) -> u32 {
        self.links.len() as u32 - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_leave_from_the_front_or_from_anywhere() {
        let mut queue = FreeQueue::new(6);
        (1..6).for_each(|block| queue.push_back(block));
        queue.remove(3);
        queue.push_front(3);
        assert_eq!(queue.iter().collect::<Vec<_>>(), [3, 1, 2, 4, 5]);
        assert_eq!(queue.pop_front(), Some(3));
        assert_eq!((queue.pop_front(), queue.len()), (Some(1), 3));
        queue.remove(5);
        queue.push_back(1);
        assert_eq!(queue.iter().collect::<Vec<_>>(), [2, 4, 1]);
    }

    #[test]
    fn an_empty_queue_gives_nothing() {
        let mut queue = FreeQueue::new(1);
        assert_eq!(queue.pop_front(), None);
        queue.push_front(0);
        assert_eq!((queue.pop_front(), queue.pop_front()), (Some(0), None));
    }

    #[test]
    #[should_panic(expected = "is not free")]
    fn taking_a_block_twice_is_a_bug() {
        let mut queue = FreeQueue::new(2);
        queue.push_back(1);
        queue.remove(1);
        queue.remove(1);
    }
}
