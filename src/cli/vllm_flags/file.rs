//! `--config FILE.yaml` of vLLM: the flags of the file take the place of this one.

use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    path::Path,
};

use serde_json::Value as Json;

use super::{CliError, Flag, yaml};

/// Returns the arguments with the flags of a YAML file in the place of its flag. As in vLLM, flags
/// of the command line go before those of the file.
///
/// # Errors
/// A file that cannot be read or is not understood, and more than one.
pub(super) fn with_file(
    mut arguments: Vec<OsString>,
    is_serve: bool,
) -> Result<Vec<OsString>, CliError> {
    let Some((at, length, file)) = find(&arguments) else { return Ok(arguments) };
    let failed = |why: String| CliError::Usage(format!("--config {file}: {why}"));
    drop(arguments.drain(at..at + length));
    if find(&arguments).is_some() {
        return Err(failed("only one file may be given".to_owned()));
    }
    let text = crate::files::read_to_string(Path::new(&file));
    let keys = yaml::parse(&text.map_err(|error| failed(error.to_string()))?).map_err(&failed)?;
    let given: BTreeSet<String> = arguments
        .iter()
        .filter_map(|word| Flag::parse(word.to_str()?, is_serve))
        .map(|flag| flag.name)
        .collect();
    let is_model = is_serve && arguments.get(2).is_some_and(|word| !is_flag(word));
    let has_model = is_model || arguments.iter().any(|word| word == "-m");
    let mut flags = Vec::new();
    for (key, value) in keys {
        let name = key.replace('_', "-");
        if !given.contains(&name) && !(name == "model" && has_model) {
            flags.extend(words(&name, value).into_iter().map(OsString::from));
        }
    }
    drop(arguments.splice(at..at, flags));
    Ok(arguments)
}

fn is_flag(word: &OsStr) -> bool {
    word.to_string_lossy().starts_with('-')
}

/// Returns the place of the flag with such a file, its number of words, and the file.
fn find(arguments: &[OsString]) -> Option<(usize, usize, String)> {
    let is_yaml = |file: &str| file.ends_with(".yaml") || file.ends_with(".yml");
    let own = arguments.iter().enumerate().take_while(|(_, word)| *word != "--");
    let mut found = own.filter_map(|(at, word)| {
        let word = word.to_str()?;
        let (length, file) = match word.strip_prefix("--config=") {
            Some(file) => (1, file),
            None if word == "--config" => (2, arguments.get(at + 1)?.to_str()?),
            None => return None,
        };
        is_yaml(file).then(|| (at, length, file.to_owned()))
    });
    found.next()
}

/// Returns the flag `name` with a value of a file.
fn words(name: &str, value: Json) -> Vec<String> {
    let one = |value: Json| match value {
        Json::String(text) => format!("--{name}={text}"),
        other => format!("--{name}={other}"),
    };
    match value {
        Json::Null => Vec::new(),
        Json::Bool(true) => vec![format!("--{name}")],
        Json::Bool(false) => vec![format!("--no-{name}")],
        Json::Array(list) => list.into_iter().map(one).collect(),
        value => vec![one(value)],
    }
}
