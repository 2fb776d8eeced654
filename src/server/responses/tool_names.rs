//! The names of a response's tools. As in vLLM, the model sees a function of a namespace as
//! `namespace__name`, and the client gets both parts.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::server::http::error::ApiError;

/// The names of the tools, and those of functions in namespaces that the model sees.
#[derive(Debug, Default)]
pub(super) struct ToolNames {
    /// The tools in no namespace.
    plain: BTreeSet<String>,
    /// The custom ones among them.
    custom: BTreeSet<String>,
    /// Namespace and name of each function in one, by the name that the model sees.
    spaced: BTreeMap<String, (String, String)>,
}

/// Returns the name that the model sees.
pub(super) fn joined(namespace: &str, name: &str) -> String {
    format!("{namespace}__{name}")
}

impl ToolNames {
    /// Returns the names of `tools`.
    pub(super) fn of(tools: &[Value]) -> Self {
        let mut names = Self::default();
        for tool in tools {
            let Some(name) = tool["name"].as_str() else { continue };
            if tool["type"] != "namespace" {
                names.plain.insert(name.to_owned());
                if tool["type"] == "custom" {
                    names.custom.insert(name.to_owned());
                }
                continue;
            }
            let within = tool["tools"].as_array().into_iter().flatten();
            for own in within.filter_map(|tool| tool["name"].as_str()) {
                names.spaced.insert(joined(name, own), (name.to_owned(), own.to_owned()));
            }
        }
        names
    }

    /// Returns whether the tool of this name takes plain text.
    pub(super) fn is_custom(&self, name: &str) -> bool {
        self.custom.contains(name)
    }

    /// Returns the namespace and the name of the tool that the model calls `name`.
    pub(super) fn split(&self, name: String) -> (Option<String>, String) {
        match self.spaced.get(&name) {
            Some((namespace, own)) => (Some(namespace.clone()), own.clone()),
            None => (None, name),
        }
    }

    /// Returns the name that the model sees of the tool that a client chooses by `name`: that name
    /// if a tool has it, else that of the only function in a namespace with it.
    ///
    /// # Errors
    /// 400 if functions of several namespaces have the name.
    pub(super) fn shown<'a>(&'a self, name: &'a str) -> Result<&'a str, ApiError> {
        if self.plain.contains(name) || self.spaced.contains_key(name) {
            return Ok(name);
        }
        let mut found = self.spaced.iter().filter(|(_, (_, own))| own == name);
        match (found.next(), found.next()) {
            (None, _) => Ok(name),
            (Some((shown, _)), None) => Ok(shown),
            (Some(_), Some(_)) => {
                let message = format!(
                    "tool_choice: several namespaces have a tool {name:?}; choose it by \
                     namespace__name"
                );
                Err(ApiError::invalid("tool_choice", message))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_function_of_a_namespace_has_two_names() {
        let function = |name: &str| json!({"type": "function", "name": name});
        let space = |name: &str, tools: Vec<Value>| {
            let kind = "namespace";
            json!({"type": kind, "name": name, "tools": tools})
        };
        let tools = [
            function("now"),
            json!({"type": "custom", "name": "patch"}),
            space("crm", vec![function("find"), function("list"), function("now")]),
            space("wiki", vec![function("find")]),
        ];
        let names = ToolNames::of(&tools);
        assert!(names.is_custom("patch") && !names.is_custom("now"));
        let split = |name: &str| names.split(String::from(name));
        assert_eq!(split("crm__find"), (Some("crm".to_owned()), "find".to_owned()));
        assert_eq!(split("crm__lost"), (None, "crm__lost".to_owned()));
        assert_eq!(split("now"), (None, "now".to_owned()));
        assert_eq!(names.shown("list"), Ok("crm__list"));
        assert_eq!(names.shown("wiki__find"), Ok("wiki__find"));
        assert_eq!(names.shown("now"), Ok("now"), "a tool in no namespace comes first");
        let error = names.shown("find").unwrap_err();
        assert_eq!(error.param.as_deref(), Some("tool_choice"));
    }
}
