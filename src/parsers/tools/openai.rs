//! gpt-oss: a call is a message to a recipient, and its body is the arguments. See `harmony.rs`.
//!
//! A body is passed on unchanged, even if it is not JSON, because tools may take free text.
//! Messages on the analysis channel are thoughts and not part of the answer. The reasoning parser
//! `openai_gptoss` before this one reports them.

use super::{
    super::{
        event::ToolEvent,
        harmony::{HarmonyScanner, Header, MESSAGE, Piece},
    },
    calls::Calls,
    parser::ToolParser,
};

struct HarmonyCalls {
    scanner: HarmonyScanner,
    calls: Calls,
    /// The open message.
    message: Message,
}

enum Message {
    Thought,
    Content,
    /// A call with these arguments.
    Call(String),
}

impl HarmonyCalls {
    fn piece(&mut self, piece: Piece) {
        match (piece, &mut self.message) {
            (Piece::Text(text), _) | (Piece::Body(text), Message::Content) => {
                self.calls.content(&text);
            }
            (Piece::Open(header), _) => self.open(header),
            (Piece::Body(_), Message::Thought) => {}
            (Piece::Body(text), Message::Call(arguments)) => {
                self.calls.hold(&text);
                self.calls.arguments(&text);
                arguments.push_str(&text);
            }
            (Piece::Close(_), _) => self.close(),
        }
    }

    fn open(&mut self, header: Header) {
        let Some(recipient) = header.recipient else {
            let thinks = header.is_analysis;
            self.message = if thinks { Message::Thought } else { Message::Content };
            return;
        };
        self.calls.hold(&header.text);
        self.calls.hold(MESSAGE);
        self.calls.start(recipient, None);
        self.message = Message::Call(String::new());
    }

    fn close(&mut self) {
        if let Message::Call(arguments) = &self.message {
            self.calls.arguments(if arguments.trim().is_empty() { "{}" } else { "" });
            self.calls.end();
        }
        self.message = Message::Content;
    }
}

impl ToolParser for HarmonyCalls {
    fn push(&mut self, text: &str) -> Vec<ToolEvent> {
        self.scanner.push(text).into_iter().for_each(|piece| self.piece(piece));
        self.calls.take()
    }

    fn finish(&mut self) -> Vec<ToolEvent> {
        let is_json = |text: &str| serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
        let rest = self.scanner.finish();
        match &self.message {
            // The marker that ends a call also ends the answer. Then the text shows none or only a
            // part of it.
            Message::Call(arguments) if is_json(arguments) => self.calls.end(),
            Message::Call(arguments) if arguments.trim().is_empty() => {}
            _ => rest.into_iter().for_each(|piece| self.piece(piece)),
        }
        if matches!(self.message, Message::Call(_)) && self.calls.is_open() {
            self.calls.refuse();
        }
        self.message = Message::Content;
        self.calls.finish();
        self.calls.take()
    }

    fn finish_stopped(&mut self) -> Vec<ToolEvent> {
        self.scanner.finish().into_iter().for_each(|piece| self.piece(piece));
        self.close();
        self.finish()
    }

    fn needs_special_tokens(&self) -> bool {
        true
    }
}

pub(in super::super) fn openai() -> impl ToolParser {
    HarmonyCalls { scanner: HarmonyScanner::new(), calls: Calls::new(), message: Message::Content }
}
