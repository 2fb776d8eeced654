//! The lines of the input, read on a thread of their own, because standard input may block.

use std::{
    io::{self, BufRead, BufReader, Read, Seek},
    path::Path,
};

use futures_util::{Stream, stream::unfold};
use tokio::sync::mpsc;

use super::request::Line;
use crate::{cli::CliError, files};

/// Number of lines that are read ahead.
const AHEAD: usize = 64;

/// An opened input.
pub(super) struct Requests {
    input: Box<dyn BufRead + Send>,
    total: Option<u64>,
    limit: usize,
}

impl Requests {
    /// Opens the input. `-` is standard input. Lines longer than `limit` bytes are no requests.
    ///
    /// # Errors
    /// [`CliError::Io`] names the file.
    pub(super) fn open(path: &Path, limit: usize) -> Result<Self, CliError> {
        if path == Path::new("-") {
            let input = Box::new(BufReader::new(io::stdin()));
            return Ok(Self { input, total: None, limit });
        }
        let failed = |error| CliError::io(format!("cannot read {}", path.display()))(error);
        let file = files::open_stream(path).map_err(failed)?;
        let kind = file.metadata().map_err(failed)?.file_type();
        let mut input = Box::new(BufReader::new(file));
        // The content of a pipe can be read only once. For a folder, the count fails here and not
        // after the model is loaded.
        if !kind.is_file() && !kind.is_dir() {
            return Ok(Self { input, total: None, limit });
        }
        let total = count(&mut input).map_err(failed)?;
        input.rewind().map_err(failed)?;
        Ok(Self { input, total: Some(total), limit })
    }

    /// Returns the number of requests, if it can be known.
    pub(super) fn total(&self) -> Option<u64> {
        self.total
    }

    /// Returns the requests in order. Empty lines are no requests.
    ///
    /// # Errors
    /// When the system cannot start a thread for reading.
    pub(super) fn stream(self) -> Result<impl Stream<Item = Result<Line, CliError>>, CliError> {
        let Self { mut input, limit, .. } = self;
        let (sender, receiver) = mpsc::channel(AHEAD);
        let reader = std::thread::Builder::new().name("playhouse-requests".to_owned());
        let read = move || {
            let mut number = 0;
            loop {
                number += 1;
                let line = match read_line(&mut input, limit) {
                    Ok(None) => return,
                    Ok(Some(text)) if is_empty(&text) => continue,
                    Ok(Some(text)) => Ok(Line::parse(number, &text, limit)),
                    Err(error) => Err(CliError::io("cannot read the requests")(error)),
                };
                let is_last = line.is_err();
                // If the receiver is gone, the run was interrupted.
                if sender.blocking_send(line).is_err() || is_last {
                    return;
                }
            }
        };
        reader.spawn(read).map_err(CliError::io("cannot start a thread to read the requests"))?;
        Ok(unfold(receiver, async |mut lines| Some((lines.recv().await?, lines))))
    }
}

fn is_empty(line: &[u8]) -> bool {
    line.iter().all(u8::is_ascii_whitespace)
}

fn count(input: &mut impl BufRead) -> io::Result<u64> {
    let mut total = 0;
    while let Some(line) = read_line(input, 1)? {
        total += u64::from(!is_empty(&line));
    }
    Ok(total)
}

/// Returns the next line. Returns only the first `limit + 1` bytes of a longer line.
fn read_line(input: &mut impl BufRead, limit: usize) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let most = limit as u64 + 1;
    if input.by_ref().take(most).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    if line.last() != Some(&b'\n') && line.len() as u64 == most {
        input.skip_until(b'\n')?;
    }
    Ok(Some(line))
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;

    use super::*;

    #[tokio::test]
    async fn a_file_is_counted_and_then_read_from_its_beginning() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "{}\n\n{}").unwrap();
        let requests = Requests::open(file.path(), 10).unwrap();
        assert_eq!(requests.total(), Some(2));
        let numbers = requests.stream().unwrap().map(|line| line.unwrap().number);
        assert_eq!(numbers.collect::<Vec<_>>().await, [1, 3]);
        assert!(Requests::open(&std::env::temp_dir(), 10).is_err(), "a folder");
    }

    #[test]
    fn a_long_line_is_cut_and_the_next_one_is_whole() {
        let mut input: &[u8] = b"abcdefghij\nab\n\nabcd\nlast";
        let mut next = || read_line(&mut input, 4).unwrap().map(|l| String::from_utf8(l).unwrap());
        let lines: Vec<_> = std::iter::from_fn(&mut next).collect();
        assert_eq!(lines, ["abcde", "ab\n", "\n", "abcd\n", "last"]);
    }

    #[test]
    fn empty_lines_are_not_counted() {
        assert_eq!(count(&mut &b"{}\n\n  \n{\"a\": 1}\n{}"[..]).unwrap(), 3);
        assert_eq!(count(&mut &b""[..]).unwrap(), 0);
    }
}
