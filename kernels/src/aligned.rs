//! Memory for weights and the KV arena: zeroed, on cache lines, and on huge pages where they help.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::KernelError;

/// A page of the sort that cuts address-translation misses when gigabytes are streamed.
const HUGE_PAGE_BYTES: usize = 2 << 20;
const CACHE_LINE_BYTES: usize = 64;

/// A fixed-length, zero-initialised slice on a 64-byte boundary.
pub(crate) struct AlignedBuf<T: bytemuck::Pod> {
    ptr: NonNull<T>,
    len: usize,
    layout: Layout,
}

// SAFETY: the buffer owns its memory, and `T: Pod` has no interior mutability or thread affinity.
unsafe impl<T: bytemuck::Pod> Send for AlignedBuf<T> {}
// SAFETY: as above; shared references only read.
unsafe impl<T: bytemuck::Pod> Sync for AlignedBuf<T> {}

impl<T: bytemuck::Pod> AlignedBuf<T> {
    /// `len` zeros, for the thing named `what`.
    pub(crate) fn zeroed(len: usize, what: &'static str) -> Result<Self, KernelError> {
        let bytes = len.max(1).saturating_mul(size_of::<T>());
        let align = if bytes >= HUGE_PAGE_BYTES { HUGE_PAGE_BYTES } else { CACHE_LINE_BYTES };
        let layout = Layout::from_size_align(bytes, align)
            .map_err(|_| KernelError::OutOfMemory { what, bytes })?;
        // SAFETY: the size is at least one element, and elements are not zero-sized here.
        let raw = unsafe { alloc_zeroed(layout) };
        let ptr = NonNull::new(raw.cast::<T>()).ok_or(KernelError::OutOfMemory { what, bytes })?;
        Ok(Self { ptr, len, layout })
    }
}

impl<T: bytemuck::Pod> Deref for AlignedBuf<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `ptr` points at `len` initialised (zeroed) elements that live as long as `self`.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl<T: bytemuck::Pod> DerefMut for AlignedBuf<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and `&mut self` is the only access.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl<T: bytemuck::Pod> Drop for AlignedBuf<T> {
    fn drop(&mut self) {
        // SAFETY: allocated in `zeroed` with this very layout.
        unsafe { dealloc(self.ptr.as_ptr().cast(), self.layout) }
    }
}

impl<T: bytemuck::Pod> std::fmt::Debug for AlignedBuf<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AlignedBuf").field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_zeroed_aligned_and_writable() {
        let mut buf = AlignedBuf::<f32>::zeroed(1000, "test").unwrap();
        assert_eq!(buf.as_ptr() as usize % CACHE_LINE_BYTES, 0);
        assert!(buf.iter().all(|x| *x == 0.0));
        buf[999] = 1.0;
        assert_eq!(buf[999], 1.0);
    }

    #[test]
    fn an_empty_buffer_is_an_empty_slice() {
        assert!(AlignedBuf::<u16>::zeroed(0, "test").unwrap().is_empty());
    }

    #[test]
    fn an_absurd_size_is_an_error() {
        let error = AlignedBuf::<f32>::zeroed(usize::MAX / 8, "arena").unwrap_err();
        assert!(matches!(error, KernelError::OutOfMemory { what: "arena", .. }));
    }
}
