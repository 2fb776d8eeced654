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
        // A template may take strings from one role alone. So the other messages of a conversation
        // are strings, and then lists of parts.
        let others = [json!("x"), json!([{ "type": "text", "text": "x" }])];
        let prints = |messages: &dyn Fn(&Value) -> Value| {
            let has_mark = |text: String| text.contains(MARK);
            others.iter().any(|other| render(&messages(other)).is_ok_and(has_mark))
        };
        let message = |role: &str, content: &Value| json!({ "role": role, "content": content });
        let mark = json!(MARK);
        let call = |other: &Value| {
            let nothing = if other.is_string() { json!("") } else { json!([]) };
            let mut call = message("assistant", &nothing);
            call["tool_calls"] = json!([{
                "id": "a1b2c3d4e", "type": "function",
                "function": { "name": "f", "arguments": {} },
            }]);
            call
        };
        let mut result = message("tool", &mark);
        result["tool_call_id"] = json!("a1b2c3d4e");
        result["name"] = json!("f");
        Self {
            system: prints(&|other| json!([message("system", &mark), message("user", other)])),
            user: prints(&|_| json!([message("user", &mark)])),
            assistant: prints(&|other| {
                let question = message("user", other);
                json!([question, message("assistant", &mark), question])
            }),
            tool: prints(&|other| {
                json!([message("user", other), call(other), result, message("assistant", other)])
            }),
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
