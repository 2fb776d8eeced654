//! Which responses are stored, for which owner, and how long.

use std::time::Duration;

use super::*;
use crate::server::handover;
use crate::server::http::auth::ApiKeys;
use crate::server::responses::{
    items::{Item, ItemStatus, Items, Message, Part, Role},
    response::{Asked, Response, Status},
    stored::stored_bytes,
};

const LIMITS: Limits = Limits { max_count: 3, max_bytes: 100_000, ttl: Duration::from_secs(60) };

fn store(limits: Limits) -> ResponseStore {
    ResponseStore {
        limits,
        total: Arc::default(),
        memory: MemoryBudget::new(64 << 20, "m", "0"),
        kept: Mutex::default(),
        background: TaskTracker::new(),
    }
}

fn said(id: &str, text: &str) -> Vec<Item> {
    vec![Item::Message(Message {
        id: id.to_owned(),
        status: ItemStatus::Completed,
        role: Role::Assistant,
        content: vec![Part::output_text(text.to_owned())],
    })]
}

/// Returns a response that continues `previous`, if there is one.
fn stored(store: &ResponseStore, id: &str, text: &str, previous: Option<&Stored>) -> Arc<Stored> {
    let mut response = Response::new(id.to_owned(), 1, Status::InProgress, Asked::default());
    response.end(Status::Completed, said(&format!("msg_{}_1", &id[5..]), text), None);
    let history = previous.map(|previous| previous.conversation().unwrap()).unwrap_or_default();
    let input = said(&format!("msg_{}_0", &id[5..]), "?").into_iter().map(Arc::new).collect();
    Arc::new(Stored::new(response, false, history, Arc::new(input), store.weight(), None))
}

fn running(store: &ResponseStore, id: &str) -> Arc<Stored> {
    let asked = Asked { background: true, ..Asked::default() };
    let response = Response::new(id.to_owned(), 1, Status::Queued, asked);
    Arc::new(Stored::new(response, true, Vec::new(), Arc::default(), store.weight(), None))
}

fn has(store: &ResponseStore, id: &str) -> bool {
    store.get(None, id).is_ok()
}

#[test]
fn the_response_unused_for_longest_is_removed_first() {
    let store = store(LIMITS);
    for id in ["resp_a", "resp_b", "resp_c"] {
        store.insert(None, stored(&store, id, "x", None));
    }
    assert!(has(&store, "resp_a"));
    store.insert(None, stored(&store, "resp_d", "x", None));
    let left = ["resp_a", "resp_b", "resp_c", "resp_d"].map(|id| has(&store, id));
    assert_eq!(left, [true, false, true, true]);
    let error = store.get(None, "resp_b").err().unwrap();
    assert_eq!((error.status.as_u16(), error.param.as_deref()), (404, Some("response_id")));
}

#[test]
fn a_running_response_stays() {
    let store = store(Limits { max_count: 1, ..LIMITS });
    let run = running(&store, "resp_run");
    store.insert(None, run.clone());
    store.insert(None, stored(&store, "resp_a", "x", None));
    assert_eq!(["resp_run", "resp_a"].map(|id| has(&store, id)), [true, false]);
    let mut response = run.response();
    response.end(Status::Completed, Vec::new(), None);
    run.update(Some(&response), Vec::new());
    store.insert(None, stored(&store, "resp_b", "x", None));
    assert_eq!(["resp_run", "resp_b"].map(|id| has(&store, id)), [false, true]);
}

#[test]
fn an_old_response_is_not_found() {
    let store = store(LIMITS);
    let (born, mut kept) = (Instant::now(), Kept::default());
    kept.insert(None, stored(&store, "resp_a", "x", None), born);
    kept.insert(None, running(&store, "resp_run"), born);
    let mut at = |seconds: u64, id: &str| {
        let now = born + Duration::from_secs(seconds);
        kept.get(None, id, &LIMITS, now).is_some()
    };
    assert!(at(59, "resp_a"));
    assert!(!at(60, "resp_a"));
    assert!(at(60, "resp_run"), "it is not over");
    kept.make_room(&LIMITS, &store.total, born + Duration::from_secs(60));
    assert_eq!(kept.entries.len(), 1);
}

#[test]
fn a_response_of_another_owner_is_not_found() {
    let store = store(LIMITS);
    let (mine, theirs) = (Some(Tenant(0)), Some(Tenant(1)));
    store.insert(mine, stored(&store, "resp_a", "x", None));
    assert!(store.get(mine, "resp_a").is_ok());
    assert!(store.item(mine, "msg_a_1").is_some());
    for other in [theirs, None] {
        assert!(store.get(other, "resp_a").is_err());
        assert!(store.remove(other, "resp_a").is_err());
        assert!(store.item(other, "msg_a_1").is_none());
    }
    assert!(store.remove(mine, "resp_a").is_ok());
    assert!(store.get(mine, "resp_a").is_err());
}

#[test]
fn turns_count_once_and_until_no_response_continues_them() {
    let store = store(LIMITS);
    let text = "x".repeat(10_000);
    let first = stored(&store, "resp_a", &text, None);
    store.insert(None, first.clone());
    let one = store.total.load(Ordering::Relaxed);
    assert!(one > 10_000, "{one}");
    store.insert(None, stored(&store, "resp_b", "y", Some(&first)));
    let both = store.total.load(Ordering::Relaxed);
    assert!(both < one + 5_000, "the first turn is shared: {one}, {both}");
    store.remove(None, "resp_a").unwrap();
    drop(first);
    let second = store.total.load(Ordering::Relaxed);
    assert!(second > 10_000, "the second needs the first's turn: {second}");
    let items = store.get(None, "resp_b").unwrap().given().count();
    assert_eq!(items, 3, "a question, its answer and another question");
    store.remove(None, "resp_b").unwrap();
    assert_eq!(store.total.load(Ordering::Relaxed), 0);
}

#[test]
fn memory_is_bounded_along_a_conversation() {
    let store = store(Limits { max_count: 1_000, ..LIMITS });
    let text = "x".repeat(10_000);
    let mut previous: Option<String> = None;
    let mut forgotten = 0;
    for turn in 0..50 {
        let id = format!("resp_{turn}");
        let before = previous.take().and_then(|id| store.get(None, &id).ok());
        forgotten += usize::from(turn > 0 && before.is_none());
        store.insert(None, stored(&store, &id, &text, before.as_deref()));
        drop(before);
        store.make_room();
        assert!(store.total.load(Ordering::Relaxed) <= LIMITS.max_bytes);
        previous = Some(id);
    }
    assert!(forgotten > 0, "a conversation that is larger than the store is forgotten");
}

#[test]
fn only_an_ended_response_can_be_continued() {
    let store = store(LIMITS);
    let run = running(&store, "resp_run");
    assert!(run.conversation().is_none());
    let mut response = run.response();
    response.end(Status::Cancelled, said("msg_run_1", "half"), None);
    run.update(Some(&response), Vec::new());
    assert_eq!(run.conversation().unwrap().len(), 1);
    assert!(run.item("msg_run_1").is_some());
}

/// Returns a response in the background that was asked `text` and waits.
fn waiting(store: &ResponseStore, id: &str, text: &str) -> Result<Arc<Stored>, ApiError> {
    let request = store.memory.lease();
    let asked = Asked { background: true, ..Asked::default() };
    let input: Items = said("msg_x_0", text).into_iter().map(Arc::new).collect();
    let weight = store.reserve(stored_bytes(&asked, &[], &input), &request)?;
    let response = Response::new(id.to_owned(), 1, Status::Queued, asked);
    let input = Arc::new(input);
    let stored = Stored::new(response, true, Vec::new(), input, weight, Some(&request));
    let stored = Arc::new(stored);
    store.insert(None, stored.clone());
    Ok(stored)
}

#[test]
fn a_waiting_response_weighs_from_its_beginning_and_further_ones_have_no_room() {
    let store = store(Limits { max_count: 1_000, ..LIMITS });
    let text = "x".repeat(30_000);
    store.insert(None, self::stored(&store, "resp_over", &text, None));
    let ids: Vec<String> = (0..5).map(|number| format!("resp_{number}")).collect();
    let kept = ids.iter().map_while(|id| waiting(&store, id, &text).ok()).count();
    assert_eq!(kept, 3);
    assert!(!has(&store, "resp_over"), "what is over goes first");
    let error = waiting(&store, "resp_late", &text).err().unwrap();
    assert_eq!((error.status.as_u16(), error.retry_after.is_some()), (503, true));
    let total = store.total.load(Ordering::Relaxed);
    assert!((90_000..=LIMITS.max_bytes).contains(&total), "{total}");
    assert_eq!(store.memory.in_use(), total, "the memory for requests has it all");
    ids.iter().for_each(|id| drop(store.remove(None, id)));
    assert_eq!((store.total.load(Ordering::Relaxed), store.memory.in_use()), (0, 0));
}

#[test]
fn events_weigh_as_they_come() {
    let store = store(LIMITS);
    let run = running(&store, "resp_run");
    store.insert(None, run.clone());
    let before = store.total.load(Ordering::Relaxed);
    let frame = axum::body::Bytes::from(vec![b'x'; 10_000]);
    run.update(None, vec![frame.clone(); 4]);
    let grown = store.total.load(Ordering::Relaxed) - before;
    assert!((40_000..41_000).contains(&grown), "{grown}");
    assert!(store.has_room());
    run.update(None, vec![frame; 10]);
    assert!(!store.has_room(), "what runs stays");
    assert_eq!(store.memory.in_use(), store.total.load(Ordering::Relaxed));
}

#[test]
fn an_item_is_shared_with_those_that_refer_to_it() {
    let store = store(LIMITS);
    store.insert(None, stored(&store, "resp_a", "x", None));
    let [one, other] = [0; 2].map(|_| store.item(None, "msg_a_1").unwrap());
    assert!(Arc::ptr_eq(&one, &other));
    for missing in ["msg_a_2", "msg_a_00", "msg_b_1", "msg_a"] {
        assert!(store.item(None, missing).is_none(), "{missing}");
    }
}

/// A process before an upgrade hands its responses over.
#[test]
fn responses_move_to_another_store_with_their_conversations() {
    let keys = ApiKeys::new(&ServerConfig::default()).unwrap();
    let (old, new) = (store(LIMITS), store(LIMITS));
    let first = stored(&old, "resp_a", "one", None);
    let second = stored(&old, "resp_b", "two", Some(&first));
    let third = stored(&old, "resp_c", "three", Some(&second));
    for stored in [&first, &third] {
        old.insert(None, stored.clone());
    }
    old.insert(None, running(&old, "resp_run"));
    let (parts, num_lost) = old.all_parts(&keys);
    assert_eq!((parts.len(), num_lost), (3, 0), "two responses, and the turn between them");
    let enter = |bytes: &[u8]| {
        let mut heir = new.heir();
        let mut rest = bytes;
        while let Some((part, len)) = handover::Part::decode(rest).unwrap() {
            rest = &rest[len..];
            match part {
                handover::Part::Response(part) => heir.enter(part, &keys),
                handover::Part::Answer(_) => panic!("there are no answers"),
            }
        }
    };
    // One of them was fetched before.
    enter(&old.parts_of(None, &first, &keys).unwrap());
    enter(&parts.concat());
    let json = |stored: &Stored| serde_json::to_value(stored.response()).unwrap();
    for before in [&first, &third] {
        let after = new.get(None, &before.response().id).unwrap();
        assert_eq!(json(&after), json(before));
        let items = |stored: &Stored| {
            let turns = stored.conversation().unwrap();
            turns.iter().flat_map(|turn| turn.items()).cloned().collect::<Vec<_>>()
        };
        assert_eq!(items(&after), items(before));
    }
    assert!(!has(&new, "resp_run"), "it is not over");
    let after = new.get(None, "resp_c").unwrap();
    assert_eq!(after.history().len(), 2);
    let own = new.get(None, "resp_a").unwrap().conversation().unwrap().pop().unwrap();
    assert!(Arc::ptr_eq(&after.history()[0], &own), "the turn is shared");
}
