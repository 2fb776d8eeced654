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
    let left = disk.leave().iter().map(FaultDisk::to_left).collect();
    Journal::start(Box::new(disk.clone()), left, config)
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

/// Begins a journal with the content of those in `left`.
fn open(
    left: &[&FaultDisk],
    fingerprint: &Fingerprint,
) -> Result<(FaultDisk, Writer, Opened), JournalError> {
    let (disk, left) = (FaultDisk::default(), left.iter().map(|disk| disk.to_left()).collect());
    let opened = Writer::open(Box::new(disk.clone()), left, fingerprint.clone(), 1 << 20, 0);
    opened.map(|(writer, opened)| (disk, writer, opened))
}

fn begun(name: &str, needs_requests: bool) -> Record {
    Record::Answer { name: name.into(), data: Arc::from(&b"data"[..]), needs_requests }
}

fn opened_names(opened: &Opened) -> Vec<&str> {
    opened.answers.iter().map(|answer| &*answer.name).collect()
}

#[test]
fn answers_of_another_model_stay_until_that_model_is_started() {
    let own = config(true).fingerprint;
    let other = Fingerprint { weights: "x".to_owned(), ..own.clone() };
    let (disk, mut writer, _) = open(&[], &own).unwrap();
    writer.write(&[begun("open", true), begun("made", false)]).unwrap();
    let (taken, _, opened) = open(&[&disk], &other).unwrap();
    assert_eq!(opened_names(&opened), ["made"], "a whole answer needs no model");
    assert_eq!(opened.num_of_other_models, 1);
    let told = &opened.told[0];
    let expected = "1 answers of another model stay in the disk (weights: \"w\" then, \"x\" now)";
    assert!(told.starts_with(expected), "{told}");
    let (_, _, opened) = open(&[&taken, &disk], &own).unwrap();
    assert_eq!(opened_names(&opened), ["made", "open"]);
    assert_eq!(disk.to_left().disk.read().unwrap(), None, "it was taken over");
}

#[test]
fn another_build_keeps_whole_answers_alone() {
    let own = config(true).fingerprint;
    let (disk, mut writer, _) = open(&[], &own).unwrap();
    writer.write(&[begun("open", true), begun("made", false)]).unwrap();
    let newer = Fingerprint { build: "x".to_owned(), ..own };
    let (_, _, opened) = open(&[&disk], &newer).unwrap();
    assert_eq!((opened_names(&opened), opened.told.len()), (vec!["made"], 1));
    assert_eq!((disk.num_aside(), disk.to_left().disk.read().unwrap()), (1, None));
}

#[test]
fn another_version_is_refused() {
    let own = config(true).fingerprint;
    let (disk, mut writer, _) = open(&[], &own).unwrap();
    writer.write(&[begun("a", true)]).unwrap();
    let newer = crate::codec::Frames { version: FRAMES.version + 1, ..FRAMES };
    disk.damage(|segment| {
        segment.clear();
        newer.encode(&begun("a", true), segment).unwrap();
    });
    let error = open(&[&disk], &own).map(drop).unwrap_err();
    assert!(matches!(error, JournalError::Version { found: 4, expected: 3 }), "{error}");
}

#[test]
fn requests_of_several_journals_get_ids_of_their_own() {
    let own = config(true).fingerprint;
    let accepted = |name: &str, id| {
        let request =
            EngineRequest { answer_id: Some(name.into()), ..EngineRequest::for_test(id, [1, 2]) };
        Record::Accepted(Acceptance::new(0, &[Arc::new(request)]).unwrap())
    };
    let ended = Record::Ended { request: RequestId(3), is_reproducible: true };
    let (newer, mut writer, _) = open(&[], &own).unwrap();
    writer.write(&[begun("b", true), accepted("b", 3)]).unwrap();
    let (older, mut writer, _) = open(&[], &own).unwrap();
    writer.write(&[begun("a", true), accepted("a", 3), ended.clone()]).unwrap();
    writer.write(&[begun("b", true), accepted("b", 2)]).unwrap();
    let (_, _, opened) = open(&[&newer, &older], &own).unwrap();
    let found = |answer: &Answer| {
        let request = &answer.requests[0];
        (answer.name.to_string(), request.request.id.0, request.request.group.0, request.end)
    };
    let found: Vec<_> = opened.answers.iter().map(found).collect();
    let expected = [("a".to_owned(), 7, 7, Some(true)), ("b".to_owned(), 3, 3, None)];
    assert_eq!((found.as_slice(), opened.next_request), (&expected[..], RequestId(8)));
}

/// The journal of a process that ends while this one runs.
#[tokio::test]
async fn a_running_journal_takes_over_another_one() {
    let (mine, theirs) = (FaultDisk::default(), FaultDisk::default());
    let journal = start(&mine, config(true)).unwrap();
    answer(&journal, "a", 0);
    let other = start(&theirs, config(true)).unwrap();
    answer(&other, "b", 0);
    journal.durable().await.unwrap();
    other.durable().await.unwrap();
    theirs.crash(|_| 0);
    let mut takeover = journal.read_left(vec![theirs.to_left()]).unwrap();
    assert!(journal.has_room_for(&takeover) && !takeover.is_empty());
    mine.inject(Some(DiskFault::Dead));
    let answers = journal.take_over(&mut takeover, |_| RequestId(10)).unwrap();
    let [answer] = answers.as_slice() else { panic!("{answers:?}") };
    assert_eq!((&*answer.name, answer.requests[0].request.id), ("b", RequestId(10)));
    assert_eq!(answer.trial.num_deaths, 1);
    let written = journal.written();
    tokio::pin!(written);
    let soon = tokio::time::timeout(Duration::from_millis(50), &mut written).await;
    assert!(soon.is_err(), "nothing is durable on a dead disk");
    mine.inject(None);
    assert!(written.await);
    takeover.settle();
    assert_eq!(theirs.to_left().disk.read().unwrap(), None);
    mine.crash(|_| 0);
    assert_eq!(names(&start(&mine, config(true)).unwrap()), ["a", "b"]);
}

/// The engine before a swap ends. Its journal goes on for the answers that clients have not read.
#[tokio::test]
async fn a_journal_may_outlive_its_engine() {
    let disk = FaultDisk::default();
    let journal = start(&disk, config(true)).unwrap();
    ["a", "b"].into_iter().zip(1..).for_each(|(name, id)| answer(&journal, name, id));
    journal.outlive_engine();
    journal.end_engine(true).await;
    journal.record(Record::Dropped { name: "a".into() });
    journal.durable().await.unwrap();
    disk.crash(|_| 0);
    let next = start(&disk, config(true)).unwrap();
    let restored = next.take_restored();
    let found: Vec<_> = restored.iter().map(|one| (&*one.name, one.trial.num_deaths)).collect();
    assert_eq!(found, [("b", 0)], "its engine ended as the operator wanted");
}

#[test]
fn a_damaged_segment_is_kept_and_told() {
    let own = config(true).fingerprint;
    let (disk, mut writer, _) = open(&[], &own).unwrap();
    for name in ["a", "b"] {
        writer.write(&[begun(name, true)]).unwrap();
    }
    disk.damage(|segment| {
        let last = segment.len() - 1;
        segment[last] ^= 1;
    });
    let (_, _, opened) = open(&[&disk], &own).unwrap();
    assert_eq!(opened.answers.len(), 1);
    let [told] = opened.told.as_slice() else { panic!("{:?}", opened.told) };
    assert!(told.starts_with("the journal is damaged after 2 records"), "{told}");
    assert_eq!(disk.num_aside(), 1);
}
