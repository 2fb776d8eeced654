//! Finds the first of several markers in a stream of text.

/// Lets text through until a marker shows; holds back what may still become one.
#[derive(Debug)]
pub(in super::super) struct MarkerFinder {
    markers: &'static [&'static str],
    /// A beginning of at least one marker.
    held: String,
}

impl MarkerFinder {
    pub(in super::super) fn new(markers: &'static [&'static str]) -> Self {
        Self { markers, held: String::new() }
    }

    /// Takes a character. Appends to `text` what is part of no marker; gives the index of the
    /// marker that is now complete.
    pub(in super::super) fn push(&mut self, c: char, text: &mut String) -> Option<usize> {
        self.held.push(c);
        while !self.held.is_empty() {
            if let Some(whole) = self.markers.iter().position(|marker| *marker == self.held) {
                self.held.clear();
                return Some(whole);
            }
            if self.markers.iter().any(|marker| marker.starts_with(&self.held)) {
                return None;
            }
            text.push(self.held.remove(0));
        }
        None
    }

    /// Gives up what is held back: no marker came of it.
    pub(in super::super) fn take_held(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}
