//! The journal's metrics.

use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Label, counter, gauge, histogram};

use super::writer::Writer;

/// The metrics of one journal.
pub(crate) struct JournalMetrics {
    degraded: Gauge,
    answers: Gauge,
    bytes: Gauge,
    records: Counter,
    syncs: Counter,
    lost: Counter,
    write_time: Histogram,
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
            records: counter!("playhouse:journal_records_total", l()),
            syncs: counter!("playhouse:journal_syncs_total", l()),
            lost: counter!("playhouse:journal_lost_records_total", l()),
            write_time: histogram!("playhouse:journal_write_time_seconds", l()),
        };
        metrics.degraded.set(0.0);
        metrics.answers.set(0.0);
        metrics.bytes.set(0.0);
        metrics.records.increment(0);
        metrics.syncs.increment(0);
        metrics.lost.increment(0);
        metrics
    }

    /// Counts a record that is not written.
    pub(super) fn lost(&self) {
        self.lost.increment(1);
    }

    /// Shows that the disk does not answer.
    pub(super) fn hangs(&self) {
        self.degraded.set(1.0);
    }

    /// Counts a write of so many records.
    pub(super) fn wrote(&self, num_records: usize, time: Duration) {
        self.records.increment(num_records as u64);
        self.write_time.record(time.as_secs_f64());
    }

    /// Shows the state of the journal.
    pub(super) fn show(&self, writer: &Writer, is_degraded: bool) {
        self.degraded.set(f64::from(u8::from(is_degraded)));
        self.answers.set(writer.live().len() as f64);
        self.bytes.set(writer.segment_bytes() as f64);
        self.syncs.absolute(writer.num_syncs);
    }
}
