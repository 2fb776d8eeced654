//! Memory for weights and the KV arena: zeroed, on cache lines, and on huge pages where they help.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::KernelError;
use crate::allocator::fallible;
use crate::mapped_file::MappedRange;
use crate::shared_memory::Pages;

pub(crate) const CACHE_LINE_BYTES: usize = 64;

/// Least size of a buffer that is mapped on its own, on huge pages. Streaming gigabytes over small
/// pages loses a third of the bandwidth to address translation. Untouched parts cost nothing.
const MAPPED_BYTES_MIN: usize = 2 << 20;

/// A fixed-length slice on a 64-byte boundary. It is zero at first, unless its memory is shared.
pub(crate) struct AlignedBuf<T: bytemuck::Pod> {
    ptr: NonNull<T>,
    len: usize,
    memory: Memory,
}

/// The owner of a buffer's memory.
enum Memory {
    /// The allocator.
    Allocator(Layout),
    /// The buffer, which has pages of its own.
    Pages(Layout),
    /// A map of shared memory, of which the buffer has a part.
    Shared(#[expect(dead_code, reason = "its drop unmaps the memory")] Arc<Pages>),
}

// SAFETY: the buffer owns its memory, and `T: Pod` has no interior mutability or thread affinity.
unsafe impl<T: bytemuck::Pod> Send for AlignedBuf<T> {}
// SAFETY: as above; shared references only read.
unsafe impl<T: bytemuck::Pod> Sync for AlignedBuf<T> {}

impl<T: bytemuck::Pod> AlignedBuf<T> {
    /// Returns `len` zeros, for the thing named `what`.
    pub(crate) fn zeroed(len: usize, what: &'static str) -> Result<Self, KernelError> {
        let bytes = len.max(1).saturating_mul(size_of::<T>());
        let refused = KernelError::OutOfMemory { what, bytes };
        let Ok(layout) = Layout::from_size_align(bytes, CACHE_LINE_BYTES) else {
            return Err(refused);
        };
        let mapped = if wants_pages(layout) { map(layout) } else { std::ptr::null_mut() };
        let is_mapped = !mapped.is_null();
        let raw = if is_mapped {
            mapped
        } else {
            // Also where `map` fails, because the allocator may have memory in reserve.
            // SAFETY: the size is not zero: at least one element, whose type is not zero-sized.
            fallible(|| unsafe { alloc_zeroed(layout) })
        };
        let ptr = NonNull::new(raw.cast::<T>()).ok_or(refused)?;
        let memory = if is_mapped { Memory::Pages(layout) } else { Memory::Allocator(layout) };
        Ok(Self { ptr, len, memory })
    }

    /// Returns the `len` elements at `start`, a part of `pages`.
    ///
    /// # Safety
    /// The part must lie within the pages, on a cache line. Nothing else may access it while the
    /// buffer lives.
    pub(crate) unsafe fn shared(start: *mut T, len: usize, pages: Arc<Pages>) -> Self {
        // SAFETY: a place within a map is not null.
        let ptr = unsafe { NonNull::new_unchecked(start) };
        Self { ptr, len, memory: Memory::Shared(pages) }
    }
}

/// Returns whether a buffer of this layout is mapped rather than allocated.
fn wants_pages(layout: Layout) -> bool {
    cfg!(unix) && layout.size() >= MAPPED_BYTES_MIN
}

/// Returns zeroed pages of at least that size, huge ones where the system grants them, or null.
#[cfg(unix)]
fn map(layout: Layout) -> *mut u8 {
    // SAFETY: a fresh private mapping touches no memory of ours.
    let raw = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            layout.size(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if raw == libc::MAP_FAILED {
        return std::ptr::null_mut();
    }
    #[cfg(target_os = "linux")]
    // SAFETY: the range was just mapped, and a refusal of this advice is harmless.
    unsafe {
        libc::madvise(raw, layout.size(), libc::MADV_HUGEPAGE);
    }
    raw.cast()
}

/// Never called: [`wants_pages`] is false here.
#[cfg(not(unix))]
fn map(_: Layout) -> *mut u8 {
    std::ptr::null_mut()
}

impl<T: bytemuck::Pod> Deref for AlignedBuf<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `ptr` points at `len` initialised elements that live as long as `self`.
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
        let raw: *mut u8 = self.ptr.as_ptr().cast();
        match &self.memory {
            // SAFETY: allocated in `zeroed` with this layout.
            Memory::Allocator(layout) => unsafe { dealloc(raw, *layout) },
            Memory::Pages(layout) => unmap(raw, *layout),
            Memory::Shared(_) => {}
        }
    }
}

/// Frees pages of [`map`], to which no reference is left.
#[cfg(unix)]
fn unmap(raw: *mut u8, layout: Layout) {
    // SAFETY: mapped in `zeroed` with this size.
    unsafe { libc::munmap(raw.cast(), layout.size()) };
}

/// Never called: [`wants_pages`] is false here.
#[cfg(not(unix))]
fn unmap(_: *mut u8, _: Layout) {}

/// Read-only elements, in memory of their own or in a mapped file. All processes that map the file
/// share its pages.
#[derive(Debug)]
pub(crate) enum WeightBuf<T: bytemuck::Pod> {
    Owned(AlignedBuf<T>),
    Mapped(MappedRange),
}

impl<T: bytemuck::Pod> WeightBuf<T> {
    /// Takes the `len` elements of `range`.
    ///
    /// # Errors
    /// Another length, or bytes that are not on a cache line: streaming loads need them there.
    pub(crate) fn mapped(
        range: MappedRange,
        len: usize,
        what: &'static str,
    ) -> Result<Self, KernelError> {
        let address = range.bytes().as_ptr() as usize;
        let is_aligned = address.is_multiple_of(CACHE_LINE_BYTES);
        let accepted = || format!("a multiple of {CACHE_LINE_BYTES}");
        KernelError::require(is_aligned, what, "address", address as u64, accepted())?;
        let bytes = len.saturating_mul(size_of::<T>());
        KernelError::require_len(what, "mapped bytes", range.bytes().len(), bytes)?;
        Ok(Self::Mapped(range))
    }

    /// Returns the elements as they lie in memory.
    pub(crate) fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(self)
    }
}

impl<T: bytemuck::Pod> From<AlignedBuf<T>> for WeightBuf<T> {
    fn from(buf: AlignedBuf<T>) -> Self {
        Self::Owned(buf)
    }
}

impl<T: bytemuck::Pod> Deref for WeightBuf<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Self::Owned(buf) => buf,
            // Length and alignment were checked when it was made.
            Self::Mapped(range) => bytemuck::cast_slice(range.bytes()),
        }
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
    fn a_mapped_buffer_is_zeroed_aligned_and_writable() {
        let len = 3 * MAPPED_BYTES_MIN / size_of::<u16>() + 7;
        let mut buf = AlignedBuf::<u16>::zeroed(len, "test").unwrap();
        assert!(matches!(buf.memory, Memory::Pages(_)));
        assert_eq!(buf.as_ptr() as usize % CACHE_LINE_BYTES, 0);
        assert!(buf.iter().all(|x| *x == 0));
        buf[len - 1] = 9;
        assert_eq!(buf[len - 1], 9);
    }

    #[test]
    fn a_mapped_file_is_taken_where_length_and_alignment_fit() {
        let path = std::env::temp_dir().join(format!("weight-buf-{}", std::process::id()));
        let contents: Vec<u16> = (0..256).collect();
        std::fs::write(&path, bytemuck::cast_slice::<_, u8>(&contents)).unwrap();
        let file = std::sync::Arc::new(crate::MappedFile::open(&path).unwrap());
        let range = |range| MappedRange::new(&file, range).unwrap();
        let taken = WeightBuf::<u16>::mapped(range(64..128), 32, "test").unwrap();
        assert_eq!(*taken, contents[32..64]);
        let copied = AlignedBuf::<u16>::zeroed(32, "test").map(|mut buf| {
            buf.copy_from_slice(&taken);
            WeightBuf::from(buf)
        });
        assert_eq!(copied.unwrap().bytes(), taken.bytes());
        assert!(WeightBuf::<u16>::mapped(range(64..128), 31, "test").is_err());
        assert!(WeightBuf::<u16>::mapped(range(62..126), 32, "test").is_err());
        std::fs::remove_file(&path).unwrap();
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
