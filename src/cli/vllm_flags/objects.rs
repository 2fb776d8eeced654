//! Flags with dots, which set one field of an object: `--speculative-config.method ngram`.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json};

use super::CliError;

/// vLLM's object of settings for constrained outputs, which are settings of their own here.
pub(super) const STRUCTURED_OUTPUTS: &str = "structured-outputs-config";

/// The objects so far, by the names of their flags.
#[derive(Default)]
pub(super) struct Objects(BTreeMap<String, Map<String, Json>>);

impl Objects {
    /// Sets the field at `path`. Without a path, `text` is an object, and all its fields are set.
    ///
    /// # Errors
    /// Text that is no object, a field without a name, and one within another that is no object.
    pub(super) fn set(&mut self, flag: &str, path: &[String], text: &str) -> Result<(), CliError> {
        if path.iter().any(|part| part.trim_end_matches('+').is_empty()) {
            let path = path.join(".");
            return Err(CliError::Usage(format!("--{flag}.{path}: a field has no name")));
        }
        let value: Json = serde_json::from_str(text).unwrap_or_else(|_| text.into());
        let mut object = self.0.entry(flag.to_owned()).or_default();
        let Some((last, parents)) = path.split_last() else {
            let Json::Object(fields) = value else {
                return Err(CliError::Usage(format!("--{flag} {text}: expected a JSON object")));
            };
            object.extend(fields);
            return Ok(());
        };
        for parent in parents {
            let inner = object.entry(parent.clone()).or_insert_with(|| Map::new().into());
            let Json::Object(inner) = inner else {
                return Err(CliError::Usage(format!("--{flag}: {parent} is no object")));
            };
            object = inner;
        }
        match last.strip_suffix('+') {
            // A list, item by item or with commas.
            Some(name) => {
                let items = text.split(',').map(Json::from);
                match object.entry(name.to_owned()).or_insert_with(|| Vec::<Json>::new().into()) {
                    Json::Array(list) => list.extend(items),
                    other => *other = items.collect(),
                }
            }
            None => drop(object.insert(last.clone(), value)),
        }
        Ok(())
    }

    /// Returns the arguments that set the objects. Notes fields that change nothing.
    ///
    /// # Errors
    /// A field of [`STRUCTURED_OUTPUTS`] that has no meaning here.
    pub(super) fn arguments(self, notes: &mut Vec<String>) -> Result<Vec<String>, CliError> {
        let mut arguments = Vec::new();
        for (flag, fields) in self.0 {
            if flag != STRUCTURED_OUTPUTS {
                arguments.push(format!("--{flag}={}", Json::Object(fields)));
                continue;
            }
            for (name, value) in fields {
                match (name.as_str(), &value) {
                    ("backend", _) => notes.push(format!(
                        "--{flag}.backend changes nothing here: grammars have one compiler"
                    )),
                    ("disable_any_whitespace", Json::Bool(on)) => {
                        arguments.push(format!("--disable-any-whitespace={on}"));
                    }
                    ("reasoning_parser", Json::String(parser)) if !parser.is_empty() => {
                        arguments.push(format!("--reasoning-parser={parser}"));
                    }
                    (_, Json::Null | Json::Bool(false)) => {}
                    (_, Json::String(text)) if text.is_empty() => {}
                    _ => {
                        return Err(CliError::Usage(format!(
                            "--{flag}: {name} has no meaning here: --disable-any-whitespace and \
                             --reasoning-parser are the settings of constrained outputs"
                        )));
                    }
                }
            }
        }
        Ok(arguments)
    }
}
