//! A conversation as a file: `{"messages": [...]}`, as the API takes messages.

use std::{io::Write, path::Path};

use serde_json::{Value, json};

use crate::{cli::CliError, files};

/// Writes `messages` to a new file.
pub(super) fn save(path: &Path, messages: &[Value]) -> Result<(), CliError> {
    let text = format!("{:#}\n", json!({ "messages": messages }));
    let written = files::create_new(path).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| CliError::Entry(format!("cannot write {}: {error}", path.display())))
}

/// Returns the messages in a file: the text of the system prompt, if there is one, and the others.
pub(super) fn load(path: &Path) -> Result<(Option<String>, Vec<Value>), CliError> {
    let name = path.display();
    let text = files::read_to_string(path)
        .map_err(|error| CliError::Entry(format!("cannot read {name}: {error}")))?;
    parse(&text)
        .map_err(|reason| CliError::Entry(format!("{name} holds no conversation: {reason}")))
}

fn parse(text: &str) -> Result<(Option<String>, Vec<Value>), String> {
    let file: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let messages = file["messages"].as_array().ok_or("\"messages\" is no list")?;
    let (mut system, mut turns) = (None, Vec::new());
    for (index, message) in messages.iter().enumerate() {
        match (message["role"].as_str(), message["content"].as_str()) {
            (Some("system"), Some(text)) if index == 0 => system = Some(text.to_owned()),
            (Some("user" | "assistant"), Some(_)) => turns.push(message.clone()),
            _ => return Err(format!("message {index} is not one of user or assistant with text")),
        }
    }
    Ok((system, turns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_saved_conversation_is_loaded() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("talk.json");
        let messages = [
            json!({"role": "system", "content": "Be brief."}),
            json!({"role": "user", "content": "Hello"}),
            json!({"role": "assistant", "content": "Hi", "reasoning_content": "a greeting"}),
        ];
        save(&path, &messages).unwrap();
        let (system, turns) = load(&path).unwrap();
        assert_eq!((system.as_deref(), &turns[..]), (Some("Be brief."), &messages[1..]));
        let error = save(&path, &[]).unwrap_err();
        assert!(error.is_about_one_entry(), "nothing is written over: {error}");
        let error = load(&folder.path().join("other.json")).unwrap_err();
        assert!(error.is_about_one_entry(), "{error}");
    }

    #[test]
    fn an_invalid_conversation_has_a_reason() {
        let reason = |text| parse(text).unwrap_err();
        assert!(reason("{").contains("line 1"));
        assert_eq!(reason("{}"), "\"messages\" is no list");
        let tool = r#"{"messages": [{"role": "tool", "content": "x"}]}"#;
        assert_eq!(reason(tool), "message 0 is not one of user or assistant with text");
    }
}
