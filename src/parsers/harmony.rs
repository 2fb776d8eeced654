//! The format of gpt-oss: messages, each with a header that names a channel. A tool call's header
//! also names a recipient.
//! ```text
//! <|channel|>analysis<|message|>…<|end|>
//! <|start|>assistant<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}<|call|>
//! <|start|>assistant<|channel|>final<|message|>…<|return|>
//! ```
//! The prompt ends within the header of the first message, so its beginning is missing.

use super::scan::MarkerFinder;

const START: &str = "<|start|>";
const CHANNEL: &str = "<|channel|>";
const CONSTRAIN: &str = "<|constrain|>";
pub(super) const MESSAGE: &str = "<|message|>";
pub(super) const END: &str = "<|end|>";

const MARKERS: &[&str] = &[START, CHANNEL, CONSTRAIN, MESSAGE, END, "<|call|>", "<|return|>"];

/// Bytes of the longest header. A longer text is no header.
const MAX_HEADER_LEN: usize = 1024;

/// A part of the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    /// Text outside messages, or a malformed header.
    Text(String),
    /// A message begins.
    Open(Header),
    /// Text of the message.
    Body(String),
    /// The message ends with this marker. It is empty if the next message begins without one.
    Close(&'static str),
}

/// The header of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    /// As written, without the marker that ends it.
    pub(super) text: String,
    /// The function that the message calls. `None` if the message is for the user.
    pub(super) recipient: Option<String>,
    /// Whether the message holds thoughts.
    pub(super) is_analysis: bool,
}

/// Splits the stream into pieces.
#[derive(Debug)]
pub(super) struct HarmonyScanner {
    finder: MarkerFinder,
    state: State,
    pieces: Vec<Piece>,
}

#[derive(Debug)]
enum State {
    /// Only text that may be the rest of the first header.
    Begin(String),
    Outside,
    Header(String),
    Body,
}

impl HarmonyScanner {
    pub(super) fn new() -> Self {
        let finder = MarkerFinder::new(MARKERS);
        Self { finder, state: State::Begin(String::new()), pieces: Vec::new() }
    }

    pub(super) fn push(&mut self, text: &str) -> Vec<Piece> {
        let mut plain = String::new();
        for c in text.chars() {
            let marker = self.finder.push(c, &mut plain);
            self.text(&plain);
            plain.clear();
            if let Some(marker) = marker {
                self.marker(MARKERS[marker]);
            }
        }
        std::mem::take(&mut self.pieces)
    }

    /// Ends the stream. An open message stays open.
    pub(super) fn finish(&mut self) -> Vec<Piece> {
        let held = self.finder.take_held();
        self.text(&held);
        if let State::Begin(text) | State::Header(text) = &mut self.state {
            let text = std::mem::take(text);
            self.push_text(&text);
        }
        std::mem::take(&mut self.pieces)
    }

    fn text(&mut self, text: &str) {
        for c in text.chars() {
            match &mut self.state {
                State::Begin(begun) => {
                    begun.push(c);
                    if begun.len() > MAX_HEADER_LEN || !may_be_header(begun) {
                        self.give_up();
                    }
                }
                State::Header(header) => {
                    header.push(c);
                    if header.len() > MAX_HEADER_LEN {
                        self.give_up();
                    }
                }
                State::Outside => self.push_text(c.encode_utf8(&mut [0; 4])),
                State::Body => self.push_body(c.encode_utf8(&mut [0; 4])),
            }
        }
    }

    /// Treats the text read so far as text, because it is no header.
    fn give_up(&mut self) {
        if let State::Begin(text) | State::Header(text) =
            std::mem::replace(&mut self.state, State::Outside)
        {
            self.push_text(&text);
        }
    }

    fn marker(&mut self, marker: &'static str) {
        match (&mut self.state, marker) {
            (State::Begin(text) | State::Header(text), MESSAGE) => {
                let header = Header::read(std::mem::take(text));
                self.pieces.push(Piece::Open(header));
                self.state = State::Body;
            }
            (State::Begin(text) | State::Header(text), CHANNEL | CONSTRAIN) => {
                let text = std::mem::take(text) + marker;
                self.state = State::Header(text);
            }
            (State::Body, START | CHANNEL) => {
                self.pieces.push(Piece::Close(""));
                self.state = State::Header(marker.to_owned());
            }
            (State::Body, MESSAGE | CONSTRAIN) => self.push_body(marker),
            (State::Body, marker) => {
                self.pieces.push(Piece::Close(marker));
                self.state = State::Outside;
            }
            (_, START | CHANNEL) => {
                self.give_up();
                self.state = State::Header(marker.to_owned());
            }
            (_, marker) => {
                self.give_up();
                self.push_text(marker);
            }
        }
    }

    fn push_text(&mut self, text: &str) {
        match self.pieces.last_mut() {
            _ if text.is_empty() => {}
            Some(Piece::Text(last)) => last.push_str(text),
            _ => self.pieces.push(Piece::Text(text.to_owned())),
        }
    }

    fn push_body(&mut self, text: &str) {
        match self.pieces.last_mut() {
            Some(Piece::Body(last)) => last.push_str(text),
            _ => self.pieces.push(Piece::Body(text.to_owned())),
        }
    }
}

/// Returns whether an answer that begins with `text` may begin with a recipient.
fn may_be_header(text: &str) -> bool {
    let text = text.trim_start();
    match text.strip_prefix("to=") {
        Some(recipient) => !recipient.trim_end().contains(char::is_whitespace),
        None => "to=".starts_with(text),
    }
}

impl Header {
    fn read(text: String) -> Self {
        let (sender, channel) = text.split_once(CHANNEL).unwrap_or((&text, ""));
        let words = |text: &str| -> Vec<String> {
            text.replace('<', " <").split_whitespace().map(str::to_owned).collect()
        };
        let (sender, channel) = (words(sender), words(channel));
        let recipient = sender.iter().chain(&channel).find_map(|word| word.strip_prefix("to="));
        // Functions have a namespace of their own, which the model sometimes leaves out.
        let name = recipient.map(|name| name.strip_prefix("functions.").unwrap_or(name));
        let recipient = name.filter(|name| !name.is_empty()).map(str::to_owned);
        let is_analysis = channel.first().is_some_and(|channel| channel == "analysis");
        Self { recipient, is_analysis, text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(text: &str) -> Vec<Piece> {
        let mut scanner = HarmonyScanner::new();
        let mut pieces = scanner.push(text);
        pieces.extend(scanner.finish());
        pieces
    }

    #[test]
    fn headers_tell_channel_and_recipient() {
        let recipient = |header: &str| match &pieces(&format!("{header}<|message|>"))[..] {
            [Piece::Open(header)] => (header.recipient.clone(), header.is_analysis),
            other => panic!("{other:?}"),
        };
        let to = |name: &str| (Some(name.to_owned()), false);
        assert_eq!(recipient("<|channel|>analysis"), (None, true));
        assert_eq!(recipient("<|start|>assistant<|channel|>final"), (None, false));
        assert_eq!(recipient(" to=functions.f<|channel|>commentary json"), to("f"));
        assert_eq!(recipient("<|start|>assistant to=g<|channel|>commentary"), to("g"));
        assert_eq!(recipient("<|channel|>commentary to=functions.f <|constrain|>json"), to("f"));
        assert_eq!(recipient("<|channel|>commentary to=f<|constrain|>json"), to("f"));
    }

    #[test]
    fn text_outside_messages_is_text() {
        let text = |text: &str| vec![Piece::Text(text.to_owned())];
        for words in ["hello <|world", "to=x y", "to", "<|channel|>final", "<|end|>", "a <b> |>"] {
            assert_eq!(pieces(words), text(words));
        }
    }
}
