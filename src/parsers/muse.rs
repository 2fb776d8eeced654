//! The format of Muse: messages, each with a header that names a recipient.
//! ```text
//!  to=self<|message|>…<|eom|>
//! <|start|>assistant to=weather<|message|><atem:function_calls>…</atem:function_calls><|eom|>
//! <|start|>assistant to=user<|message|>…<|eot|>
//! ```
//! The prompt ends within the header of the first message, so its beginning is missing. Models
//! also leave out the marker before a header, or the beginning of the header.

use super::scan::MarkerFinder;

const START: &str = "<|start|>";
pub(super) const RECIPIENT: &str = "to=";
pub(super) const MESSAGE: &str = "<|message|>";
pub(super) const END: &str = "<|eom|>";
const TURN_END: &str = "<|eot|>";

const MARKERS: &[&str] = &[START, MESSAGE, END, TURN_END];

/// Bytes of the longest header. A longer text is no header.
const MAX_HEADER_LEN: usize = 256;

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
    /// The receiver of the message: the user, the model itself or a function.
    pub(super) recipient: Option<String>,
}

/// The purpose of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Thought,
    Content,
    Call,
    /// It is for no reader.
    Dropped,
}

/// A model's recipients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// Messages without a recipient are thoughts. Those to `commentary` are content.
    Muse,
    /// Messages without a recipient are content. All others are calls.
    Glimmer,
}

impl Dialect {
    pub(super) fn purpose(self, header: &Header) -> Purpose {
        match (self, header.recipient.as_deref()) {
            (_, Some("self")) | (Self::Muse, None) => Purpose::Thought,
            (_, Some("user")) | (Self::Glimmer, None) | (Self::Muse, Some("commentary")) => {
                Purpose::Content
            }
            (Self::Muse, Some("developer")) => Purpose::Dropped,
            (_, Some(_)) => Purpose::Call,
        }
    }
}

/// Splits the stream into pieces.
#[derive(Debug)]
pub(super) struct MuseScanner {
    finder: MarkerFinder,
    state: State,
    /// White space before a header that has no beginning.
    blanks: String,
    /// The beginning of that header, which follows the white space.
    word: String,
    /// Whether text outside messages has come since the last message.
    has_text: bool,
    pieces: Vec<Piece>,
}

#[derive(Debug)]
enum State {
    Outside,
    /// After the marker that begins a header. This is the header.
    Header(String),
    Body,
}

impl MuseScanner {
    pub(super) fn new() -> Self {
        Self {
            finder: MarkerFinder::new(MARKERS),
            state: State::Outside,
            blanks: String::new(),
            word: String::new(),
            has_text: false,
            pieces: Vec::new(),
        }
    }

    /// Returns a scanner of a text that continues `prompt`, and the header of the message that the
    /// prompt has opened, if any.
    pub(super) fn after(prompt: &str) -> (Self, Option<Header>) {
        let opened = prompt.strip_suffix(MESSAGE).map(|text| {
            let begin = MARKERS.iter().filter_map(|marker| text.rfind(*marker)).max();
            Header::read(text[begin.unwrap_or_default()..].to_owned())
        });
        let state = if opened.is_some() { State::Body } else { State::Outside };
        (Self { state, ..Self::new() }, opened)
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
        self.release();
        self.give_up();
        std::mem::take(&mut self.pieces)
    }

    fn text(&mut self, text: &str) {
        for c in text.chars() {
            match &mut self.state {
                State::Header(header) => {
                    header.push(c);
                    if header.len() > MAX_HEADER_LEN {
                        self.give_up();
                    }
                }
                State::Outside | State::Body => self.plain(c),
            }
        }
    }

    /// Takes a character that may belong to a header without a beginning.
    fn plain(&mut self, c: char) {
        if !self.word.is_empty() {
            self.word.push(c);
            let is_recipient = self.word.starts_with(RECIPIENT) && c != '<' && !c.is_whitespace();
            let fits = self.word.len() <= MAX_HEADER_LEN;
            if fits && (is_recipient || RECIPIENT.starts_with(&self.word)) {
                return;
            }
            self.word.pop();
            self.release();
        }
        let is_line_break = c == '\n' && self.is_in_text();
        if c.is_whitespace() && !is_line_break {
            self.blanks.push(c);
            if self.blanks.len() > MAX_HEADER_LEN {
                self.release();
            }
        } else if RECIPIENT.starts_with(c) {
            self.word.push(c);
        } else {
            self.release();
            self.put(c.encode_utf8(&mut [0; 4]));
        }
    }

    /// Reports the text held back, because it begins no header.
    fn release(&mut self) {
        let held = std::mem::take(&mut self.blanks) + &std::mem::take(&mut self.word);
        self.put(&held);
    }

    /// Returns the header that the text held back is.
    fn take_header(&mut self) -> String {
        if !self.word.is_empty() && self.word.len() <= RECIPIENT.len() {
            self.release();
        }
        std::mem::take(&mut self.blanks) + &std::mem::take(&mut self.word)
    }

    /// Treats the header read so far as text, because it is none.
    fn give_up(&mut self) {
        if let State::Header(text) = &mut self.state {
            let text = std::mem::take(text);
            self.state = State::Outside;
            self.put(&text);
        }
    }

    fn marker(&mut self, marker: &'static str) {
        match (&mut self.state, marker) {
            (State::Header(text), MESSAGE) => {
                let header = Header::read(std::mem::take(text));
                self.open(header);
            }
            (State::Outside | State::Body, MESSAGE) => {
                let header = self.take_header();
                self.close("");
                self.open(Header::read(header));
            }
            (_, START) => {
                self.give_up();
                // White space between messages is layout.
                if self.is_in_text() || !self.word.is_empty() {
                    self.release();
                }
                self.blanks.clear();
                self.close("");
                self.state = State::Header(START.to_owned());
            }
            (State::Body, marker) => {
                self.release();
                self.close(marker);
            }
            (State::Header(_) | State::Outside, marker) => {
                self.give_up();
                self.release();
                self.put(marker);
            }
        }
    }

    fn open(&mut self, header: Header) {
        self.pieces.push(Piece::Open(header));
        self.state = State::Body;
        self.has_text = false;
    }

    /// Ends the message, if one is open.
    fn close(&mut self, marker: &'static str) {
        if matches!(self.state, State::Body) {
            self.pieces.push(Piece::Close(marker));
            self.state = State::Outside;
        }
    }

    /// Returns whether text of the same message, or outside messages, has come before.
    fn is_in_text(&self) -> bool {
        self.has_text || matches!(self.state, State::Body)
    }

    /// Reports text of the message, or outside messages.
    fn put(&mut self, text: &str) {
        let is_body = matches!(self.state, State::Body);
        self.has_text |= !is_body && !text.is_empty();
        match self.pieces.last_mut() {
            _ if text.is_empty() => {}
            Some(Piece::Body(last)) if is_body => last.push_str(text),
            Some(Piece::Text(last)) if !is_body => last.push_str(text),
            _ if is_body => self.pieces.push(Piece::Body(text.to_owned())),
            _ => self.pieces.push(Piece::Text(text.to_owned())),
        }
    }
}

impl Header {
    fn read(text: String) -> Self {
        let word = text.split_whitespace().next_back().unwrap_or_default();
        let recipient = word.split_once(RECIPIENT).map(|(_, name)| name.to_owned());
        Self { recipient: recipient.filter(|name| !name.is_empty()), text }
    }

    /// Returns whether the header can follow other text, and be recognized.
    pub(super) fn stands_apart(&self) -> bool {
        self.text.starts_with(|c: char| c == '<' || c.is_whitespace())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(text: &str) -> Vec<Piece> {
        let mut scanner = MuseScanner::new();
        let mut pieces = scanner.push(text);
        for piece in scanner.finish() {
            match (pieces.last_mut(), piece) {
                (Some(Piece::Text(last)), Piece::Text(more))
                | (Some(Piece::Body(last)), Piece::Body(more)) => last.push_str(&more),
                (_, piece) => pieces.push(piece),
            }
        }
        pieces
    }

    #[test]
    fn headers_tell_the_recipient() {
        let recipient = |header: &str| match &pieces(&format!("{header}<|message|>"))[..] {
            [Piece::Open(header)] => header.recipient.clone(),
            other => panic!("{other:?}"),
        };
        let to = |name: &str| Some(name.to_owned());
        assert_eq!(recipient(" to=self"), to("self"));
        assert_eq!(recipient("to=a.b-c_1"), to("a.b-c_1"));
        assert_eq!(recipient("<|start|>assistant to=user"), to("user"));
        assert_eq!(recipient("<|start|>\nassistant to=user"), to("user"));
        for none in ["", " ", "<|start|>assistant", "<|start|>assistant to=", "<|start|>user"] {
            assert_eq!(recipient(none), None, "{none}");
        }
    }

    #[test]
    fn a_header_ends_the_message_before_it() {
        let open = |text: &str, recipient: &str| {
            let recipient = Some(recipient.to_owned());
            Piece::Open(Header { text: text.to_owned(), recipient })
        };
        let body = |text: &str| Piece::Body(text.to_owned());
        assert_eq!(
            pieces(
                "to=self<|message|>go to=x to to=f<|message|>b \n<|start|>assistant to=g<|message|>"
            ),
            [
                open("to=self", "self"),
                body("go to=x to"),
                Piece::Close(""),
                open(" to=f", "f"),
                body("b \n"),
                Piece::Close(""),
                open("<|start|>assistant to=g", "g"),
            ]
        );
        let closed = pieces(" to=self<|message|>a <|eom|>\n<|start|>assistant to=f<|message|>t");
        let next = open("<|start|>assistant to=f", "f");
        assert_eq!(
            closed,
            [open(" to=self", "self"), body("a "), Piece::Close(END), next, body("t")]
        );
    }

    #[test]
    fn text_outside_messages_is_text() {
        let text = |text: &str| vec![Piece::Text(text.to_owned())];
        for words in [
            "hello <|world",
            "a \n<|start|>b",
            "to=x y",
            "to",
            " to=x",
            "<|start|>assistant",
            "<|eot|>",
        ] {
            assert_eq!(pieces(words), text(words));
        }
        let long = format!("<|start|>{}", "a".repeat(MAX_HEADER_LEN));
        assert_eq!(pieces(&long), text(&long));
    }

    #[test]
    fn a_prompt_may_open_a_message() {
        let recipient = |prompt: &str| {
            let (mut scanner, header) = MuseScanner::after(prompt);
            (scanner.push("a"), header.map(|header| header.recipient))
        };
        let (text, body) = (Piece::Text("a".to_owned()), Piece::Body("a".to_owned()));
        let prompt = "<|start|>user<|message|>Hi<|eot|><|start|>assistant";
        assert_eq!(recipient(prompt), (vec![text], None));
        let opened = format!("{prompt} to=self<|message|>");
        assert_eq!(recipient(&opened), (vec![body], Some(Some("self".to_owned()))));
    }
}
