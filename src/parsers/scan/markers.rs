//! Finds the first of several markers in a stream of text.

use super::words::Words;

/// Passes text on until a marker appears. Holds back text that may still become a marker.
#[derive(Debug)]
pub(in super::super) struct MarkerFinder {
    markers: Words,
    /// The beginning of at least one marker.
    held: String,
}

impl MarkerFinder {
    pub(in super::super) fn new(markers: impl Into<Words>) -> Self {
        Self { markers: markers.into(), held: String::new() }
    }

    /// Takes a character. Appends to `text` the characters that are not part of a marker. Returns
    /// the index of the marker that the character completes.
    pub(in super::super) fn push(&mut self, c: char, text: &mut String) -> Option<usize> {
        self.held.push(c);
        while !self.held.is_empty() {
            if let Some(whole) = self.markers.position(|marker| marker == self.held) {
                self.held.clear();
                return Some(whole);
            }
            if self.markers.position(|marker| marker.starts_with(&self.held)).is_some() {
                return None;
            }
            text.push(self.held.remove(0));
        }
        None
    }

    /// Returns the text held back, which became no marker.
    pub(in super::super) fn take_held(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}
