//! The settings of a recorder.

use std::io;

use crate::logic::recording::Began;

/// A file that was opened for a recording.
pub type RecordingFile = Box<dyn io::Write + Send>;

/// Opens the file of a recording, before its first entry.
pub type OpenRecording = Box<dyn FnOnce() -> io::Result<RecordingFile> + Send>;

/// The settings of a recorder.
pub struct RecorderConfig {
    /// The first entry.
    pub began: Began,
    /// Whether the content of images and sounds is recorded.
    pub has_media: bool,
    /// Maximum size of the file, bytes.
    pub max_bytes: usize,
    /// Returns the most bytes that a frame of so many bytes takes in the file. It differs if the
    /// file is encrypted.
    pub bytes_of: fn(usize) -> usize,
    /// Opens the file.
    pub open: OpenRecording,
}

impl std::fmt::Debug for RecorderConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecorderConfig").field("max_bytes", &self.max_bytes).finish_non_exhaustive()
    }
}
