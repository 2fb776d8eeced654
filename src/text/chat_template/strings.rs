//! The roles whose content may be a string in a template that loops over lists of parts.
//!
//! Such a template may take strings too, or only for some roles: a result of a tool is often
//! printed as it is. transformers passes a string on as a string. Here a role keeps strings if the
//! template prints them, which one small conversation for each role shows.

use playhouse_actors::ports::TextError;
use serde_json::{Value, json};

/// A text that no template contains.
const MARK: &str = "Zq7PlayhouseProbe7qZ";

/// For each role, whether its content may be a string.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct StringRoles {
    system: bool,
    user: bool,
    assistant: bool,
    tool: bool,
}

impl StringRoles {
    /// Returns the roles whose strings `render` prints. It gets the messages of a conversation.
    pub(super) fn of(render: impl Fn(&Value) -> Result<String, TextError>) -> Self {
        let prints = |messages: &Value| render(messages).is_ok_and(|text| text.contains(MARK));
        let message = |role: &str, content: &str| json!({ "role": role, "content": content });
        let (question, answer) = (message("user", "x"), message("assistant", "x"));
        let call = json!({ "role": "assistant", "content": "", "tool_calls": [{
            "id": "a1b2c3d4e", "type": "function",
            "function": { "name": "f", "arguments": {} },
        }] });
        let mut result = message("tool", MARK);
        result["tool_call_id"] = json!("a1b2c3d4e");
        result["name"] = json!("f");
        Self {
            system: prints(&json!([message("system", MARK), question])),
            user: prints(&json!([message("user", MARK)])),
            assistant: prints(&json!([question, message("assistant", MARK), question])),
            tool: prints(&json!([question, call, result, answer])),
        }
    }

    /// Returns whether the content of a message of `role` may be a string.
    pub(super) fn has(self, role: &str) -> bool {
        match role {
            "system" | "developer" => self.system,
            "assistant" => self.assistant,
            "tool" => self.tool,
            _ => self.user,
        }
    }
}
