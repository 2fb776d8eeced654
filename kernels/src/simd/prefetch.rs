//! Asking for memory before it is needed.

/// Asks for the cache line at `place`, which nobody need own: the request never faults. Nothing
/// where the target has no such instruction.
#[inline(always)]
pub(crate) fn prefetch(place: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: part of the baseline (SSE), and without effect for any address that is not mapped.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(place.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a hint, without effect for any address that is not mapped.
    unsafe {
        std::arch::asm!(
            "prfm pldl1keep, [{place}]",
            place = in(reg) place,
            options(nostack, preserves_flags, readonly),
        );
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = place;
}

/// The same, but no nearer than L2: what is asked for kilobytes ahead would drive out of L1 what is
/// needed before it.
#[inline(always)]
pub(crate) fn prefetch_l2(place: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as above.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T1 }>(place.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!(
            "prfm pldl2keep, [{place}]",
            place = in(reg) place,
            options(nostack, preserves_flags, readonly),
        );
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = place;
}
