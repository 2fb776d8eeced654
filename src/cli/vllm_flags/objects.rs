//! Flags with dots, which set one field of an object: `--speculative-config.method ngram`.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json};

use super::CliError;

/// vLLM's object of settings for constrained outputs, which are settings of their own here.
pub(super) const STRUCTURED_OUTPUTS: &str = "structured-outputs-config";

/// The objects so far, by the names of their flags.
#[derive(Default)]
pub(super) struct Objects(BTreeMap<String, Object>);

/// The value of a flag.
#[derive(Default)]
struct Object {
    /// The text of the whole object: that of the last flag without dots.
    whole: Option<String>,
    /// The fields of the flags with dots. As in vLLM, they replace a whole object.
    fields: Map<String, Json>,
}

impl Objects {
    /// Sets the whole object. Returns the text that it replaces.
    pub(super) fn set_whole(&mut self, flag: &str, text: String) -> Option<String> {
        self.0.entry(flag.to_owned()).or_default().whole.replace(text)
    }

    /// Sets the field at `path`.
    ///
    /// # Errors
    /// A field without a name, and one within another that is no object.
    pub(super) fn set(&mut self, flag: &str, path: &[String], text: &str) -> Result<(), CliError> {
        if path.iter().any(|part| part.trim_end_matches('+').is_empty()) {
            let path = path.join(".");
            return Err(CliError::Usage(format!("--{flag}.{path}: a field has no name")));
        }
        let value: Json = serde_json::from_str(text).unwrap_or_else(|_| text.into());
        let mut object = &mut self.0.entry(flag.to_owned()).or_default().fields;
        let Some((last, parents)) = path.split_last() else { return Ok(()) };
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

    /// Returns the arguments that set the objects. Notes fields and objects that change nothing.
    ///
    /// # Errors
    /// A field of [`STRUCTURED_OUTPUTS`] that has no meaning here, or text that is no object there.
    pub(super) fn arguments(self, notes: &mut Vec<String>) -> Result<Vec<String>, CliError> {
        let mut arguments = Vec::new();
        for (flag, Object { whole, fields }) in self.0 {
            let text = match whole {
                Some(whole) if fields.is_empty() => whole,
                Some(whole) => {
                    notes.push(format!(
                        "--{flag} {whole} changes nothing here: as in vLLM, the flags with dots \
                         replace it"
                    ));
                    Json::Object(fields).to_string()
                }
                None => Json::Object(fields).to_string(),
            };
            if flag != STRUCTURED_OUTPUTS {
                arguments.push(format!("--{flag}={text}"));
                continue;
            }
            let Ok(Json::Object(fields)) = serde_json::from_str(&text) else {
                return Err(CliError::Usage(format!("--{flag} {text}: expected a JSON object")));
            };
            for (name, value) in fields {
                match (name.as_str(), &value) {
                    ("backend", _) => notes.push(format!(
                        "--{flag}.backend changes nothing here: grammars have one compiler"
                    )),
                    ("disable_any_whitespace", Json::Bool(on)) => {
                        arguments.push(format!("--disable-any-whitespace={on}"));
                    }
                    ("disable_additional_properties", Json::Bool(on)) => {
                        arguments.push(format!("--disable-additional-properties={on}"));
                    }
                    ("reasoning_parser", Json::String(parser)) if !parser.is_empty() => {
                        arguments.push(format!("--reasoning-parser={parser}"));
                    }
                    (_, Json::Null | Json::Bool(false)) => {}
                    (_, Json::String(text)) if text.is_empty() => {}
                    _ => {
                        return Err(CliError::Usage(format!(
                            "--{flag}: {name} has no meaning here: --disable-any-whitespace, \
                             --disable-additional-properties and --reasoning-parser are the \
                             settings of constrained outputs"
                        )));
                    }
                }
            }
        }
        Ok(arguments)
    }
}
