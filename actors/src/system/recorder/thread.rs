//! The thread that writes a recording.

use std::{io, sync::Arc, sync::atomic::Ordering};

use flume::{Receiver, Sender};

use super::{
    config::{OpenRecording, RecorderConfig, RecordingFile},
    state::State,
};
use crate::{
    codec::EncodeError,
    logic::recording::{Began, Entry, FRAMES, StopCause},
};

/// Largest number of entries in a frame.
const FRAME_ENTRIES: usize = 256;

/// A frame with more content of images and sounds than this gets no further entry, bytes.
const FRAME_CONTENT_BYTES: usize = 1 << 20;

/// Number of bytes that are kept for the last frame.
const END_BYTES: usize = 32;

/// The reason why no further entry can be written.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error("{0}")]
    Stopped(StopCause),
    #[error(transparent)]
    File(#[from] io::Error),
    #[error(transparent)]
    Entry(#[from] EncodeError),
}

pub(super) struct RecorderThread {
    began: Option<Began>,
    max_bytes: usize,
    bytes_of: fn(usize) -> usize,
    open: Option<OpenRecording>,
    entries: Receiver<Entry>,
    state: Arc<State>,
    ended: Sender<()>,
    file: Option<RecordingFile>,
    num_bytes: usize,
}

impl RecorderThread {
    pub(super) fn new(
        config: RecorderConfig,
        entries: Receiver<Entry>,
        state: Arc<State>,
        ended: Sender<()>,
    ) -> Self {
        let RecorderConfig { began, max_bytes, bytes_of, open, .. } = config;
        let (began, open) = (Some(began), Some(open));
        Self { began, max_bytes, bytes_of, open, entries, state, ended, file: None, num_bytes: 0 }
    }

    pub(super) fn spawn(self) -> io::Result<()> {
        let thread = std::thread::Builder::new().name("playhouse-recorder".to_owned());
        thread.spawn(move || self.run()).map(drop)
    }

    fn run(mut self) {
        if let Err(fault) = self.record() {
            self.state.truncate();
            tracing::warn!(%fault, "the recording stops, the engine goes on");
        }
        // Nothing waits for the end of most recordings.
        let _ = self.ended.try_send(());
    }

    fn record(&mut self) -> Result<(), Fault> {
        while let Ok(first) = self.entries.recv() {
            self.begin()?;
            let mut num_bytes = first.content_bytes();
            let mut batch = vec![first];
            while batch.len() < FRAME_ENTRIES
                && num_bytes <= FRAME_CONTENT_BYTES
                && let Ok(next) = self.entries.try_recv()
            {
                num_bytes += next.content_bytes();
                batch.push(next);
            }
            let is_end = matches!(batch.last(), Some(Entry::Stopped(_)));
            self.write(&batch)?;
            self.state.content_bytes.fetch_sub(num_bytes, Ordering::AcqRel);
            if is_end {
                return Ok(());
            }
            if self.entries.is_empty() && self.state.was_full.load(Ordering::Acquire) {
                return self.end(StopCause::QueueFull);
            }
        }
        self.end(StopCause::Closed)
    }

    /// Opens the file, and writes the first entry.
    fn begin(&mut self) -> Result<(), Fault> {
        let (Some(open), Some(began)) = (self.open.take(), self.began.take()) else {
            return Ok(());
        };
        self.file = Some(open()?);
        self.write(&[Entry::Began(Box::new(began))])
    }

    fn write(&mut self, entries: &[Entry]) -> Result<(), Fault> {
        let mut frame = Vec::new();
        FRAMES.encode(&entries, &mut frame)?;
        let (next, last) = ((self.bytes_of)(frame.len()), (self.bytes_of)(END_BYTES));
        if self.num_bytes + next + last > self.max_bytes {
            self.end(StopCause::MaxBytes)?;
            return Err(Fault::Stopped(StopCause::MaxBytes));
        }
        self.append(&frame)
    }

    /// Writes the last frame, if there is a first one.
    fn end(&mut self, cause: StopCause) -> Result<(), Fault> {
        let mut frame = Vec::new();
        FRAMES.encode(&[Entry::Stopped(cause)].as_slice(), &mut frame)?;
        self.append(&frame)
    }

    fn append(&mut self, frame: &[u8]) -> Result<(), Fault> {
        if let Some(file) = &mut self.file {
            // One write: a process that is killed leaves at most one frame cut off.
            file.write_all(frame)?;
            self.num_bytes += (self.bytes_of)(frame.len());
        }
        Ok(())
    }
}
