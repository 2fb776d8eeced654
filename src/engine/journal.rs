//! Opens the journal of an engine.

use playhouse_actors::system::{Journal, JournalConfig, JournalError, SystemConfig};
use playhouse_kernels::DeviceKind;

use super::{LoadedModel, StartError};
use crate::{
    config::{EngineConfig, JournalFaultPolicy},
    journal::{FileDisk, fingerprint},
};

/// Opens the journal that the settings name. Blocks while the disk does.
///
/// # Errors
/// [`StartError`] if it cannot be opened, or the device may draw other tokens the next time.
pub(super) fn open(
    config: &EngineConfig,
    model: &LoadedModel,
    settings: &SystemConfig,
) -> Result<Option<Journal>, StartError> {
    let Some(folder) = &config.journal else { return Ok(None) };
    if model.device_kind != DeviceKind::Cpu && !config.deterministic {
        return Err(StartError::JournalNeedsDeterminism);
    }
    let started = || -> Result<Journal, JournalError> {
        let journal = JournalConfig {
            fingerprint: fingerprint(config, model)?,
            max_bytes: config.journal_max_bytes,
            refuses_on_fault: config.journal_on_fault == JournalFaultPolicy::Refuse,
            model_name: settings.model_name.clone(),
            engine: settings.engine.clone(),
        };
        Journal::start(Box::new(FileDisk::open(folder)?), journal)
    };
    let failed = |source| StartError::Journal { folder: folder.clone(), source };
    started().map(Some).map_err(failed)
}
