//! Marks the events of a stream with their ids, and leaves out those that a client already has.

use axum::body::Bytes;

use super::{
    held::Event,
    position::{Batch, Position, Progress},
};

/// The time after which a client that lost its connection asks again, as the first event says.
const RETRY: &str = "retry: 1000\n";

/// The state of the marks of one stream.
pub(in crate::server) struct Marks {
    /// The stream's id, escaped.
    stream: String,
    /// The number of the next event.
    number: u64,
    progress: Vec<Progress>,
    /// The current batch, if its events have places.
    batch: Option<Batch>,
    /// The last event that the client has. Events up to it are left out.
    after: Option<Position>,
}

impl Marks {
    /// Returns the marks of a stream with so many choices, from the event after `after` on.
    pub(super) fn new(stream: String, num_choices: usize, after: Option<Position>) -> Self {
        let progress = vec![Progress::default(); num_choices];
        Self { stream, number: 0, progress, batch: None, after }
    }

    /// Begins the batch before any output.
    pub(in crate::server) fn begin(&mut self) {
        self.enter(Some(Batch::Beginning));
    }

    /// Begins the batch for new output of a choice.
    pub(in crate::server) fn output(&mut self, choice: usize, num_tokens: usize, has_ended: bool) {
        let Some(progress) = self.progress.get(choice).copied() else {
            return self.enter(None);
        };
        let after = Progress { num_tokens: progress.num_tokens + num_tokens, has_ended };
        let moves_on = after != progress;
        let batch =
            moves_on.then(|| Batch::Output { choice, after, before: self.progress.clone() });
        self.progress[choice] = after;
        self.enter(batch);
    }

    /// Begins the batch after all outputs.
    pub(in crate::server) fn end(&mut self) {
        self.enter(Some(Batch::End));
    }

    /// Begins a batch of events without places: they report a failure.
    pub(in crate::server) fn fail(&mut self) {
        self.after = None;
        self.enter(None);
    }

    fn enter(&mut self, batch: Option<Batch>) {
        self.batch = batch;
        if let Some(after) =
            self.after.as_ref().filter(|after| Some(&after.batch) == self.batch.as_ref())
        {
            self.number = after.number.saturating_sub(after.index as u64);
        }
    }

    /// Returns the number of the current batch's first event.
    pub(in crate::server) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the current batch's events that the client does not have, with their ids.
    pub(in crate::server) fn mark(&mut self, events: Vec<Bytes>) -> Vec<Event> {
        let first = self.number;
        self.number = self.number.saturating_add(events.len() as u64);
        let num_known = match &self.after {
            None => 0,
            Some(after) if Some(&after.batch) == self.batch.as_ref() => {
                after.index.saturating_add(1)
            }
            Some(_) => return Vec::new(),
        };
        self.after = None;
        let numbered = events.into_iter().enumerate().skip(num_known);
        numbered.map(|(index, bytes)| self.event(first + index as u64, index, &bytes)).collect()
    }

    fn event(&self, number: u64, index: usize, event: &Bytes) -> Event {
        let Some(batch) = &self.batch else {
            return Event { position: None, bytes: event.clone() };
        };
        let position = Position { number, index, batch: batch.clone() }.to_string();
        let retry = if number == 0 { RETRY } else { "" };
        let head = format!("{retry}id: {}:{position}\n", self.stream);
        Event { position: Some(position), bytes: Bytes::from([head.as_bytes(), event].concat()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(events: Vec<Event>) -> Vec<String> {
        let text = |event: Event| String::from_utf8(event.bytes.to_vec()).unwrap();
        events.into_iter().map(text).collect()
    }

    fn batch(texts: &[&str]) -> Vec<Bytes> {
        texts.iter().map(|text| Bytes::from(format!("data: {text}\n\n"))).collect()
    }

    #[test]
    fn events_get_ids_in_order() {
        let mut marks = Marks::new("s".to_owned(), 2, None);
        marks.begin();
        let first = texts(marks.mark(batch(&["a"])));
        assert_eq!(first, ["retry: 1000\nid: s:0.0.b\ndata: a\n\n"]);
        marks.output(1, 3, false);
        let second = texts(marks.mark(batch(&["b", "c"])));
        assert_eq!(second[0], "id: s:1.0.1-3.0,0\ndata: b\n\n");
        assert_eq!(second[1], "id: s:2.1.1-3.0,0\ndata: c\n\n");
        marks.output(1, 0, false);
        assert_eq!(texts(marks.mark(batch(&["d"]))), ["data: d\n\n"], "no choice moved on");
        marks.end();
        assert_eq!(texts(marks.mark(batch(&["e"]))), ["id: s:4.0.e\ndata: e\n\n"]);
    }

    #[test]
    fn another_process_goes_on_after_the_clients_last_event() {
        let after: Position = "9.0.1-3.0,0".parse().unwrap();
        let mut marks = Marks::new("s".to_owned(), 2, Some(after));
        marks.begin();
        assert_eq!(marks.mark(batch(&["a"])), []);
        marks.output(1, 3, false);
        assert_eq!(marks.number(), 9);
        assert_eq!(texts(marks.mark(batch(&["b", "c"]))), ["id: s:10.1.1-3.0,0\ndata: c\n\n"]);
        marks.output(0, 1, true);
        assert_eq!(texts(marks.mark(batch(&["d"]))), ["id: s:11.0.0-1e.0,3\ndata: d\n\n"]);
    }

    #[test]
    fn a_failure_is_told_without_an_id() {
        let after: Position = "9.0.1-3.0,0".parse().unwrap();
        let mut marks = Marks::new("s".to_owned(), 2, Some(after));
        marks.fail();
        assert_eq!(texts(marks.mark(batch(&["failed"]))), ["data: failed\n\n"]);
    }
}
