//! Opens the journal of an engine.

use std::sync::Arc;

use playhouse_actors::system::{Journal, JournalConfig, JournalError, SystemConfig};
use playhouse_kernels::DeviceKind;

use super::{LoadedModel, StartError};
use crate::{
    config::{EngineConfig, JournalFaultPolicy},
    journal::{JournalFolder, Keys, fingerprint},
};

/// How an engine shares the folder of journals with others.
#[derive(Debug, Clone, Default)]
pub(crate) enum JournalSharing {
    /// No process has the folder.
    #[default]
    Alone,
    /// The process with this id has started this one, and ends. It has the folder, too.
    #[cfg_attr(
        not(all(unix, feature = "cli")),
        allow(dead_code, reason = "no process takes over from another")
    )]
    After(u32),
    /// Another engine of this process has it.
    With(Option<Arc<JournalFolder>>),
}

/// The folder of an engine's journal, and the journal.
pub(super) struct Opened {
    pub(super) folder: Arc<JournalFolder>,
    pub(super) journal: Arc<Journal>,
}

/// Opens the journal that the settings name. Blocks while the disk does.
///
/// # Errors
/// [`StartError`] if it cannot be opened, or the device may draw other tokens the next time.
pub(super) fn open(
    config: &EngineConfig,
    model: &LoadedModel,
    settings: &SystemConfig,
    sharing: JournalSharing,
) -> Result<Option<Opened>, StartError> {
    let Some(path) = &config.journal else { return Ok(None) };
    if model.device_kind != DeviceKind::Cpu && !config.deterministic {
        return Err(StartError::JournalNeedsDeterminism);
    }
    let started = || -> Result<Opened, JournalError> {
        let keys = config.journal_key_file.as_deref();
        let keys = keys.map(|path| Keys::read(path, "journal_key_file")).transpose()?;
        let folder = match sharing {
            JournalSharing::With(Some(folder)) if folder.path() == path => folder,
            JournalSharing::After(process) => {
                Arc::new(JournalFolder::open_beside(path, keys, process)?)
            }
            JournalSharing::With(_) | JournalSharing::Alone => {
                Arc::new(JournalFolder::open(path, keys)?)
            }
        };
        let journal = JournalConfig {
            fingerprint: fingerprint(config, model)?,
            max_bytes: config.journal_max_bytes,
            refuses_on_fault: config.journal_on_fault == JournalFaultPolicy::Refuse,
            model_name: settings.model_name.clone(),
            engine: settings.engine.clone(),
        };
        let (disk, left) = (folder.begin()?, folder.left()?);
        let journal = Arc::new(Journal::start(Box::new(disk), left, journal)?);
        Ok(Opened { folder, journal })
    };
    let failed = |source| StartError::Journal { folder: path.clone(), source };
    started().map(Some).map_err(failed)
}
