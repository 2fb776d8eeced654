//! Tests of a journal over a disk that fails.

use std::{sync::Arc, time::Duration};

use super::{
    fault_disk::{DiskFault, FaultDisk},
    *,
};
use crate::logic::{
    journal::{Acceptance, FRAMES},
    request::EngineRequest,
};

fn config(refuses_on_fault: bool) -> JournalConfig {
    JournalConfig {
        fingerprint: Fingerprint { weights: "w".to_owned(), ..Fingerprint::default() },
        max_bytes: 1 << 20,
        refuses_on_fault,
        model_name: "m".to_owned(),
        engine: "0".to_owned(),
    }
}

fn start(disk: &FaultDisk, config: JournalConfig) -> Result<Journal, JournalError> {
    Journal::start(Box::new(disk.clone()), config)
}

fn answer(journal: &Journal, name: &str, id: u64) {
    let name: Arc<str> = name.into();
    let data = Arc::from(&b"data"[..]);
    journal.record(Record::Answer { name: Arc::clone(&name), data, needs_requests: true });
    let request = EngineRequest { answer_id: Some(name), ..EngineRequest::for_test(id, [1, 2]) };
    let acceptance = Acceptance::new(journal.zero, &[Arc::new(request)]).unwrap();
    journal.record(Record::Accepted(acceptance));
}

fn names(journal: &Journal) -> Vec<String> {
    journal.take_restored().iter().map(|answer| answer.name.to_string()).collect()
}

#[tokio::test]
async fn durable_answers_are_there_in_the_next_process() {
    let disk = FaultDisk::default();
    let journal = start(&disk, config(true)).unwrap();
    answer(&journal, "a", 7);
    journal.durable().await.unwrap();
    disk.crash(|_| 0);
    let next = start(&disk, config(true)).unwrap();
    assert_eq!((names(&next), next.next_request()), (vec!["a".to_owned()], RequestId(8)));
    assert_eq!(names(&next), [""; 0]);
}

#[tokio::test]
async fn a_fault_refuses_requests_until_the_disk_works_again() {
    let disk = FaultDisk::default();
    let journal = start(&disk, config(true)).unwrap();
    disk.inject(Some(DiskFault::Dead));
    answer(&journal, "a", 1);
    let error = journal.durable().await.unwrap_err();
    assert!(matches!(&error, RequestError::Journal(why) if why.contains("no space")), "{error}");
    assert!(journal.refuses() && journal.check().is_err());
    disk.inject(None);
    // The thread tries again by itself.
    let mut progress = journal.progress.subscribe();
    progress.wait_for(|progress| progress.fault.is_none()).await.unwrap();
    assert_eq!(journal.check(), Ok(()));
    disk.crash(|_| 0);
    assert_eq!(names(&start(&disk, config(true)).unwrap()), ["a"]);
}

#[tokio::test]
async fn a_fault_stops_nothing_where_the_operator_wants_to_go_on() {
    let disk = FaultDisk::default();
    let journal = start(&disk, config(false)).unwrap();
    disk.inject(Some(DiskFault::Dead));
    answer(&journal, "a", 1);
    journal.durable().await.unwrap();
    assert_eq!(journal.check(), Ok(()));
}

/// Waits until the thread has written.
async fn recovered(journal: &Journal) {
    let mut progress = journal.progress.subscribe();
    progress.wait_for(|progress| progress.fault.is_none()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn only_the_first_request_waits_for_a_disk_that_hangs() {
    let disk = FaultDisk::default();
    let journal = start(&disk, config(false)).unwrap();
    disk.inject(Some(DiskFault::Hangs));
    answer(&journal, "a", 1);
    journal.durable_answer("a").await.unwrap();
    assert!(journal.is_degraded());
    let began = tokio::time::Instant::now();
    for id in 2..100 {
        let name = format!("answer-{id}");
        answer(&journal, &name, id);
        journal.durable_answer(&name).await.unwrap();
    }
    assert_eq!(began.elapsed(), Duration::ZERO);
    tokio::time::resume();
    disk.inject(None);
    recovered(&journal).await;
    journal.durable().await.unwrap();
    assert!(!journal.is_degraded());
    disk.crash(|_| 0);
    assert_eq!(names(&start(&disk, config(false)).unwrap()).len(), 99);
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_hangs_refuses_requests_at_once_where_the_operator_wants_that() {
    let disk = FaultDisk::default();
    let journal = start(&disk, config(true)).unwrap();
    disk.inject(Some(DiskFault::Hangs));
    answer(&journal, "a", 1);
    let error = journal.durable().await.unwrap_err().to_string();
    assert!(error.contains("did not answer within 10 s"), "{error}");
    assert!(journal.refuses() && journal.check().is_err());
    disk.inject(None);
    recovered(&journal).await;
    assert_eq!(journal.check(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn records_that_wait_for_the_disk_have_a_limit() {
    let disk = FaultDisk::default();
    let max_bytes = 64 << 10;
    let journal = start(&disk, JournalConfig { max_bytes, ..config(true) }).unwrap();
    disk.inject(Some(DiskFault::Hangs));
    answer(&journal, "first", 1);
    journal.durable().await.unwrap_err();
    for id in 2..2_000 {
        answer(&journal, &format!("answer-{id:04}"), id);
        journal.record(Record::Ended { request: RequestId(id), is_reproducible: true });
    }
    assert!(journal.queue.num_bytes() <= 2 * max_bytes);
    let lost = journal.durable_answer("answer-1999").await.unwrap_err().to_string();
    assert!(lost.contains("too many records wait for the disk"), "{lost}");
    tokio::time::resume();
    disk.inject(None);
    recovered(&journal).await;
    journal.durable_answer("first").await.unwrap();
    journal.durable_answer("answer-1999").await.unwrap_err();
    // Its client asks once more.
    journal.record(Record::Dropped { name: "answer-1999".into() });
    answer(&journal, "answer-1999", 2_000);
    journal.durable_answer("answer-1999").await.unwrap();
    disk.crash(|_| 0);
    let names = names(&start(&disk, config(true)).unwrap());
    assert!(names.contains(&"first".to_owned()) && names.contains(&"answer-1999".to_owned()));
    assert!(names.len() < 1_000, "{}", names.len());
}

#[tokio::test]
async fn a_process_that_was_closed_did_not_die_of_its_requests() {
    let disk = FaultDisk::default();
    for (is_closed, expected) in [(false, 0), (true, 1), (true, 1), (false, 1), (false, 2)] {
        let journal = start(&disk, config(true)).unwrap();
        let restored = journal.take_restored();
        assert_eq!(restored.first().map_or(0, |answer| answer.trial.num_deaths), expected);
        match restored.is_empty() {
            true => answer(&journal, "a", 1),
            false => journal.record(Record::Tried { names: vec!["a".into()] }),
        }
        journal.durable().await.unwrap();
        if is_closed {
            journal.close(true).await;
        }
        disk.crash(|_| 0);
    }
}

#[tokio::test]
async fn a_full_journal_says_how_much_it_needs() {
    let disk = FaultDisk::default();
    let journal = start(&disk, JournalConfig { max_bytes: 100, ..config(true) }).unwrap();
    (0..9).for_each(|id| answer(&journal, &format!("answer-{id}"), id));
    let error = journal.durable().await.unwrap_err().to_string();
    assert!(error.contains("journal_max_bytes is 100"), "{error}");
    for id in 0..9 {
        journal.record(Record::Dropped { name: format!("answer-{id}").into() });
    }
    assert_eq!(journal.durable().await, Ok(()));
}

#[tokio::test]
async fn what_comes_after_the_close_is_not_recorded() {
    let disk = FaultDisk::default();
    let journal = start(&disk, config(true)).unwrap();
    answer(&journal, "a", 1);
    journal.close(true).await;
    journal.record(Record::Dropped { name: "a".into() });
    tokio::time::sleep(Duration::from_millis(20)).await;
    disk.crash(|_| 0);
    assert_eq!(names(&start(&disk, config(true)).unwrap()), ["a"]);
}

#[test]
fn other_models_and_versions_are_refused_and_other_builds_start_over() {
    let disk = FaultDisk::default();
    let open =
        |fingerprint: Fingerprint| Writer::open(Box::new(disk.clone()), fingerprint, 1 << 20, 0);
    let own = config(true).fingerprint;
    let (mut writer, _) = open(own.clone()).unwrap();
    let data = Arc::from(&b"data"[..]);
    let answer = Record::Answer { name: "a".into(), data, needs_requests: true };
    writer.write(std::slice::from_ref(&answer)).unwrap();
    let error = open(Fingerprint { weights: "x".to_owned(), ..own.clone() }).unwrap_err();
    let expected = "the journal holds 1 answers of another model (weights: \"w\" then, \"x\" now)";
    assert!(error.to_string().starts_with(expected), "{error}");
    let (_, opened) = open(Fingerprint { build: "x".to_owned(), ..own.clone() }).unwrap();
    assert_eq!((opened.answers.len(), opened.told.len(), disk.num_aside()), (0, 1, 1));
    let newer = crate::codec::Frames { version: FRAMES.version + 1, ..FRAMES };
    disk.damage(|segment| {
        segment.clear();
        newer.encode(&answer, segment).unwrap();
    });
    assert!(matches!(open(own), Err(JournalError::Version { found: 3, expected: 2 })));
}

#[test]
fn a_damaged_segment_is_kept_and_told() {
    let disk = FaultDisk::default();
    let own = config(true).fingerprint;
    let open = || Writer::open(Box::new(disk.clone()), own.clone(), 1 << 20, 0).unwrap();
    let (mut writer, _) = open();
    for name in ["a", "b"] {
        let data = Arc::from(&b"data"[..]);
        writer.write(&[Record::Answer { name: name.into(), data, needs_requests: true }]).unwrap();
    }
    disk.damage(|segment| {
        let last = segment.len() - 1;
        segment[last] ^= 1;
    });
    let (_, opened) = open();
    assert_eq!(opened.answers.len(), 1);
    let [told] = opened.told.as_slice() else { panic!("{:?}", opened.told) };
    assert!(told.starts_with("the journal is damaged after 2 records"), "{told}");
    assert_eq!(disk.num_aside(), 1);
}
