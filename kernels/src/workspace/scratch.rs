//! The memory that an operation needs while it runs.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use bytemuck::{Pod, Zeroable};

/// Most buffers that a thread keeps: as many as nested operations need at a time.
const KEPT: usize = 8;

/// Most bytes that a thread keeps: enough for a chunk of a long prompt, because pages that are new
/// to the process are written twice.
const KEPT_BYTES: usize = 64 << 20;

thread_local! {
    static FREE: RefCell<Vec<Vec<Line>>> = const { RefCell::new(Vec::new()) };
}

/// A cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

// SAFETY: bytes may all be zero.
unsafe impl Zeroable for Line {}
// SAFETY: bytes without padding: there are as many as the alignment.
unsafe impl Pod for Line {}

/// A slice on cache lines, whose memory the thread's later operations reuse.
pub(crate) struct Scratch<T: Pod> {
    lines: Vec<Line>,
    len: usize,
    elements: PhantomData<T>,
}

impl<T: Pod> Scratch<T> {
    /// Returns `len` elements, undefined until they are written.
    pub(crate) fn new(len: usize) -> Self {
        let mut lines = FREE.with_borrow_mut(Vec::pop).unwrap_or_default();
        let count = (len * size_of::<T>()).div_ceil(size_of::<Line>());
        if lines.len() < count {
            // A new buffer, because the content is not needed and zeroed pages cost less than a
            // copy.
            lines = vec![Line::zeroed(); count];
        }
        Self { lines, len, elements: PhantomData }
    }

    /// Returns `len` zeros.
    pub(crate) fn zeroed(len: usize) -> Self {
        let mut scratch = Self::new(len);
        scratch.fill(T::zeroed());
        scratch
    }
}

impl<T: Pod> Deref for Scratch<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        let bytes: &[u8] = bytemuck::cast_slice(&self.lines);
        bytemuck::cast_slice(&bytes[..self.len * size_of::<T>()])
    }
}

impl<T: Pod> DerefMut for Scratch<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut self.lines);
        bytemuck::cast_slice_mut(&mut bytes[..self.len * size_of::<T>()])
    }
}

impl<T: Pod> Drop for Scratch<T> {
    fn drop(&mut self) {
        let lines = std::mem::take(&mut self.lines);
        // A thread that is ending has no list left.
        let _ = FREE.try_with(|free| {
            let mut free = free.borrow_mut();
            let kept: usize = free.iter().map(Vec::len).sum();
            if free.len() < KEPT && (kept + lines.len()) * size_of::<Line>() <= KEPT_BYTES {
                free.push(lines);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_whatever_it_held() {
        let mut words = Scratch::<u32>::new(100);
        words.fill(u32::MAX);
        let start = words.as_ptr() as usize;
        assert!(start.is_multiple_of(64));
        drop(words);
        let zeros = Scratch::<f32>::zeroed(70);
        assert_eq!((zeros.as_ptr() as usize, zeros.len()), (start, 70));
        assert!(zeros.iter().all(|x| *x == 0.0));
        assert_ne!(Scratch::<f32>::new(70).as_ptr() as usize, start, "it is in use");
    }

    #[test]
    fn large_buffers_are_freed() {
        let count = || FREE.with_borrow(Vec::len);
        let before = count();
        drop(Scratch::<u8>::new(KEPT_BYTES + 1));
        assert_eq!(count(), before);
        let two = [(); 2].map(|()| Scratch::<u8>::new(KEPT_BYTES / 2 + 1));
        drop(two);
        assert_eq!(count(), before + 1, "both would be too much");
        FREE.take();
        let many: Vec<_> = (0..2 * KEPT).map(|_| Scratch::<u8>::new(9)).collect();
        drop(many);
        assert_eq!(count(), KEPT);
    }

    #[test]
    fn an_empty_one_is_an_empty_slice() {
        assert!(Scratch::<u16>::new(0).is_empty());
    }
}
