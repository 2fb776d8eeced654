//! `--config FILE.yaml` of vLLM: a file with flags. It is read as YAML 1.2. The words `yes`, `no`,
//! `on` and `off` are switches, as in YAML 1.1, which vLLM reads.

use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    path::Path,
};

use serde_json::{Map, Value as Json};

use super::{CliError, Flag, opposite};

/// Returns the arguments with the flags of a YAML file in place of its flag. As in vLLM, they stand
/// before the other flags, whose values count. Flags that the command line has are left out.
///
/// # Errors
/// A file that cannot be read or is no YAML with keys, and more than one file.
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
    let keys = keys(&text.map_err(|error| failed(error.to_string()))?).map_err(failed)?;
    let given: BTreeSet<String> = arguments
        .iter()
        .filter_map(|word| Flag::parse(word.to_str()?, is_serve))
        .map(|flag| flag.name)
        .collect();
    let is_model = is_serve && arguments.get(2).is_some_and(|word| !is_flag(word));
    let has_model = is_model || arguments.iter().any(|word| word == "-m");
    // A switch and its opposite are one flag.
    let is_given = |name: &String| {
        let others = [Some(format!("no-{name}")), opposite(name)];
        given.contains(name) || others.iter().flatten().any(|other| given.contains(other))
    };
    let mut flags = Vec::new();
    for (key, value) in keys {
        let name = key.replace('_', "-");
        if !(is_given(&name) || name == "model" && has_model) {
            flags.extend(words(&name, value).into_iter().map(OsString::from));
        }
    }
    let place = at.min(if is_model { 3 } else { 2 });
    drop(arguments.splice(place..place, flags));
    Ok(arguments)
}

/// Returns the keys of a file with their values.
///
/// # Errors
/// The fault and its place. The text of the file is not shown, because it may have keys of the API.
fn keys(text: &str) -> Result<Map<String, Json>, String> {
    let keys: Option<Map<String, Json>> =
        serde_saphyr::from_str(text).map_err(|error| error.without_snippet().to_string())?;
    Ok(keys.unwrap_or_default())
}

fn is_flag(word: &OsStr) -> bool {
    word.to_string_lossy().starts_with('-')
}

/// Returns the place of the flag with such a file, its number of words, and the file.
fn find(arguments: &[OsString]) -> Option<(usize, usize, String)> {
    let is_yaml = |file: &str| file.ends_with(".yaml") || file.ends_with(".yml");
    let mut own = arguments.iter().enumerate().take_while(|(_, word)| *word != "--");
    own.find_map(|(at, word)| {
        let word = word.to_str()?;
        let (length, file) = match word.strip_prefix("--config=") {
            Some(file) => (1, file),
            None if word == "--config" => (2, arguments.get(at + 1)?.to_str()?),
            None => return None,
        };
        is_yaml(file).then(|| (at, length, file.to_owned()))
    })
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_have_texts_numbers_switches_lists_and_objects() {
        let text = "---\n# A server.\nmodel: org/name  # of the hub\nport: 12323\n\
                    host: \"0.0.0.0\"\nserved-model-name: [a, b]\nenable-lora: true\n\
                    lora-modules:\n- x=/a\n- 'y=it''s'\nmax-model-len: 4k\n\
                    gpu-memory-utilization: 0.9\nspeculative-config:\n  method: ngram\n  deep:\n    \
                    num: 3\nallowed-origins:\n  - \"*\"\nempty:\nno-x: off\nurl: http://x/#y\n\
                    quoted: 'a # b'\nobject: {a: [1], \"b\": no}\nlines: |\n  a\n  b\n";
        let expected = json!({
            "model": "org/name", "port": 12323, "host": "0.0.0.0", "served-model-name": ["a", "b"],
            "enable-lora": true, "lora-modules": ["x=/a", "y=it's"], "max-model-len": "4k",
            "gpu-memory-utilization": 0.9,
            "speculative-config": {"method": "ngram", "deep": {"num": 3}},
            "allowed-origins": ["*"], "empty": null, "no-x": false, "url": "http://x/#y",
            "quoted": "a # b", "object": {"a": [1], "b": false}, "lines": "a\nb\n",
        });
        assert_eq!(keys(text).map(Json::Object), Ok(expected));
        assert_eq!(keys("\n# nothing\n"), Ok(Map::new()));
    }

    #[test]
    fn other_files_are_refused_with_the_place_of_the_fault() {
        for text in ["port: 1\nport: 2\n", "port: 1\n  host: secret\n", "word\n", "- a\n"] {
            let error = keys(text).unwrap_err();
            assert!(error.contains("line ") && !error.contains("secret"), "{text}: {error}");
        }
    }
}
