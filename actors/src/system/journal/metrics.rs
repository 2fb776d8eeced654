//! The journal's metrics.
//!
//! Two journals may have the same labels for a while: those of the engines before and after a swap.
//! So each adds its changes, and takes its part away at its end.

use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Label, counter, gauge, histogram};
use parking_lot::Mutex;

use super::writer::Writer;

/// The metrics of one journal.
pub(crate) struct JournalMetrics {
    degraded: Gauge,
    answers: Gauge,
    bytes: Gauge,
    of_other_models: Gauge,
    records: Counter,
    syncs: Counter,
    lost: Counter,
    write_time: Histogram,
    /// This journal's part.
    part: Mutex<Part>,
}

/// The part of one journal in its gauges, and in the counter of syncs.
#[derive(Debug, Clone, Copy, Default)]
struct Part {
    degraded: f64,
    answers: f64,
    bytes: f64,
    of_other_models: f64,
    num_syncs: u64,
}

impl JournalMetrics {
    /// Returns the metrics, which show an empty journal.
    pub(crate) fn new(model_name: &str, engine: &str) -> Self {
        let labels = [
            Label::new("model_name", model_name.to_owned()),
            Label::new("engine", engine.to_owned()),
        ];
        let l = || labels.iter();
        let metrics = Self {
            degraded: gauge!("playhouse:journal_degraded", l()),
            answers: gauge!("playhouse:journal_answers", l()),
            bytes: gauge!("playhouse:journal_segment_bytes", l()),
            of_other_models: gauge!("playhouse:journal_other_model_answers", l()),
            records: counter!("playhouse:journal_records_total", l()),
            syncs: counter!("playhouse:journal_syncs_total", l()),
            lost: counter!("playhouse:journal_lost_records_total", l()),
            write_time: histogram!("playhouse:journal_write_time_seconds", l()),
            part: Mutex::default(),
        };
        metrics.change(|_| ());
        metrics.records.increment(0);
        metrics.lost.increment(0);
        metrics
    }

    /// Changes this journal's part.
    fn change(&self, change: impl FnOnce(&mut Part)) {
        let mut part = self.part.lock();
        let before = *part;
        change(&mut part);
        self.degraded.increment(part.degraded - before.degraded);
        self.answers.increment(part.answers - before.answers);
        self.bytes.increment(part.bytes - before.bytes);
        self.of_other_models.increment(part.of_other_models - before.of_other_models);
        self.syncs.increment(part.num_syncs.saturating_sub(before.num_syncs));
    }

    /// Adds answers of other models, which stay in journals without a process.
    pub(super) fn have_other_models(&self, num_answers: usize) {
        self.change(|part| part.of_other_models += num_answers as f64);
    }

    /// Counts a record that is not written.
    pub(super) fn lost(&self) {
        self.lost.increment(1);
    }

    /// Shows that the disk does not answer.
    pub(super) fn hangs(&self) {
        self.change(|part| part.degraded = 1.0);
    }

    /// Counts a write of so many records.
    pub(super) fn wrote(&self, num_records: usize, time: Duration) {
        self.records.increment(num_records as u64);
        self.write_time.record(time.as_secs_f64());
    }

    /// Shows the state of the journal.
    pub(super) fn show(&self, writer: &Writer, is_degraded: bool) {
        self.change(|part| {
            part.degraded = f64::from(u8::from(is_degraded));
            part.answers = writer.live().len() as f64;
            part.bytes = writer.segment_bytes() as f64;
            part.num_syncs = writer.num_syncs;
        });
    }

    /// Shows that the journal has ended.
    pub(super) fn ended(&self) {
        self.change(|part| *part = Part { num_syncs: part.num_syncs, ..Part::default() });
    }
}
