//! The file of a recording: how it is read, and how it is redacted.

use std::{fmt::Display, path::Path};

use crate::{
    api::recording::{Entry as Recorded, FRAMES, Scan, StopCause, encode, redacted, scan},
    cli::{CliError, output},
    config::layer::Entry,
    engine::{KEYS_SETTING, settings},
    files,
    journal::{Keys, open},
};

/// Reads a recording. Reports the reason why its end is missing.
pub(super) fn read(path: &Path, keys: Option<&Path>) -> Result<Scan, CliError> {
    let failed =
        |fault: &dyn Display| CliError::Replay(format!("recording {}: {fault}", path.display()));
    let keys = keys.map(|path| Keys::read(path, KEYS_SETTING)).transpose();
    let keys = keys.map_err(|error| CliError::Replay(error.to_string()))?;
    let bytes = files::read(path);
    let bytes = bytes.map_err(CliError::io(format!("cannot read {}", path.display())))?;
    let bytes = open(bytes.into(), keys.as_ref(), KEYS_SETTING).map_err(|error| failed(&error))?;
    let scan = scan(&bytes).map_err(|fault| failed(&fault))?;
    if let Some(fault) = &scan.fault {
        output::tell(format_args!(
            "note: {fault}; the {} entries before it are intact",
            scan.entries.len()
        ));
    }
    Ok(scan)
}

/// Returns the recorded settings of the engine, if the first frame can be read.
pub(super) fn settings(path: &Path, keys: Option<&Path>) -> Vec<Entry> {
    let first = || -> Option<Vec<Entry>> {
        let keys = keys.map(|path| Keys::read(path, KEYS_SETTING)).transpose().ok()?;
        let bytes = open(files::read(path).ok()?.into(), keys.as_ref(), KEYS_SETTING).ok()?;
        let (entries, _) = FRAMES.decode::<Vec<Recorded>>(&bytes).ok()??;
        match entries.into_iter().next()? {
            Recorded::Began(began) => Some(settings::entries(&began.settings)),
            _ => None,
        }
    };
    first().unwrap_or_default()
}

/// Returns how a recording ends, in words.
pub(super) fn end(scan: &Scan) -> String {
    match (scan.entries.last(), &scan.fault) {
        (_, Some(fault)) => fault.to_string(),
        (Some(Recorded::Stopped(StopCause::Closed)), None) => "the engine ended".to_owned(),
        (Some(Recorded::Stopped(cause)), None) => format!("it stops before the engine: {cause}"),
        (_, None) => "the engine was killed, or still runs".to_owned(),
    }
}

/// Writes the recording without token ids and texts to a file that does not exist yet.
pub(super) fn redact(scan: Scan, out: &Path) -> Result<(), CliError> {
    let failed = |error: &dyn Display| CliError::Replay(error.to_string());
    let redacted = redacted(scan, rand::random()).map_err(|error| failed(&error))?;
    let bytes = encode(&redacted).map_err(|error| failed(&error))?;
    let write = || {
        use std::io::Write;
        let mut options = std::fs::File::options();
        files::open_to_write(out, options.write(true).create_new(true))?.write_all(&bytes)
    };
    write().map_err(CliError::io(format!("cannot write {}", out.display())))
}
