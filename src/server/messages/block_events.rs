//! Blocks as events: they start, grow and stop one after the other.

use super::{
    content::{ContentBlock, Signature, tool_use_id},
    event::{Delta, Event},
};
use crate::server::turn::TurnEvent;

/// Writes the blocks of one message.
pub(super) struct BlockEvents {
    shows_thinking: bool,
    num_blocks: usize,
    has_calls: bool,
    open: Option<Open>,
}

/// The last block, which grows.
enum Open {
    Text,
    Thinking(Signature),
    ToolUse,
}

impl BlockEvents {
    pub(super) fn new(shows_thinking: bool) -> Self {
        Self { shows_thinking, num_blocks: 0, has_calls: false, open: None }
    }

    /// Appends the events for new output.
    ///
    /// An incomplete call only stops: the stop reason shows that no call is to be run.
    pub(super) fn push(&mut self, news: TurnEvent, events: &mut Vec<Event>) {
        match news {
            TurnEvent::Content(text) => {
                if !matches!(self.open, Some(Open::Text)) {
                    self.start(Open::Text, ContentBlock::text(""), events);
                }
                self.grow(Delta::Text { text }, events);
            }
            TurnEvent::Reasoning(thinking) => {
                if !matches!(self.open, Some(Open::Thinking(_))) {
                    let (thinking, signature) = (String::new(), String::new());
                    let block = ContentBlock::Thinking { thinking, signature };
                    self.start(Open::Thinking(Signature::default()), block, events);
                }
                if let Some(Open::Thinking(signature)) = &mut self.open {
                    signature.update(&thinking);
                }
                if self.shows_thinking {
                    self.grow(Delta::Thinking { thinking }, events);
                }
            }
            TurnEvent::ToolCallStart { id, name, .. } => {
                let (id, input) = (tool_use_id(id), serde_json::Map::new());
                self.start(Open::ToolUse, ContentBlock::ToolUse { id, name, input }, events);
            }
            TurnEvent::ToolCallArguments { delta: partial_json, .. } => {
                self.grow(Delta::InputJson { partial_json }, events);
            }
            TurnEvent::ToolCallEnd { .. } => {
                self.has_calls = true;
                self.stop(events);
            }
            TurnEvent::ToolCallBroken { .. } => self.stop(events),
        }
    }

    /// Returns whether there was a complete call.
    pub(super) fn has_calls(&self) -> bool {
        self.has_calls
    }

    /// Ends the open block, if there is one.
    pub(super) fn stop(&mut self, events: &mut Vec<Event>) {
        let Some(open) = self.open.take() else { return };
        let index = self.num_blocks - 1;
        if let Open::Thinking(signature) = open {
            let delta = Delta::Signature { signature: signature.finish() };
            events.push(Event::ContentBlockDelta { index, delta });
        }
        events.push(Event::ContentBlockStop { index });
    }

    fn start(&mut self, open: Open, content_block: ContentBlock, events: &mut Vec<Event>) {
        self.stop(events);
        events.push(Event::ContentBlockStart { index: self.num_blocks, content_block });
        self.num_blocks += 1;
        self.open = Some(open);
    }

    fn grow(&self, delta: Delta, events: &mut Vec<Event>) {
        if self.open.is_some() {
            events.push(Event::ContentBlockDelta { index: self.num_blocks - 1, delta });
        }
    }
}

#[cfg(test)]
mod tests;
