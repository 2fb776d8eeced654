//! Threads bound to processor cores.

/// Returns the cores that this thread may run on, in order; none where the system does not report
/// them.
#[cfg(target_os = "linux")]
pub(super) fn allowed() -> Vec<usize> {
    // SAFETY: all zeros is a valid, empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the size is that of the set, which outlives the call; 0 is this thread.
    if unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) } != 0 {
        return Vec::new();
    }
    // SAFETY: each index is below the size of the set.
    (0..libc::CPU_SETSIZE as usize).filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) }).collect()
}

/// Binds this thread to some cores. A refusal changes only the speed.
#[cfg(target_os = "linux")]
pub(super) fn bind(cpus: &[usize]) {
    // SAFETY: all zeros is a valid, empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for cpu in cpus {
        // SAFETY: `allowed` returns indices below the size of the set.
        unsafe { libc::CPU_SET(*cpu, &mut set) };
    }
    // SAFETY: the size is that of the set, which outlives the call; 0 is this thread.
    unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) };
}

#[cfg(not(target_os = "linux"))]
pub(super) fn allowed() -> Vec<usize> {
    Vec::new()
}

#[cfg(not(target_os = "linux"))]
pub(super) fn bind(_: &[usize]) {}
