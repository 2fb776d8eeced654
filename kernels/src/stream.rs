//! Queues of a device.

/// A queue of work for a device, with the memory of its results.
///
/// By default every thread has a queue of its own. Work that moves from thread to thread, as a
/// restarted worker's does, therefore takes its queue along. The queue's memory is then reused, and
/// work is done in the order of submission. The CPU has no queues, and this costs nothing there.
#[derive(Debug, Clone, Copy)]
pub struct DeviceStream {
    #[cfg(feature = "gpu")]
    id: cubecl_environment::stream::StreamId,
}

impl DeviceStream {
    /// Returns another queue. A device with fewer queues maps several to one.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "each call makes another queue")]
    pub fn new() -> Self {
        Self {
            #[cfg(feature = "gpu")]
            id: cubecl_environment::stream::StreamId::allocate(),
        }
    }

    /// Runs `work`, whose submissions go to this queue.
    pub fn run<R>(self, work: impl FnOnce() -> R) -> R {
        #[cfg(feature = "gpu")]
        return self.id.executes(work);
        #[cfg(not(feature = "gpu"))]
        work()
    }
}
