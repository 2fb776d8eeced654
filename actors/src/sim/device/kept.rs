//! The KV cache that outlives its process, with the words of its directory.

use std::{io, mem, sync::Arc};

use super::{Device, DeviceFault, Parts, State};
use crate::{ports::KeptMemory, sim::memory::Memory};

/// The content and the directory.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// `None`: it is empty, or a process uses it.
    content: Option<Memory>,
    words: Vec<u64>,
    num_stores: u64,
}

impl Kept {
    pub(super) fn forget(&mut self) {
        self.content = None;
        self.words.fill(0);
    }
}

impl Device {
    /// Ends the process of this device. It writes nothing from now on.
    pub fn end(&self) {
        let mut state = self.state.lock();
        state.is_dead = true;
        self.leave_kept(&mut state);
    }

    /// Gives the process an empty memory, and leaves the one that outlives the process.
    pub(super) fn leave_kept(&self, state: &mut State) {
        let left = mem::replace(&mut state.memory, self.engine.empty_memory());
        if mem::take(&mut state.is_kept) {
            self.engine.lock().kept.content = Some(left);
        }
    }

    /// Lets the process use the KV cache that its predecessors have left.
    pub(super) fn keep(self: &Arc<Self>, num_words: usize, parts: Parts) -> Arc<dyn KeptMemory> {
        let mut state = self.state.lock();
        if !state.is_dead {
            let mut shared = self.engine.lock();
            let kept = &mut shared.kept;
            state.memory = kept.content.take().unwrap_or_else(|| self.engine.empty_memory());
            state.is_kept = true;
            kept.words.resize(num_words, 0);
        }
        Arc::new(OfProcess { device: Arc::clone(self), parts })
    }
}

/// The memory as one process has it.
#[derive(Debug)]
struct OfProcess {
    device: Arc<Device>,
    parts: Parts,
}

impl KeptMemory for OfProcess {
    fn fingerprint(&self) -> [u8; 32] {
        [5; 32]
    }

    fn words(&self) -> Vec<u64> {
        self.device.engine.lock().kept.words.clone()
    }

    fn store(&self, place: usize, value: u64) {
        let state = self.device.state.lock();
        if state.is_dead {
            return;
        }
        let mut shared = self.device.engine.lock();
        if let Some(word) = shared.kept.words.get_mut(place) {
            *word = value;
        }
        shared.kept.num_stores += 1;
        let number = shared.kept.num_stores;
        let is_last =
            self.device.engine.plan.last_stores.contains(&number) && !shared.are_faults_over;
        drop((state, shared));
        if is_last {
            self.device.engine.record.trouble();
            self.parts.end_process(DeviceFault::Death);
        }
    }

    fn clear(&self) -> io::Result<()> {
        let mut state = self.device.state.lock();
        if !state.is_dead {
            state.memory = self.device.engine.empty_memory();
            self.device.engine.lock().kept.words.fill(0);
        }
        Ok(())
    }
}
