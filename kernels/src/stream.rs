//! Queues of a device.

/// A queue of work for a device, with the memory that its results lie in.
///
/// A thread has a queue of its own where it is not given one. So work that moves from thread to
/// thread, as a restarted worker's does, takes a queue along: its memory is used again, and what was
/// submitted first is done first. On the CPU there are none, and this costs nothing.
#[derive(Debug, Clone, Copy)]
pub struct DeviceStream {
    #[cfg(feature = "gpu")]
    id: cubecl_environment::stream::StreamId,
}

impl DeviceStream {
    /// Another one; devices that have fewer share them out.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "each is another one")]
    pub fn new() -> Self {
        Self {
            #[cfg(feature = "gpu")]
            id: cubecl_environment::stream::StreamId::allocate(),
        }
    }

    /// What `work` submits goes to this queue.
    pub fn run<R>(self, work: impl FnOnce() -> R) -> R {
        #[cfg(feature = "gpu")]
        return self.id.executes(work);
        #[cfg(not(feature = "gpu"))]
        work()
    }
}
