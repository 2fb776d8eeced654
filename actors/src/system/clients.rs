//! The part of a system that clients meet: the gate, the memory for their requests, and the sinks
//! of their outputs.

use std::sync::Arc;

use super::{config::SystemConfig, gate::Gate, memory::MemoryBudget, sink::SinkTable};

/// The clients' part of one system. It outlives every actor.
pub(crate) struct Clients {
    /// The sinks of open streams.
    pub(crate) sinks: SinkTable,
    /// The memory for requests.
    pub(crate) memory: Arc<MemoryBudget>,
    /// The gate that accepts or rejects new requests.
    pub(crate) gate: Gate,
}

impl Clients {
    /// Returns the part of a system without clients.
    pub(crate) fn new(config: &SystemConfig) -> Self {
        let memory = config.memory.clone().unwrap_or_else(|| {
            let limit = config.max_request_memory_bytes;
            MemoryBudget::new(limit, &config.model_name, &config.engine)
        });
        Self { sinks: SinkTable::new(Arc::clone(&memory)), memory, gate: Gate::default() }
    }
}
