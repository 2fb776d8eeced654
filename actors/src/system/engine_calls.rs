//! The owner's calls about engines that have processes of their own.

use std::sync::Arc;

use super::{
    engine_process::{EngineProcess, EngineProcessView},
    engines::{DrainError, EngineState, EngineView},
    running::System,
};
use crate::{
    logic::request::{ids::EngineIndex, lora::AdapterFingerprint},
    message::LedgerMessage,
    ports::AdapterCheckError,
};

impl System {
    /// Lets the engine process read and check the adapter in the folder `path`, and name its
    /// content. `None`: there is no engine process, or it gave no answer.
    pub async fn check_adapter(
        &self,
        path: &str,
    ) -> Option<Result<AdapterFingerprint, AdapterCheckError>> {
        self.context().part.front()?.check_adapter(path).await
    }

    /// Returns the process of the first engine, if no core runs in this process.
    #[must_use]
    pub fn engine_process(&self) -> Option<EngineProcessView> {
        self.context().part.front().map(|engines| engines.first().view())
    }

    /// Returns every engine that has a process of its own.
    #[must_use]
    pub fn engines(&self) -> Vec<EngineView> {
        let ledger = self.context().ledger();
        let view = |process: &Arc<EngineProcess>| {
            let num_requests = ledger.num_live_of(process.engine());
            let state = match process.is_serving() {
                false => EngineState::Restarting,
                true if !process.is_draining() => EngineState::Serving,
                true if num_requests > 0 => EngineState::Draining,
                true => EngineState::Drained,
            };
            let (engine, process) = (process.engine(), process.view());
            EngineView { engine, state, num_requests, process }
        };
        self.context()
            .part
            .front()
            .into_iter()
            .flat_map(|engines| engines.all().map(view))
            .collect()
    }

    /// Lets an engine have no new requests. Its requests run to their ends, or with `moves` go on
    /// in other engines.
    ///
    /// # Errors
    /// [`DrainError`] if there is no such engine, or no other one would get requests.
    pub fn drain_engine(&self, engine: EngineIndex, moves: bool) -> Result<(), DrainError> {
        let engines = self.context().part.front().ok_or(DrainError::NoProcesses)?;
        engines.drain(engine, moves)?;
        self.context().directory.ledger.cast(LedgerMessage::EnginesChanged);
        Ok(())
    }

    /// Lets an engine have new requests again.
    ///
    /// # Errors
    /// [`DrainError`] if there is no such engine.
    pub fn undrain_engine(&self, engine: EngineIndex) -> Result<(), DrainError> {
        let engines = self.context().part.front().ok_or(DrainError::NoProcesses)?;
        engines.undrain(engine)?;
        // Requests may wait for an engine that gets them.
        self.context().directory.ledger.cast(LedgerMessage::EnginesChanged);
        Ok(())
    }
}
