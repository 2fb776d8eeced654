//! Recordings on a disk that is slow, small or broken.

use std::io::{Error, Result, Write};

use parking_lot::Mutex;

use super::*;
use crate::logic::{
    journal::Fingerprint,
    recording::{Began, Scan, scan},
    request::{EngineRequest, ids::RequestId},
    scheduler::SchedulerConfig,
};

/// A file in memory. After `max_len` bytes, the disk is full.
#[derive(Clone)]
struct Memory {
    content: Arc<Mutex<Vec<u8>>>,
    max_len: usize,
}

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        let mut content = self.content.lock();
        if content.len() + bytes.len() > self.max_len {
            return Err(Error::other("the disk is full"));
        }
        content.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

struct Recording {
    recorder: Recorder,
    content: Arc<Mutex<Vec<u8>>>,
}

impl Recording {
    fn new(max_bytes: usize, disk_bytes: usize, max_entries: usize, gate: Arc<Mutex<()>>) -> Self {
        let content = Arc::default();
        let file = Memory { content: Arc::clone(&content), max_len: disk_bytes };
        let began = Began {
            version: String::new(),
            fingerprint: Fingerprint::default(),
            scheduler: SchedulerConfig::default(),
            settings: Vec::new(),
            is_redacted: false,
        };
        let open = move || {
            drop(gate.lock());
            Ok(Box::new(file) as RecordingFile)
        };
        let config = RecorderConfig {
            began,
            has_media: true,
            max_bytes,
            bytes_of: |len| len,
            open: Box::new(open),
        };
        let recorder = Recorder::with_queue(config, max_entries).unwrap();
        Self { recorder, content }
    }

    fn note(&self, id: u64) {
        self.recorder.note(|| Entry::Added(vec![Arc::new(EngineRequest::for_test(id, [1]))]));
    }

    fn scan(&self) -> Scan {
        scan(&self.content.lock()).unwrap()
    }
}

fn ids(scan: &Scan) -> Vec<u64> {
    let ids = scan.entries.iter().filter_map(|entry| match entry {
        Entry::Added(requests) => Some(requests[0].id.0),
        _ => None,
    });
    ids.collect()
}

const NO_LIMIT: usize = 1 << 30;

#[tokio::test]
async fn entries_are_written_in_order_until_the_engine_ends() {
    let recording = Recording::new(NO_LIMIT, NO_LIMIT, 1_000, Arc::default());
    (1..=600).for_each(|id| recording.note(id));
    recording.recorder.close().await;
    recording.note(601);
    let scan = recording.scan();
    assert_eq!(ids(&scan), (1..=600).collect::<Vec<_>>());
    assert_eq!(scan.entries.last(), Some(&Entry::Stopped(StopCause::Closed)));
    assert_eq!(scan.fault, None);
    assert!(!recording.recorder.take_truncation());
}

#[tokio::test]
async fn a_recording_has_a_maximum_size() {
    let recording = Recording::new(2_000, NO_LIMIT, 10_000, Arc::default());
    (1..=5_000).for_each(|id| recording.note(id));
    recording.recorder.close().await;
    let scan = recording.scan();
    assert!(scan.num_bytes <= 2_000, "{} bytes", scan.num_bytes);
    assert_eq!(scan.entries.last(), Some(&Entry::Stopped(StopCause::MaxBytes)));
    assert!(recording.recorder.take_truncation());
    assert!(!recording.recorder.take_truncation(), "it is counted once");
}

#[tokio::test]
async fn a_disk_that_hangs_ends_the_recording_and_nothing_else() {
    let gate = Arc::new(Mutex::new(()));
    let closed = gate.lock();
    let recording = Recording::new(NO_LIMIT, NO_LIMIT, 10, Arc::clone(&gate));
    (1..=100).for_each(|id| recording.note(id));
    assert!(recording.recorder.take_truncation());
    drop(closed);
    recording.recorder.close().await;
    let scan = recording.scan();
    let (ids, expected) = (ids(&scan), 1..=scan.entries.len() as u64 - 1);
    assert!((10..=12).contains(&ids.len()), "{ids:?}");
    assert_eq!(ids, expected.collect::<Vec<_>>(), "no entry is left out between others");
    assert_eq!(scan.entries.last(), Some(&Entry::Stopped(StopCause::QueueFull)));
}

#[tokio::test]
async fn a_full_disk_leaves_the_entries_before() {
    let recording = Recording::new(NO_LIMIT, 1_000, 10_000, Arc::default());
    recording.note(RequestId(1).0);
    // The head comes first, and alone.
    while recording.content.lock().is_empty() || ids(&recording.scan()).is_empty() {
        tokio::task::yield_now().await;
    }
    (2..=5_000).for_each(|id| recording.note(id));
    recording.recorder.close().await;
    assert!(recording.recorder.take_truncation());
    assert_eq!(ids(&recording.scan()).first(), Some(&1));
}
