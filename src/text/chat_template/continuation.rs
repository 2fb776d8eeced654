//! `continue_final_message`: a prompt that ends in the middle of the last message.
//!
//! As in transformers, a mark follows the message's content, and the rendered text is cut at the
//! mark. The mark also shows whether a template trims content.

use playhouse_actors::ports::TextError;
use serde_json::Value;

/// The mark ends in a space: a template that trims content removes that space.
const MARK: &str = "PLAYHOUSE_FINAL_MESSAGE_GOES_ON_HERE ";

/// A final message with the mark in it.
pub(super) struct Continuation {
    /// The text of the message, without the mark.
    text: String,
}

impl Continuation {
    /// Appends the mark to the last text of the last message.
    pub(super) fn open(messages: &mut [Value], template: &str) -> Result<Self, TextError> {
        if !template.contains("content") {
            return Err(refused("the chat template does not show message content"));
        }
        let content = messages.last_mut().and_then(|message| message.get_mut("content"));
        let text = match content {
            Some(Value::String(text)) => Some(text),
            Some(Value::Array(parts)) => {
                parts.iter_mut().rev().find_map(|part| match part.get_mut("text") {
                    Some(Value::String(text)) => Some(text),
                    _ => None,
                })
            }
            _ => None,
        };
        let Some(marked) = text else {
            return Err(refused("the last message has no text to go on with"));
        };
        let text = marked.clone();
        marked.push_str(MARK);
        Ok(Self { text })
    }

    /// Returns the rendered text up to the mark.
    pub(super) fn cut(&self, mut rendered: String) -> Result<String, TextError> {
        let mark = rendered.rfind(MARK.trim_end());
        let (Some(mark), true) = (mark, rendered.contains(self.text.trim())) else {
            return Err(refused(
                "the last message does not appear in the prompt as it was given: the chat \
                 template leaves out or changes parts of it",
            ));
        };
        let kept_spacing = rendered[mark..].starts_with(MARK);
        rendered.truncate(mark);
        if !kept_spacing {
            rendered.truncate(rendered.trim_end().len());
        }
        Ok(rendered)
    }
}

fn refused(reason: &str) -> TextError {
    TextError::ContinueFinalMessage(reason.to_owned())
}
