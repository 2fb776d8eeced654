//! The map of an arena, which begins on a border of huge pages: the system maps a huge page only
//! where file and address agree.

use std::fs::File;
use std::io;

#[cfg(target_os = "linux")]
const ALIGNMENT: usize = 2 << 20;

/// A part of a file in memory, to be read and written by all processes that map it.
#[derive(Debug)]
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "nothing maps there"))]
pub(crate) struct Pages {
    start: *mut u8,
    len: usize,
}

// SAFETY: the map belongs to the value. A pointer to it gives no access by itself.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    /// Maps `len` bytes of `file` from `offset` on, a multiple of a page.
    ///
    /// # Errors
    /// The system's error.
    #[cfg(target_os = "linux")]
    pub(super) fn map(file: &File, offset: u64, len: usize) -> io::Result<Self> {
        use std::os::fd::AsRawFd;
        let reserved = len.checked_add(ALIGNMENT).ok_or(io::ErrorKind::InvalidInput)?;
        let offset = i64::try_from(offset).map_err(io::Error::other)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a fresh map touches no memory of ours.
        let place = unsafe { mmap(std::ptr::null_mut(), reserved, libc::PROT_NONE, flags, -1, 0)? };
        let before = place.align_offset(ALIGNMENT);
        let start = place.wrapping_add(before);
        let (access, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_FIXED);
        // SAFETY: the range lies within the place that was just reserved.
        match unsafe { mmap(start, len, access, flags, file.as_raw_fd(), offset) } {
            Ok(_) => {}
            Err(error) => {
                // SAFETY: the place was reserved above, and nothing refers to it.
                unsafe { libc::munmap(place.cast(), reserved) };
                return Err(error);
            }
        }
        let end = len.next_multiple_of(page_size());
        // SAFETY: the rest of the place, before and behind the map. A refusal leaves addresses
        // unused. Where the system has no huge pages for shared memory, it refuses the advice.
        unsafe {
            if before > 0 {
                libc::munmap(place.cast(), before);
            }
            libc::munmap(start.wrapping_add(end).cast(), reserved.saturating_sub(before + end));
            libc::madvise(start.cast(), len, libc::MADV_HUGEPAGE);
        }
        Ok(Self { start, len })
    }

    /// Never maps: only Linux has files in memory that outlive processes.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn map(_: &File, _: u64, _: usize) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Returns the number of bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the first byte.
    pub(super) fn as_mut_ptr(&self) -> *mut u8 {
        self.start
    }
}

#[cfg(target_os = "linux")]
unsafe fn mmap(
    place: *mut u8,
    len: usize,
    access: i32,
    flags: i32,
    file: i32,
    offset: i64,
) -> io::Result<*mut u8> {
    // SAFETY: by the caller's contract, the call replaces no map that is in use.
    let start = unsafe { libc::mmap64(place.cast(), len, access, flags, file, offset) };
    if start == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(start.cast()) }
}

#[cfg(target_os = "linux")]
fn page_size() -> usize {
    // SAFETY: the call takes a number and has no other effect.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(ALIGNMENT)
}

#[cfg(target_os = "linux")]
impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: mapped in `map` with this size, and no reference to it is left.
        unsafe { libc::munmap(self.start.cast(), self.len) };
    }
}
