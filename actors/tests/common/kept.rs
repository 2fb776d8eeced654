//! Memory that outlives fake processes. A dead process stores nothing there.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::Mutex;
use playhouse_actors::ports::KeptMemory;

/// The words of a directory.
pub(crate) type FakeMemory = Mutex<Vec<u64>>;

/// The memory as one process has it.
#[derive(Debug, Clone)]
pub(crate) struct OfProcess {
    pub(crate) memory: Arc<FakeMemory>,
    pub(crate) is_dead: Arc<AtomicBool>,
}

impl OfProcess {
    pub(crate) fn resize(&self, num_words: usize) {
        self.memory.lock().resize(num_words, 0);
    }
}

impl KeptMemory for OfProcess {
    fn fingerprint(&self) -> [u8; 32] {
        [5; 32]
    }

    fn words(&self) -> Vec<u64> {
        self.memory.lock().clone()
    }

    fn store(&self, place: usize, value: u64) {
        let mut words = self.memory.lock();
        // Under the lock: the next process reads either before this, or does not see it.
        if !self.is_dead.load(Ordering::Acquire) {
            words[place] = value;
        }
    }

    fn clear(&self) -> io::Result<()> {
        let mut words = self.memory.lock();
        if !self.is_dead.load(Ordering::Acquire) {
            words.fill(0);
        }
        Ok(())
    }
}
