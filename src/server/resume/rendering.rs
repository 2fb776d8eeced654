//! The facts about a server that decide how outputs become the fields of an answer. Another process
//! repeats an exchange only if they are the same, because the client has the beginning of the
//! answer.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::{
    config::{JsonObject, ServerSettings},
    engine::Engine,
};

/// The facts. Each is a text that is the same if and only if nothing of its kind has changed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(in crate::server) struct Rendering {
    /// Hash of the chat templates, and of the variables that the server gives them. They suggest
    /// parsers, and say whether thoughts are begun.
    chat_templates: String,
    tool_call_parser: String,
    reasoning_parser: String,
    /// The settings about fields of answers.
    fields: String,
}

impl Rendering {
    /// Returns the facts about a server with these settings.
    pub(in crate::server) fn new(settings: &ServerSettings, engine: &Engine) -> Self {
        let mut hasher = Sha256::new();
        for template in &engine.loaded().chat_templates {
            hasher.update(template.len().to_le_bytes());
            hasher.update(template);
        }
        if let Some(JsonObject(kwargs)) = &settings.default_chat_template_kwargs {
            hasher.update(Value::Object(kwargs.clone()).to_string());
        }
        let digest = hasher.finalize();
        let fields = [
            settings.enable_auto_tool_choice,
            settings.exclude_tools_when_tool_choice_none,
            settings.enable_prompt_tokens_details,
            settings.enable_force_include_usage,
            settings.return_tokens_as_token_ids,
            settings.enable_per_request_metrics,
        ];
        Self {
            chat_templates: digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect(),
            tool_call_parser: format!("{:?}", settings.tool_call_parser),
            reasoning_parser: format!("{:?}", settings.reasoning_parser),
            fields: format!("{fields:?}"),
        }
    }

    /// Returns the first fact, by its name and its values, that changes answers of `route`.
    pub(super) fn difference(&self, now: &Self, route: &str) -> Option<String> {
        let of_chats = [
            ("chat template", &self.chat_templates, &now.chat_templates),
            ("tool_call_parser", &self.tool_call_parser, &now.tool_call_parser),
            ("reasoning_parser", &self.reasoning_parser, &now.reasoning_parser),
        ];
        // Completions have neither a template nor a turn.
        let of_chats = of_chats.into_iter().filter(|_| route != "/v1/completions");
        let mut facts = of_chats.chain([("settings of answers", &self.fields, &now.fields)]);
        let (fact, then, now) = facts.find(|(_, then, now)| then != now)?;
        Some(format!("{fact}: {then} then, {now} now"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parser_changes_chats_and_no_completions() {
        let then = Rendering::default();
        let now = Rendering { tool_call_parser: "hermes".to_owned(), ..then.clone() };
        let difference = then.difference(&now, "/v1/chat/completions").unwrap();
        assert_eq!(difference, "tool_call_parser:  then, hermes now");
        assert_eq!(then.difference(&now, "/v1/completions"), None);
        let now = Rendering { fields: "x".to_owned(), ..then.clone() };
        assert!(then.difference(&now, "/v1/completions").is_some());
        assert_eq!(then.difference(&then, "/v1/messages"), None);
    }
}
