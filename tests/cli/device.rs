//! The devices of this machine, as the program offers them.

use crate::process::playhouse;

/// Returns the name of a GPU whose memory is the process's own, if there is one.
pub(crate) fn software_gpu() -> Option<String> {
    let facts = playhouse(&["collect-env", "--output", "json"]).succeeds();
    let facts: serde_json::Value = serde_json::from_str(&facts).unwrap();
    let mut devices = facts["devices"].as_array().unwrap().iter().filter_map(|d| d.as_str());
    devices.find_map(|device| Some(device.strip_suffix("(software)")?.to_owned()))
}
