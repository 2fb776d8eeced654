//! gpt-oss, which thinks on the channel `analysis`. See `harmony.rs`.
//!
//! Messages to a recipient are tool calls. They are passed on unchanged, for the tool parser
//! `openai`.

use super::{
    super::{
        event::ReasoningEvent,
        harmony::{END, HarmonyScanner, MESSAGE, Piece},
    },
    parser::{ReasoningMarkers, ReasoningParser},
};

const THOUGHTS: &str = "<|channel|>analysis<|message|>";
const ANSWER: &str = "<|end|><|start|>assistant<|channel|>final<|message|>";

struct HarmonyReasoning {
    scanner: HarmonyScanner,
    /// The open message.
    message: Message,
    events: Vec<ReasoningEvent>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Message {
    Thought,
    Content,
    Call,
}

impl HarmonyReasoning {
    fn piece(&mut self, piece: Piece) {
        match piece {
            Piece::Text(text) => self.content(&text),
            Piece::Open(header) if header.recipient.is_some() => {
                self.content(&header.text);
                self.content(MESSAGE);
                self.message = Message::Call;
            }
            Piece::Open(header) => {
                self.message = if header.is_analysis { Message::Thought } else { Message::Content };
            }
            Piece::Body(text) if self.message == Message::Thought => self.reasoning(text),
            Piece::Body(text) => self.content(&text),
            Piece::Close(marker) if self.message == Message::Call => {
                self.content(if marker.is_empty() { END } else { marker });
            }
            Piece::Close(_) => {}
        }
    }

    fn reasoning(&mut self, text: String) {
        match self.events.last_mut() {
            Some(ReasoningEvent::Reasoning(last)) => last.push_str(&text),
            _ => self.events.push(ReasoningEvent::Reasoning(text)),
        }
    }

    fn content(&mut self, text: &str) {
        match self.events.last_mut() {
            _ if text.is_empty() => {}
            Some(ReasoningEvent::Content(last)) => last.push_str(text),
            _ => self.events.push(ReasoningEvent::Content(text.to_owned())),
        }
    }
}

impl ReasoningParser for HarmonyReasoning {
    fn push(&mut self, text: &str) -> Vec<ReasoningEvent> {
        self.scanner.push(text).into_iter().for_each(|piece| self.piece(piece));
        std::mem::take(&mut self.events)
    }

    fn finish(&mut self) -> Vec<ReasoningEvent> {
        self.scanner.finish().into_iter().for_each(|piece| self.piece(piece));
        std::mem::take(&mut self.events)
    }

    fn needs_special_tokens(&self) -> bool {
        true
    }

    fn markers(&self) -> Option<ReasoningMarkers> {
        Some(ReasoningMarkers { begin: THOUGHTS.to_owned(), end: ANSWER.to_owned() })
    }
}

pub(in super::super) fn openai_gptoss() -> impl ReasoningParser {
    HarmonyReasoning {
        scanner: HarmonyScanner::new(),
        message: Message::Content,
        events: Vec::new(),
    }
}
