//! A disk in memory that fails on purpose, and forgets unsynced bytes in a crash.

use std::{
    io::{Error, Result},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use parking_lot::{Condvar, Mutex};

use super::Left;
use crate::ports::JournalDisk;

/// A fault of the next operation of its kind, or of all operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskFault {
    /// An append writes a part of its bytes and fails: no space is left.
    Full,
    /// A sync fails. The bytes since the last sync never reach the disk.
    SyncFails,
    /// A sync says that all is durable and does nothing.
    SyncLies,
    /// A new segment cannot be written.
    ReplaceFails,
    /// A new segment is there, and the disk reports an error.
    ReplaceSucceedsAndFails,
    /// All writes fail until the disk is repaired.
    Dead,
    /// A sync does not return until the disk is repaired.
    Hangs,
    /// The segments cannot be removed.
    RemoveFails,
}

/// The disk. Clones share it, so a test keeps it over a crash.
#[derive(Clone, Default)]
pub struct FaultDisk(Arc<Shared>);

impl std::fmt::Debug for FaultDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FaultDisk").finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    repaired: Condvar,
}

#[derive(Default)]
struct State {
    /// The newest segment as the process sees it.
    segment: Option<Vec<u8>>,
    /// The segment that survives a crash.
    durable: Option<Vec<u8>>,
    fault: Option<DiskFault>,
    /// Ranges of the segment that a failed sync lost. They read as zeros after a crash.
    holes: Vec<std::ops::Range<usize>>,
    num_aside: Arc<AtomicUsize>,
}

impl FaultDisk {
    /// Moves the content to another disk, as if it belonged to an earlier process. Returns that
    /// disk. `None` if there is no content.
    #[must_use]
    pub fn leave(&self) -> Option<Self> {
        let mut state = self.0.state.lock();
        let left = State {
            segment: state.segment.take(),
            durable: state.durable.take(),
            fault: None,
            holes: std::mem::take(&mut state.holes),
            num_aside: Arc::clone(&state.num_aside),
        };
        left.segment.is_some().then(|| {
            let shared = Shared { state: Mutex::new(left), repaired: Condvar::new() };
            Self(Arc::new(shared))
        })
    }

    /// Returns it as a journal that another process has left.
    #[must_use]
    pub fn to_left(&self) -> Left {
        Left { disk: Box::new(self.clone()), place: "the disk".to_owned() }
    }

    /// Lets the next operation of the fault's kind fail. `None` repairs the disk.
    pub fn inject(&self, fault: Option<DiskFault>) {
        self.0.state.lock().fault = fault;
        self.0.repaired.notify_all();
    }

    /// Loses all that is not durable. Of the unsynced bytes, `keep` decides how many survive.
    pub fn crash(&self, keep: impl FnOnce(usize) -> usize) {
        let mut state = self.0.state.lock();
        let State { segment, durable, holes, .. } = &mut *state;
        if let (Some(segment), Some(durable)) = (&*segment, &mut *durable) {
            let unsynced = segment.get(durable.len()..).unwrap_or_default();
            durable.extend_from_slice(&unsynced[..keep(unsynced.len())]);
            for hole in holes.drain(..) {
                let end = hole.end.min(durable.len());
                durable[hole.start.min(end)..end].fill(0);
            }
        }
        state.segment = state.durable.clone();
        state.fault = None;
    }

    /// Changes the durable segment.
    pub fn damage(&self, change: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.0.state.lock();
        if let Some(durable) = &mut state.durable {
            change(durable);
        }
        state.segment = state.durable.clone();
    }

    /// Returns the number of segments that were set aside.
    #[must_use]
    pub fn num_aside(&self) -> usize {
        self.0.state.lock().num_aside.load(Ordering::Relaxed)
    }
}

impl State {
    fn is_hit_by(&mut self, fault: DiskFault) -> bool {
        match self.fault {
            Some(DiskFault::Dead) => true,
            Some(expected) if expected == fault => {
                self.fault = None;
                true
            }
            _ => false,
        }
    }
}

fn error(text: &str) -> Error {
    Error::other(text)
}

impl JournalDisk for FaultDisk {
    fn read(&mut self) -> Result<Option<Vec<u8>>> {
        Ok(self.0.state.lock().segment.clone())
    }

    fn replace(&mut self, content: &[u8]) -> Result<()> {
        let mut state = self.0.state.lock();
        if state.is_hit_by(DiskFault::ReplaceFails) {
            return Err(error("no space is left"));
        }
        state.segment = Some(content.to_vec());
        state.durable = Some(content.to_vec());
        state.holes.clear();
        match state.is_hit_by(DiskFault::ReplaceSucceedsAndFails) {
            true => Err(error("the folder could not be synced")),
            false => Ok(()),
        }
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let mut state = self.0.state.lock();
        let is_full = state.is_hit_by(DiskFault::Full);
        let written = if is_full { &bytes[..bytes.len() / 2] } else { bytes };
        state.segment.get_or_insert_default().extend_from_slice(written);
        if is_full { Err(error("no space is left")) } else { Ok(()) }
    }

    fn sync(&mut self) -> Result<()> {
        let mut state = self.0.state.lock();
        while state.fault == Some(DiskFault::Hangs) {
            self.0.repaired.wait(&mut state);
        }
        if state.fault != Some(DiskFault::Dead) && state.is_hit_by(DiskFault::SyncLies) {
            return Ok(());
        }
        if state.is_hit_by(DiskFault::SyncFails) {
            let synced = state.durable.as_ref().map_or(0, Vec::len);
            let end = state.segment.as_ref().map_or(0, Vec::len);
            state.holes.push(synced..end);
            return Err(error("input/output error"));
        }
        state.durable = state.segment.clone();
        Ok(())
    }

    fn set_aside(&mut self) -> Result<String> {
        let num_before = self.0.state.lock().num_aside.fetch_add(1, Ordering::Relaxed);
        Ok(format!("aside-{}", num_before + 1))
    }

    fn remove(&mut self) -> Result<()> {
        let mut state = self.0.state.lock();
        if state.is_hit_by(DiskFault::RemoveFails) {
            return Err(error("input/output error"));
        }
        state.segment = None;
        state.durable = None;
        Ok(())
    }
}
