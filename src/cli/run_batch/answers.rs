//! The lines of the output: those of earlier runs, and those of this one.

use std::{
    collections::BTreeSet,
    fs::{self, File, OpenOptions},
    io::{self, BufRead, BufReader, Write},
    path::Path,
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Tally, request::Key};
use crate::{cli::CliError, files};

/// The beginning of every answer's id.
pub(super) const ID_PREFIX: &str = "batch_req_";

/// One line, in the form of OpenAI's batch API.
#[derive(Debug, Serialize)]
pub(super) struct Answer {
    pub(super) id: String,
    pub(super) custom_id: Option<String>,
    /// Present if and only if the request was sent.
    pub(super) response: Option<AnswerResponse>,
    /// Present if and only if the request did not succeed.
    pub(super) error: Option<AnswerError>,
}

#[derive(Debug, Serialize)]
pub(super) struct AnswerResponse {
    pub(super) status_code: u16,
    pub(super) request_id: String,
    pub(super) body: Value,
}

#[derive(Debug, Serialize)]
pub(super) struct AnswerError {
    pub(super) code: String,
    pub(super) message: String,
    /// Number of the line, from 1.
    pub(super) line: u64,
}

impl Answer {
    pub(super) fn is_success(&self) -> bool {
        self.error.is_none()
    }
}

/// The needed fields of an earlier run's line.
#[derive(Deserialize)]
struct Written {
    custom_id: Option<String>,
    error: Option<WrittenError>,
}

#[derive(Deserialize)]
struct WrittenError {
    line: Option<u64>,
}

/// An output that can be written to.
pub(super) struct Answers {
    output: Box<dyn Write + Send>,
    done: BTreeSet<Key>,
    tally: Tally,
}

impl Answers {
    /// Opens the output. `-` is standard output. A file is appended to, and an incomplete last line
    /// is removed.
    ///
    /// # Errors
    /// [`CliError::Io`] names the file. [`CliError::Usage`] if it holds anything that
    /// [`Answers::write`] does not write. Then the file is unchanged.
    pub(super) fn open(path: &Path) -> Result<Self, CliError> {
        let (done, tally) = (BTreeSet::new(), Tally::default());
        if path == Path::new("-") {
            return Ok(Self { output: Box::new(io::stdout()), done, tally });
        }
        let failed = |error| CliError::io(format!("cannot write {}", path.display()))(error);
        // Earlier output to a pipe or a device cannot be read.
        if fs::metadata(path).is_ok_and(|there| !there.is_file() && !there.is_dir()) {
            let stream = files::open_stream_to_write(path).map_err(failed)?;
            return Ok(Self { output: Box::<File>::new(stream), done, tally });
        }
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true);
        let file = files::open_to_write(path, &mut options).map_err(failed)?;
        let (mut done, mut tally, mut whole) = (done, tally, 0);
        let foreign = || {
            let name = path.display();
            CliError::Usage(format!("{name} holds a line that is no answer of run-batch"))
        };
        let mut reader = BufReader::new(&file);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).map_err(failed)? > 0 {
            if !is_ours(&line) {
                return Err(foreign());
            }
            if line.last() != Some(&b'\n') {
                break;
            }
            let written: Written = serde_json::from_slice(&line).map_err(|_| foreign())?;
            tally.count(written.error.is_some());
            done.extend(written.key());
            whole += line.len() as u64;
            line.clear();
        }
        drop(reader);
        if !line.is_empty() {
            file.set_len(whole).map_err(failed)?;
        }
        Ok(Self { output: Box::<File>::new(file), done, tally })
    }

    /// Returns the requests that were answered before.
    pub(super) fn done(&self) -> &BTreeSet<Key> {
        &self.done
    }

    /// Returns the outcomes so far.
    pub(super) fn tally(&self) -> Tally {
        self.tally
    }

    /// Writes a line in one write, so that all lines are complete whenever the run ends.
    pub(super) fn write(&mut self, answer: &Answer) -> Result<(), CliError> {
        let failed = || CliError::io("cannot write an answer");
        let mut line = serde_json::to_vec(answer).map_err(io::Error::from).map_err(failed())?;
        line.push(b'\n');
        self.output.write_all(&line).and_then(|()| self.output.flush()).map_err(failed())
    }
}

/// Returns whether `line` begins as [`Answers::write`] writes every line. `line` may be incomplete.
fn is_ours(line: &[u8]) -> bool {
    let beginning = format!(r#"{{"id":"{ID_PREFIX}"#);
    beginning.bytes().zip(line).all(|(expected, &byte)| expected == byte)
}

impl Tally {
    pub(super) fn count(&mut self, failed: bool) {
        match failed {
            true => self.failed += 1,
            false => self.answered += 1,
        }
    }
}

impl Written {
    fn key(self) -> Option<Key> {
        let line = self.error.and_then(|error| error.line);
        self.custom_id.map(Key::CustomId).or(line.map(Key::Line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(custom_id: &str) -> Answer {
        let (id, custom_id) = ("batch_req_1".to_owned(), Some(custom_id.to_owned()));
        let response =
            AnswerResponse { status_code: 200, request_id: String::new(), body: Value::Null };
        Answer { id, custom_id, response: Some(response), error: None }
    }

    #[test]
    fn a_rerun_finds_earlier_lines_and_drops_half_a_line() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut answers = Answers::open(file.path()).unwrap();
        answers.write(&answer("a")).unwrap();
        let error = AnswerError { code: "x".into(), message: "y".into(), line: 3 };
        let (id, response) = ("batch_req_2".to_owned(), None);
        answers.write(&Answer { id, custom_id: None, response, error: Some(error) }).unwrap();
        let whole = std::fs::read(file.path()).unwrap();
        let reopened = |half: &[u8]| {
            std::fs::write(file.path(), [whole.as_slice(), half].concat()).unwrap();
            let again = Answers::open(file.path()).unwrap();
            assert_eq!(std::fs::read(file.path()).unwrap(), whole);
            again
        };
        for half in ["", "{", "{\"id\":\"batch_re"] {
            reopened(half.as_bytes());
        }
        let mut again = reopened(b"{\"id\":\"batch_req_half");
        let keys = [Key::CustomId("a".to_owned()), Key::Line(3)];
        assert_eq!(again.done(), &BTreeSet::from(keys));
        assert_eq!(again.tally(), Tally { answered: 1, failed: 1 });
        again.write(&answer("b")).unwrap();
        assert_eq!(std::fs::read_to_string(file.path()).unwrap().lines().count(), 3);
    }

    #[test]
    fn a_file_of_another_kind_is_unchanged() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let request = "{\"custom_id\":\"a\",\"url\":\"/v1/completions\"}";
        for text in ["dear diary\n", "dear diary", request, "{\"id\":\"batch_req_1\"\n", "\n"] {
            std::fs::write(file.path(), text).unwrap();
            assert!(matches!(Answers::open(file.path()), Err(CliError::Usage(_))), "{text:?}");
            assert_eq!(std::fs::read_to_string(file.path()).unwrap(), text);
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_device_is_no_file_to_cut() {
        let mut answers = Answers::open(Path::new("/dev/null")).unwrap();
        answers.write(&answer("a")).unwrap();
    }
}
