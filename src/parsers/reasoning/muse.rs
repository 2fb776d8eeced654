//! Muse, which thinks in messages to itself. See `muse.rs` of the parsers for messages.
//!
//! Messages to functions are tool calls. They are passed on unchanged, for the tool parser `muse`.

use super::{
    super::{
        event::ReasoningEvent,
        muse::{Dialect, END, MESSAGE, MuseScanner, Piece, Purpose, RECIPIENT},
    },
    parser::{ReasoningMarkers, ReasoningParser, ReasoningStart},
};

const THOUGHTS: &str = " to=self<|message|>";
const ANSWER: &str = "<|eom|><|start|>assistant to=user<|message|>";

struct MessageReasoning {
    dialect: Dialect,
    scanner: MuseScanner,
    starts_in_reasoning: bool,
    /// The purpose of the open message.
    purpose: Purpose,
    has_content: bool,
    events: Vec<ReasoningEvent>,
}

impl MessageReasoning {
    fn new(dialect: Dialect, start: &ReasoningStart<'_>) -> Self {
        let (scanner, opened) = MuseScanner::after(start.prompt.unwrap_or_default());
        let purpose = opened.as_ref().map_or(Purpose::Content, |header| dialect.purpose(header));
        let mut parser = Self {
            dialect,
            scanner,
            starts_in_reasoning: purpose == Purpose::Thought,
            purpose,
            has_content: false,
            events: Vec::new(),
        };
        let recipient = opened.and_then(|header| header.recipient);
        if let (Purpose::Call, Some(recipient)) = (purpose, recipient) {
            // The tool parser does not see the prompt.
            parser.content(&format!(" {RECIPIENT}{recipient}{MESSAGE}"));
        }
        parser
    }

    fn piece(&mut self, piece: Piece) {
        match (piece, self.purpose) {
            (Piece::Text(text), _) | (Piece::Body(text), Purpose::Content | Purpose::Call) => {
                self.content(&text);
            }
            (Piece::Open(header), _) => {
                self.purpose = self.dialect.purpose(&header);
                if self.purpose == Purpose::Call {
                    // Content of a message before it must not become a part of its header.
                    let is_apart = header.stands_apart() || !self.has_content;
                    self.content(if is_apart { "" } else { " " });
                    self.content(&header.text);
                    self.content(MESSAGE);
                }
            }
            (Piece::Body(text), Purpose::Thought) => self.reasoning(text),
            (Piece::Body(_), Purpose::Dropped) => {}
            (Piece::Close(marker), Purpose::Call) => {
                self.content(if marker.is_empty() { END } else { marker });
            }
            (Piece::Close(_), _) => {}
        }
    }

    fn reasoning(&mut self, text: String) {
        match self.events.last_mut() {
            Some(ReasoningEvent::Reasoning(last)) => last.push_str(&text),
            _ => self.events.push(ReasoningEvent::Reasoning(text)),
        }
    }

    fn content(&mut self, text: &str) {
        self.has_content |= !text.is_empty();
        match self.events.last_mut() {
            _ if text.is_empty() => {}
            Some(ReasoningEvent::Content(last)) => last.push_str(text),
            _ => self.events.push(ReasoningEvent::Content(text.to_owned())),
        }
    }
}

impl ReasoningParser for MessageReasoning {
    fn push(&mut self, text: &str) -> Vec<ReasoningEvent> {
        self.scanner.push(text).into_iter().for_each(|piece| self.piece(piece));
        std::mem::take(&mut self.events)
    }

    fn finish(&mut self) -> Vec<ReasoningEvent> {
        self.scanner.finish().into_iter().for_each(|piece| self.piece(piece));
        std::mem::take(&mut self.events)
    }

    fn starts_in_reasoning(&self) -> bool {
        self.starts_in_reasoning
    }

    fn needs_special_tokens(&self) -> bool {
        true
    }

    fn markers(&self) -> Option<ReasoningMarkers> {
        Some(ReasoningMarkers { begin: THOUGHTS.to_owned(), end: ANSWER.to_owned() })
    }
}

pub(in super::super) fn muse(start: &ReasoningStart<'_>) -> impl ReasoningParser + use<> {
    MessageReasoning::new(Dialect::Muse, start)
}

pub(in super::super) fn muse_glimmer(start: &ReasoningStart<'_>) -> impl ReasoningParser + use<> {
    MessageReasoning::new(Dialect::Glimmer, start)
}
