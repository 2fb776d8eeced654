//! The place of an event in its stream.
//!
//! The cut of an output into events depends on time, so a second computation cuts it elsewhere. Its
//! text depends on the number of tokens alone. So a place names how many tokens of each choice the
//! events so far have shown. From that, any process that has the request writes the events after
//! it.
//!
//! ```text
//! 17.0.0-7.5      event 17, the first of a batch: tokens 5 to 7 of choice 0
//! 30.1.1-9e.4,6   the second of a batch: the end of choice 1, whose tokens before were 6
//! 0.1.b           the second event before any output
//! 41.0.e          the first event after all outputs
//! ```

use std::{fmt, str::FromStr};

/// Largest number of choices that a place may name.
const CHOICES_MAX: usize = 1 << 17;

/// The place of one event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::server) struct Position {
    /// Number of events before it.
    pub(in crate::server) number: u64,
    /// Its index in its batch. A batch holds the events of one piece of output.
    pub(in crate::server) index: usize,
    pub(in crate::server) batch: Batch,
}

/// The piece of output that a batch of events shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::server) enum Batch {
    /// No output: the events that begin a stream.
    Beginning,
    /// New output of one choice.
    Output {
        choice: usize,
        /// The choice's progress after it.
        after: Progress,
        /// The progress of all choices before it.
        before: Vec<Progress>,
    },
    /// No output: the events that end a stream.
    End,
}

/// The shown part of one choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::server) struct Progress {
    pub(in crate::server) num_tokens: usize,
    pub(in crate::server) has_ended: bool,
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { num_tokens, has_ended } = self;
        write!(f, "{num_tokens}{}", if *has_ended { "e" } else { "" })
    }
}

impl FromStr for Progress {
    type Err = InvalidPosition;

    fn from_str(text: &str) -> Result<Self, InvalidPosition> {
        let (digits, has_ended) = match text.strip_suffix('e') {
            Some(digits) => (digits, true),
            None => (text, false),
        };
        Ok(Self { num_tokens: number(digits)?, has_ended })
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.", self.number, self.index)?;
        match &self.batch {
            Batch::Beginning => f.write_str("b"),
            Batch::End => f.write_str("e"),
            Batch::Output { choice, after, before } => {
                write!(f, "{choice}-{after}.")?;
                before.iter().enumerate().try_for_each(|(index, progress)| {
                    write!(f, "{}{progress}", if index > 0 { "," } else { "" })
                })
            }
        }
    }
}

/// The error for a text that is no place in a stream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("it is not the id of an event of this server")]
pub(in crate::server) struct InvalidPosition;

impl FromStr for Position {
    type Err = InvalidPosition;

    fn from_str(text: &str) -> Result<Self, InvalidPosition> {
        let mut parts = text.splitn(4, '.');
        let mut part = || parts.next().ok_or(InvalidPosition);
        let (number, index, batch) = (self::number(part()?)?, self::number(part()?)?, part()?);
        let before = parts.next();
        let batch = match (batch, before) {
            ("b", None) => Batch::Beginning,
            ("e", None) => Batch::End,
            (output, Some(before)) => {
                let (choice, after) = output.split_once('-').ok_or(InvalidPosition)?;
                let before = before.split(',').take(CHOICES_MAX).map(str::parse);
                let before = before.collect::<Result<Vec<Progress>, _>>()?;
                let (choice, after) = (self::number(choice)?, after.parse()?);
                Batch::Output { choice, after, before }.checked()?
            }
            (_, None) => return Err(InvalidPosition),
        };
        Ok(Self { number, index, batch })
    }
}

impl Batch {
    /// Returns a batch of new output that moves its choice on.
    fn checked(self) -> Result<Self, InvalidPosition> {
        let Self::Output { choice, after, before } = &self else { return Ok(self) };
        let from = before.get(*choice).ok_or(InvalidPosition)?;
        let moves_on = after.num_tokens >= from.num_tokens && !from.has_ended && after != from;
        if moves_on { Ok(self) } else { Err(InvalidPosition) }
    }
}

fn number<N: FromStr>(digits: &str) -> Result<N, InvalidPosition> {
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_plain).ok_or(InvalidPosition)
}

/// Returns a stream's id as it stands in its events' ids: in one line and without a colon.
pub(in crate::server) fn escaped(stream: &str) -> String {
    let mut escaped = String::with_capacity(stream.len());
    for byte in stream.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                escaped.push(byte.into());
            }
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

/// Splits the id of an event into its stream's id, as [`escaped`] returns it, and its place.
pub(in crate::server) fn split(event_id: &str) -> Result<(&str, Position), InvalidPosition> {
    let (stream, position) = event_id.split_once(':').ok_or(InvalidPosition)?;
    Ok((stream, position.parse()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn progress() -> impl Strategy<Value = Progress> {
        (0usize..5_000, any::<bool>())
            .prop_map(|(num_tokens, has_ended)| Progress { num_tokens, has_ended })
    }

    proptest! {
        #[test]
        fn positions_come_back(
            number in any::<u64>(),
            index in any::<usize>(),
            before in prop::collection::vec(progress(), 1..9),
            choice in any::<prop::sample::Index>(),
            more in 1usize..9,
        ) {
            let (mut before, choice) = (before.clone(), choice.index(before.len()));
            before[choice].has_ended = false;
            let num_tokens = before[choice].num_tokens + more;
            let after = Progress { num_tokens, has_ended: more == 3 };
            for batch in [Batch::Output { choice, after, before }, Batch::Beginning, Batch::End] {
                let position = Position { number, index, batch };
                prop_assert_eq!(position.to_string().parse(), Ok(position));
            }
        }

        #[test]
        fn any_text_gives_an_answer(text in "[0-9a-e.,:-]{0,30}|.{0,30}") {
            let _ = text.parse::<Position>();
            let _ = split(&text);
        }
    }

    #[test]
    fn what_moves_no_choice_on_is_refused() {
        let refused = [
            "",
            "1",
            "1.0",
            "1.0.x",
            "1.0.0-7",
            "1.0.0-7.8",
            "1.0.0-7.7",
            "1.0.1-7.5",
            "1.0.0-7.5e",
            "+1.0.0-7.5",
            "1.0.e.5",
            "1.0.b.",
            "99999999999999999999.0.e",
            "1.0.0-7.5,",
        ];
        for text in refused {
            assert_eq!(text.parse::<Position>(), Err(InvalidPosition), "{text}");
        }
        assert!("1.0.0-7.5".parse::<Position>().is_ok());
        assert!("1.0.0-5e.5".parse::<Position>().is_ok(), "an end without a token");
    }

    #[test]
    fn a_streams_id_has_no_line_break_and_no_colon() {
        assert_eq!(escaped("cmpl-a:b\n ü"), "cmpl-a%3Ab%0A%20%C3%BC");
        let (stream, position) = split("cmpl-a%3Ab:0.1.b").unwrap();
        assert_eq!((stream, position.index), ("cmpl-a%3Ab", 1));
    }
}
