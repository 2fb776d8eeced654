//! Writes the events of a tool parser.

use super::super::event::ToolEvent;

/// Collects events, and remembers the text of a call until it is complete.
///
/// White space alone before a call, between calls or after them is layout, and dropped. If no call
/// is near it, it is content.
#[derive(Debug)]
pub(super) struct Calls {
    events: Vec<ToolEvent>,
    num_calls: usize,
    /// Whether a call has started and is not finished.
    is_open: bool,
    /// Text of a block since its start or since its last call.
    held: String,
    /// White space that is content only if other content follows. `None` once that has arrived.
    blank: Option<String>,
}

impl Calls {
    pub(super) fn new() -> Self {
        Self {
            events: Vec::new(),
            num_calls: 0,
            is_open: false,
            held: String::new(),
            blank: Some(String::new()),
        }
    }

    /// Returns the events since the last call of this function.
    pub(super) fn take(&mut self) -> Vec<ToolEvent> {
        std::mem::take(&mut self.events)
    }

    /// Returns whether only white space has arrived since the beginning or the last call.
    pub(super) fn at_start(&self) -> bool {
        self.blank.is_some()
    }

    /// Returns whether a call is being read.
    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Remembers `text` until it is known whether it belongs to a call.
    pub(super) fn hold(&mut self, text: &str) {
        self.held.push_str(text);
    }

    /// Removes and returns the end of the held text that belongs to the text that follows. It is
    /// the longest end with which one of `markers` begins, and at least the last character.
    pub(super) fn unhold(&mut self, markers: &[&str]) -> String {
        let longest = markers.iter().map(|marker| marker.len()).max().unwrap_or_default();
        let starts = self.held.char_indices().rev().map(|(start, _)| start);
        let last = starts.clone().next().unwrap_or_default();
        let near = starts.take_while(|start| self.held.len() - start <= longest);
        let begins = |start: &usize| {
            let end = &self.held[*start..];
            markers.iter().any(|marker| marker.starts_with(end))
        };
        let start = near.filter(begins).last().unwrap_or(last);
        self.held.split_off(start)
    }

    /// Drops the held text, because its events were reported.
    pub(super) fn forget(&mut self) {
        self.held.clear();
    }

    pub(super) fn content(&mut self, text: &str) {
        if let Some(blank) = &mut self.blank {
            let words = text.trim_start();
            blank.push_str(&text[..text.len() - words.len()]);
            if words.is_empty() {
                return;
            }
            let text = std::mem::take(blank) + words;
            self.blank = None;
            return self.push_content(text);
        }
        if !text.is_empty() {
            self.push_content(text.to_owned());
        }
    }

    fn push_content(&mut self, text: String) {
        match self.events.last_mut() {
            Some(ToolEvent::Content(last)) => last.push_str(&text),
            _ => self.events.push(ToolEvent::Content(text)),
        }
    }

    pub(super) fn start(&mut self, name: String, id: Option<String>) {
        self.blank = None;
        self.is_open = true;
        self.events.push(ToolEvent::CallStart { index: self.num_calls, name, id });
    }

    pub(super) fn arguments(&mut self, text: &str) {
        match self.events.last_mut() {
            _ if text.is_empty() => {}
            Some(ToolEvent::CallArguments { delta, .. }) => delta.push_str(text),
            _ => {
                let (index, delta) = (self.num_calls, text.to_owned());
                self.events.push(ToolEvent::CallArguments { index, delta });
            }
        }
    }

    pub(super) fn end(&mut self) {
        self.events.push(ToolEvent::CallEnd { index: self.num_calls });
        self.num_calls += 1;
        self.is_open = false;
        self.blank = Some(String::new());
        self.forget();
    }

    /// Turns the held text into content, because it is no call. A call that has started breaks
    /// instead.
    pub(super) fn refuse(&mut self) {
        let text = std::mem::take(&mut self.held);
        if !self.is_open {
            return self.content(&text);
        }
        self.events.push(ToolEvent::CallBroken { index: self.num_calls });
        self.num_calls += 1;
        self.is_open = false;
        self.blank = None;
    }

    /// Ends the text.
    pub(super) fn finish(&mut self) {
        match self.blank.take() {
            Some(blank) if self.num_calls == 0 && !blank.is_empty() => self.push_content(blank),
            _ => {}
        }
    }
}
