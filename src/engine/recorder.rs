//! Starts the recorder of an engine.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use playhouse_actors::{
    logic::{recording::Began, scheduler::SchedulerConfig},
    system::{Recorder, RecorderConfig, RecordingFile},
};

use super::{LoadedModel, StartError, settings};
use crate::{
    config::{EngineConfig, LogSettings},
    files,
    journal::{Keys, SealedFile, bytes_of, create_folder, fingerprint, private},
    version,
};

/// The setting that names the file of keys.
pub(crate) const KEYS_SETTING: &str = "record_key_file";

/// The ending of a recording's name.
const EXTENSION: &str = "recording";

/// Most recordings that one process may begin within a second.
const NAMES_MAX: u32 = 1_000;

/// Starts the recorder that the settings ask for. Its file is created with the first request.
///
/// # Errors
/// [`StartError::Recording`] if the folder cannot be used, or the system gives no thread.
pub(super) fn start(
    config: &EngineConfig,
    model: &LoadedModel,
    scheduler: &SchedulerConfig,
) -> Result<Option<Arc<Recorder>>, StartError> {
    let Some(folder) = &config.record else { return Ok(None) };
    let started = || -> io::Result<Recorder> {
        create_folder(folder)?;
        let began = Began {
            version: version::VERSION.to_owned(),
            fingerprint: fingerprint(config, model)?,
            scheduler: scheduler.clone(),
            settings: recorded_settings(config),
            is_redacted: false,
        };
        let keys = config.record_key_file.as_deref();
        let keys = keys.map(|path| Keys::read(path, KEYS_SETTING)).transpose()?;
        let bytes_of = if keys.is_some() { bytes_of } else { |len| len };
        let folder = folder.clone();
        let open = move || {
            let (path, file) = create(&folder)?;
            tracing::info!(path = %path.display(), "the engine is recorded");
            Ok(match keys {
                Some(keys) => Box::new(SealedFile::begin(file, &keys)?) as RecordingFile,
                None => Box::new(file),
            })
        };
        let max_bytes = config.record_max_bytes;
        Recorder::start(RecorderConfig {
            began,
            has_media: config.record_media,
            max_bytes,
            bytes_of,
            open: Box::new(open),
        })
    };
    let failed = |source| StartError::Recording { folder: folder.clone(), source };
    started().map(|recorder| Some(Arc::new(recorder))).map_err(failed)
}

/// Returns the settings that a replay starts from, without secrets and without files that it must
/// not write.
fn recorded_settings(config: &EngineConfig) -> Vec<u8> {
    let config = EngineConfig {
        hf_token: None,
        journal: None,
        journal_key_file: None,
        record: None,
        record_key_file: None,
        ..config.clone()
    };
    settings::encode(&config, &LogSettings::default())
}

/// Creates a file of a name that did not exist: the time and the process.
fn create(folder: &Path) -> io::Result<(PathBuf, File)> {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let process = std::process::id();
    let mut number = 1;
    loop {
        let path = folder.join(format!("{seconds}-{process}-{number}.{EXTENSION}"));
        match files::open_to_write(&path, private().create_new(true)) {
            Ok(file) => return Ok((path, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < NAMES_MAX => {
                number += 1;
            }
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_recording_has_a_name_of_its_own() {
        let folder = tempfile::TempDir::new().unwrap();
        let (first, _) = create(folder.path()).unwrap();
        let (second, file) = create(folder.path()).unwrap();
        assert_ne!(first, second);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        }
        drop(file);
    }

    #[test]
    fn recorded_settings_have_no_secret() {
        let secret = crate::config::Secret::new("hf_secret");
        let config = EngineConfig { hf_token: Some(secret), ..EngineConfig::new("a folder") };
        let recorded = settings::decode(&recorded_settings(&config)).unwrap().engine;
        assert_eq!(recorded, EngineConfig::new("a folder"));
    }
}
