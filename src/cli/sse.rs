//! Parses server-sent events from the pieces that a connection receives
//! (<https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream>).

/// Largest size of an event, in bytes. No server of a language model sends a larger one.
const EVENT_BYTES_MAX: usize = 16 << 20;

/// The received bytes that are not yet a complete event.
#[derive(Debug, Default)]
pub(super) struct EventParser {
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    /// The previous line ended in a carriage return, so a line feed now belongs to it.
    after_cr: bool,
}

/// The error for an event that is too large.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event of over {EVENT_BYTES_MAX} bytes")]
pub(super) struct EventTooLarge;

impl EventParser {
    /// Returns the data of the events that `bytes` complete, in order. Comments, names and ids of
    /// events are ignored.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, EventTooLarge> {
        let mut events = Vec::new();
        for &byte in bytes {
            match byte {
                b'\n' if self.after_cr => self.after_cr = false,
                b'\n' | b'\r' => {
                    self.after_cr = byte == b'\r';
                    events.extend(self.end_line());
                }
                _ => {
                    self.after_cr = false;
                    self.line.push(byte);
                }
            }
        }
        let held = self.line.len() + self.data.len();
        if held > EVENT_BYTES_MAX { Err(EventTooLarge) } else { Ok(events) }
    }

    fn end_line(&mut self) -> Option<Vec<u8>> {
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            let data = std::mem::take(&mut self.data);
            return std::mem::take(&mut self.has_data).then_some(data);
        }
        let data = match line.strip_prefix(b"data:") {
            Some(data) => data.strip_prefix(b" ").unwrap_or(data),
            None if line == b"data" => b"",
            None => return None,
        };
        if self.has_data {
            self.data.push(b'\n');
        }
        self.data.extend(data);
        self.has_data = true;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the stream, cut into pieces of each size.
    fn check(stream: &str, expected: &[&str]) {
        for size in 1..=stream.len() {
            let mut parser = EventParser::default();
            let mut events = Vec::new();
            for piece in stream.as_bytes().chunks(size) {
                events.extend(parser.push(piece).unwrap());
            }
            let events: Vec<_> =
                events.into_iter().map(|data| String::from_utf8(data).unwrap()).collect();
            assert_eq!(events, expected, "in pieces of {size}");
        }
    }

    #[test]
    fn events_are_found_in_any_pieces() {
        check("data: {\"a\": \"é\"}\n\ndata: [DONE]\n\n", &["{\"a\": \"é\"}", "[DONE]"]);
        check("data: a\r\n\r\ndata: b\r\rdata: c\n\n", &["a", "b", "c"]);
    }

    #[test]
    fn fields_other_than_data_are_ignored() {
        check(": ping\n\nevent: delta\nid: 7\ndata:x\n\nretry: 3\n\n", &["x"]);
        check("data: two\ndata: lines\n\ndata\n\ndata:\n\n", &["two\nlines", "", ""]);
        check("data: cut off\n", &[]);
    }

    #[test]
    fn an_event_has_a_largest_size() {
        let mut parser = EventParser::default();
        let piece = vec![b'x'; EVENT_BYTES_MAX];
        assert_eq!(parser.push(&piece), Ok(Vec::new()));
        assert_eq!(parser.push(b"y"), Err(EventTooLarge));
    }
}
