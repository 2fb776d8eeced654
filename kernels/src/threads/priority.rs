//! The priority of threads.

/// Lets other threads go first: this one gets a quarter of a core that another thread wants, too. A
/// refusal changes only the speed.
#[cfg(target_os = "linux")]
pub(super) fn lower() {
    use std::cell::Cell;

    const NICENESS: i32 = 5;
    thread_local! {
        static IS_LOWERED: Cell<bool> = const { Cell::new(false) };
    }
    if !IS_LOWERED.replace(true) {
        // SAFETY: the call has no memory. On Linux it concerns this thread alone.
        unsafe { libc::nice(NICENESS) };
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn lower() {}
