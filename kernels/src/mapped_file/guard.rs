//! Behaviour where a page of a mapped file cannot be read: the file was truncated, its disk failed,
//! or memory failed. The system raises SIGBUS, which by default ends the process without a message.
//! The handler here names the file on standard error and exits with [`EXIT_FILE_LOST`]. Reads cost
//! nothing more.
//!
//! The handler uses only what POSIX allows there: atomic loads, `poll`, `write`, `_exit`. It finds
//! the file in a list without locks. A fault at another address goes to the handler that was
//! installed before. That is the handler of Rust's runtime for stack overflows.

use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

/// The exit code of a process whose mapped file became unreadable (`EX_IOERR` of sysexits.h).
pub const EXIT_FILE_LOST: u8 = 74;

/// Bytes of a path that are kept: its end, where the path is longer.
const NAME_BYTES: usize = 240;

/// A mapped range. Slots are reused and never freed, because the handler may read any of them.
struct Slot {
    is_taken: AtomicBool,
    start: AtomicUsize,
    /// 0 while the slot has no range.
    end: AtomicUsize,
    name: [AtomicU8; NAME_BYTES],
    name_len: AtomicUsize,
    next: OnceLock<&'static Slot>,
}

static FIRST: Slot = Slot::new();

impl Slot {
    const fn new() -> Self {
        Self {
            is_taken: AtomicBool::new(false),
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            name: [const { AtomicU8::new(0) }; NAME_BYTES],
            name_len: AtomicUsize::new(0),
            next: OnceLock::new(),
        }
    }

    fn all() -> impl Iterator<Item = &'static Self> {
        std::iter::successors(Some(&FIRST), |slot| slot.next.get().copied())
    }

    /// Returns a slot that belongs to the caller.
    fn take() -> &'static Self {
        let is_free = |slot: &&Self| !slot.is_taken.swap(true, Ordering::Acquire);
        if let Some(free) = Self::all().find(is_free) {
            return free;
        }
        let new: &'static Self = Box::leak(Box::new(Self::new()));
        new.is_taken.store(true, Ordering::Relaxed);
        // Another thread may meanwhile have appended to the last slot.
        while Self::all().last().is_some_and(|last| last.next.set(new).is_err()) {}
        new
    }
}

/// A range that is watched until this is dropped. The handler reports its loss.
#[derive(Debug)]
pub(super) struct Guard {
    slot: &'static Slot,
}

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slot").finish_non_exhaustive()
    }
}

impl Guard {
    /// Watches `bytes`, mapped from the file `path`.
    pub(super) fn new(path: &Path, bytes: &[u8]) -> Self {
        handler::install();
        let slot = Slot::take();
        let name = path.as_os_str().as_encoded_bytes();
        let name = &name[name.len().saturating_sub(NAME_BYTES)..];
        for (kept, byte) in slot.name.iter().zip(name) {
            kept.store(*byte, Ordering::Relaxed);
        }
        slot.name_len.store(name.len(), Ordering::Relaxed);
        let range = bytes.as_ptr_range();
        slot.start.store(range.start as usize, Ordering::Relaxed);
        // The handler reads the other fields only where this is set.
        slot.end.store(range.end as usize, Ordering::Release);
        Self { slot }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.slot.end.store(0, Ordering::Release);
        self.slot.is_taken.store(false, Ordering::Release);
    }
}

/// Returns the message for a lost page at `address`, and its length; `None` if no file is there.
fn message(address: usize) -> Option<([u8; 512], usize)> {
    const WHY: &[u8] = b": a part of this file, which is mapped into memory, can no longer be \
        read: it was truncated, or its disk failed; put it back in place and start again\n";
    let is_hit = |slot: &&Slot| {
        address < slot.end.load(Ordering::Acquire) && address >= slot.start.load(Ordering::Relaxed)
    };
    let slot = Slot::all().find(is_hit)?;
    let mut text = [0; 512];
    let name_len = slot.name_len.load(Ordering::Relaxed);
    let name = slot.name.iter().take(name_len).map(|byte| byte.load(Ordering::Relaxed));
    let all = b"error: ".iter().copied().chain(name).chain(WHY.iter().copied());
    let len = text.iter_mut().zip(all).map(|(to, from)| *to = from).count();
    Some((text, len))
}

#[cfg(any(target_os = "linux", target_os = "macos"))]
mod handler {
    use std::ptr;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Once, OnceLock};

    use super::{EXIT_FILE_LOST, message};

    /// The action for SIGBUS before this one.
    static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

    pub(super) fn install() {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            // SAFETY: `sigaction` is plain data, for which zeros are valid.
            let (mut before, mut ours): (libc::sigaction, libc::sigaction) =
                unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
            // SAFETY: this call installs nothing, and `before` is ours to write.
            if unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), &mut before) } != 0 {
                return;
            }
            let _ = BEFORE.set(before);
            ours.sa_sigaction = on_bus_error as *const () as usize;
            // Runs on the stack that Rust gives every thread for signals.
            ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            // SAFETY: the handler has the signature of SA_SIGINFO and is async-signal-safe.
            unsafe { libc::sigaction(libc::SIGBUS, &ours, ptr::null_mut()) };
        });
    }

    extern "C" fn on_bus_error(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        // SAFETY: the system passes a handler with SA_SIGINFO a valid description of the signal.
        let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
        // Signals that a process sent have no address.
        let is_fault = code > 0;
        if let Some((text, len)) = message(address).filter(|_| is_fault) {
            end(&text[..len]);
        }
        if let Some(before) = BEFORE.get() {
            // SAFETY: `before` was the valid action. A fault is raised again when the instruction
            // is repeated.
            unsafe { libc::sigaction(libc::SIGBUS, before, ptr::null_mut()) };
        }
        if !is_fault {
            // SAFETY: the signal goes to the former action as soon as this handler returns.
            unsafe { libc::raise(libc::SIGBUS) };
        }
    }

    /// Writes `text` once, and exits without destructors, because other threads still compute.
    fn end(text: &[u8]) -> ! {
        static IS_TOLD: AtomicBool = AtomicBool::new(false);
        if !IS_TOLD.swap(true, Ordering::Relaxed) {
            let mut stderr = libc::pollfd { fd: 2, events: libc::POLLOUT, revents: 0 };
            // SAFETY: one descriptor that lives through the call. The wait ends after a second, so
            // that a full pipe that no process reads gets no text.
            if unsafe { libc::poll(&mut stderr, 1, 1000) } == 1 {
                // SAFETY: `text` is initialised memory of that length.
                unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
            }
            // SAFETY: ends the process; nothing is read or written after it.
            unsafe { libc::_exit(i32::from(EXIT_FILE_LOST)) };
        }
        loop {
            // SAFETY: waits until the thread that writes the text ends the process.
            unsafe { libc::pause() };
        }
    }
}

/// On other systems a lost page has the system's default.
#[cfg(not(any(target_os = "linux", target_os = "macos")))]
mod handler {
    pub(super) fn install() {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watched_address_is_reported_with_the_end_of_its_files_name() {
        let bytes = vec![0u8; 100_000];
        let (start, end) = (bytes.as_ptr() as usize, bytes.as_ptr() as usize + bytes.len());
        let told = |address| {
            let (text, len) = message(address)?;
            Some(String::from_utf8(text[..len].to_vec()).unwrap())
        };
        let long = format!("/{}/model.safetensors", "x".repeat(1000));
        let guards: Vec<_> = (0..3).map(|_| Guard::new("/elsewhere".as_ref(), &[1])).collect();
        let guard = Guard::new(long.as_ref(), &bytes);
        for address in [start, start + 50_000, end - 1] {
            let text = told(address).unwrap();
            assert!(text.starts_with("error: xxx"), "{text}");
            assert!(text.contains("x/model.safetensors: a part of this file"), "{text}");
            assert!(text.ends_with("start again\n"), "{text}");
        }
        drop(guard);
        assert!(told(start + 50_000).is_none_or(|text| !text.contains("model.safetensors")));
        drop(guards);
    }
}
