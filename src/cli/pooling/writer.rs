//! Results as text, as lines of JSON, or as a NumPy file.

use std::{
    fs::OpenOptions,
    io::{self, BufWriter, Write},
    path::Path,
};

use clap::ValueEnum;
use serde_json::Value;

use super::npy;
use crate::{cli::CliError, files};

/// The formats of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(super) enum Output {
    /// For people.
    #[default]
    Text,
    /// A line of JSON for each result.
    Json,
    /// A NumPy file of float32 numbers.
    Npy,
}

/// One result in the formats that differ.
pub(super) struct Row<'a> {
    pub(super) text: String,
    pub(super) json: Value,
    pub(super) values: &'a [f32],
}

/// Writes results as they come, each at once.
pub(super) struct Writer {
    to: BufWriter<Box<dyn Write>>,
    output: Output,
    /// Number of results.
    total: usize,
    /// Whether a result is one number, so that all of them are a list.
    is_list: bool,
    /// Whether a result was written.
    has_begun: bool,
}

impl Writer {
    /// Returns a writer of `total` results to a file, or to standard output.
    ///
    /// # Errors
    /// [`CliError::Io`] names the file.
    pub(super) fn new(
        path: Option<&Path>,
        output: Output,
        total: usize,
        is_list: bool,
    ) -> Result<Self, CliError> {
        let to: Box<dyn Write> = match path {
            None => Box::new(io::stdout()),
            Some(path) => {
                let mut options = OpenOptions::new();
                options.write(true).create(true).truncate(true);
                let file = files::open_to_write(path, &mut options);
                Box::new(file.map_err(CliError::io(format!("cannot write {}", path.display())))?)
            }
        };
        Ok(Self { to: BufWriter::new(to), output, total, is_list, has_begun: false })
    }

    /// Writes one result. All of a NumPy file have as many numbers.
    pub(super) fn write(&mut self, row: &Row<'_>) -> Result<(), CliError> {
        let written = match self.output {
            Output::Text => writeln!(self.to, "{}", row.text),
            Output::Json => writeln!(self.to, "{}", row.json),
            Output::Npy => self.write_npy(row.values),
        };
        // A file of numbers is of use only when it is complete.
        let flushed = written.and_then(|()| match self.output {
            Output::Npy => Ok(()),
            Output::Text | Output::Json => self.to.flush(),
        });
        flushed.map_err(CliError::io("cannot write a result"))
    }

    fn write_npy(&mut self, values: &[f32]) -> io::Result<()> {
        if !std::mem::replace(&mut self.has_begun, true) {
            let width = (!self.is_list).then_some(values.len());
            npy::write_header(&mut self.to, self.total, width)?;
        }
        npy::write_values(&mut self.to, values)
    }

    /// Writes everything that waits.
    pub(super) fn finish(mut self) -> Result<(), CliError> {
        self.to.flush().map_err(CliError::io("cannot write a result"))
    }
}

/// Returns numbers with spaces between them.
pub(super) fn spaced(values: &[f32]) -> String {
    let values: Vec<String> = values.iter().map(f32::to_string).collect();
    values.join(" ")
}
