//! Behaviour where the system refuses memory.
//!
//! [`try_zeroed`] and [`fallible`] ask for large buffers, and their callers return errors. All
//! other code, libraries included, cannot go on without the memory that it asks for. Rust aborts
//! there, and only nightly builds can change that. [`ReportingAllocator`] therefore writes to
//! standard error how many bytes were refused, and exits with [`EXIT_OUT_OF_MEMORY`].

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::io::Write;

use crate::KernelError;

/// The exit code of a process that cannot go on without memory that it was refused (`EX_OSERR` of
/// sysexits.h).
pub const EXIT_OUT_OF_MEMORY: u8 = 71;

thread_local! {
    /// Number of callers on this thread that handle a refusal.
    static FALLIBLE: Cell<usize> = const { Cell::new(0) };
}

/// Runs `allocate`, to which a [`ReportingAllocator`] may return null. `allocate` must handle null.
pub fn fallible<R>(allocate: impl FnOnce() -> R) -> R {
    let _entered = Entered::new();
    allocate()
}

/// Counts a caller until it leaves, also by a panic.
struct Entered;

impl Entered {
    fn new() -> Self {
        FALLIBLE.set(FALLIBLE.get() + 1);
        Self
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        FALLIBLE.set(FALLIBLE.get() - 1);
    }
}

/// Returns `len` zeros for the thing named `what`.
///
/// # Errors
/// [`KernelError::OutOfMemory`] where the system refuses the memory.
pub fn try_zeroed<T: bytemuck::Zeroable + Clone>(
    len: usize,
    what: &'static str,
) -> Result<Vec<T>, KernelError> {
    let mut zeros = Vec::new();
    let reserved = fallible(|| zeros.try_reserve_exact(len));
    let bytes = len.saturating_mul(size_of::<T>());
    reserved.map_err(|_| KernelError::OutOfMemory { what, bytes })?;
    zeros.resize(len, T::zeroed());
    Ok(zeros)
}

/// An allocator that ends the process with a message where `A` is refused memory, unless the caller
/// is [`fallible`].
#[derive(Debug)]
pub struct ReportingAllocator<A>(pub A);

// SAFETY: all calls go to `A`, which keeps the contract. A null stays null, or is not returned.
unsafe impl<A: GlobalAlloc> GlobalAlloc for ReportingAllocator<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract, which is that of `A`.
        checked(unsafe { self.0.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        checked(unsafe { self.0.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: as above.
        checked(unsafe { self.0.realloc(ptr, layout, new_size) }, new_size)
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { self.0.dealloc(ptr, layout) }
    }
}

#[inline]
fn checked(allocated: *mut u8, size: usize) -> *mut u8 {
    if allocated.is_null() {
        refused(size);
    }
    allocated
}

/// Returns to a fallible caller. Ends the process for any other, which cannot run without memory.
#[cold]
fn refused(size: usize) {
    // A thread that is ending has no flag left, and no code that could handle a refusal.
    if FALLIBLE.try_with(Cell::get).unwrap_or(0) > 0 {
        return;
    }
    let mut text = [0; 256];
    let mut rest = &mut text[..];
    // Formatting numbers allocates nothing, and 256 bytes hold the whole text.
    let _ = write!(rest, "error: out of memory: {size} bytes were refused");
    if let Some(limit) = address_space_limit() {
        let _ = write!(rest, "; the limit of the address space (ulimit -v) is {limit} bytes");
    }
    let _ = writeln!(rest);
    let unused = rest.len();
    end(&text[..256 - unused]);
}

#[cfg(unix)]
fn address_space_limit() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is ours to write.
    let result = unsafe { libc::getrlimit(libc::RLIMIT_AS, &mut limit) };
    (result == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

#[cfg(unix)]
fn end(text: &[u8]) -> ! {
    let mut stderr = libc::pollfd { fd: 2, events: libc::POLLOUT, revents: 0 };
    // SAFETY: one descriptor that lives through the call. The wait ends after a second, so that a
    // full pipe that no process reads gets no text.
    if unsafe { libc::poll(&mut stderr, 1, 1000) } == 1 {
        // SAFETY: `text` is initialised memory of that length.
        unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
    }
    // SAFETY: ends the process without destructors, which may allocate.
    unsafe { libc::_exit(i32::from(EXIT_OUT_OF_MEMORY)) }
}

#[cfg(not(unix))]
fn address_space_limit() -> Option<u64> {
    None
}

#[cfg(not(unix))]
fn end(text: &[u8]) -> ! {
    let _ = std::io::stderr().write_all(text);
    std::process::exit(i32::from(EXIT_OUT_OF_MEMORY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_beyond_all_memory_are_an_error_with_their_size() {
        assert_eq!(try_zeroed::<f32>(3, "test").unwrap(), [0.0; 3]);
        let error = try_zeroed::<f32>(usize::MAX / 8, "test").unwrap_err();
        let bytes = usize::MAX / 8 * 4;
        assert!(matches!(error, KernelError::OutOfMemory { what: "test", bytes: b } if b == bytes));
    }

    #[test]
    fn a_panic_leaves_the_fallible_part() {
        assert_eq!(fallible(|| fallible(|| FALLIBLE.get())), 2);
        assert!(std::panic::catch_unwind(|| fallible(|| panic!("on purpose"))).is_err());
        assert_eq!(FALLIBLE.get(), 0);
    }
}
