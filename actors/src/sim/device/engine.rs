//! The part of a device that the processes of one engine share, one after the other: its counts,
//! its faults, and the KV cache that outlives them.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::{DevicePlan, garbage::Reports, kept::Kept};
use crate::{
    ports::ModelInfo,
    sim::{memory::Memory, record::Record},
};

/// The device of one engine.
#[derive(Debug)]
pub struct EngineDevice {
    pub(super) info: ModelInfo,
    pub(super) plan: DevicePlan,
    pub(super) record: Arc<Record>,
    shared: Mutex<Shared>,
}

#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) num_executions: u64,
    pub(super) num_attempts: u64,
    pub(super) reports: Reports,
    pub(super) kept: Kept,
    pub(super) are_faults_over: bool,
}

impl EngineDevice {
    /// Returns a device that follows `plan`.
    #[must_use]
    pub fn new(info: ModelInfo, plan: DevicePlan, record: Arc<Record>) -> Arc<Self> {
        Arc::new(Self { info, plan, record, shared: Mutex::default() })
    }

    /// Locked after the state of a process's device.
    pub(super) fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock()
    }

    pub(super) fn empty_memory(&self) -> Memory {
        Memory::new(self.info.num_blocks, self.info.kv_spec.block_size)
    }

    /// Returns the number of steps executed so far.
    pub fn num_executions(&self) -> u64 {
        self.lock().num_executions
    }

    /// Ends the planned faults.
    pub fn end_faults(&self) {
        self.lock().are_faults_over = true;
    }

    /// Frees the KV cache that outlives processes. No process uses it.
    pub fn forget_kv_cache(&self) {
        self.lock().kept.forget();
    }
}
