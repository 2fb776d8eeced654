//! Kept answers as data, for another process. An answer that is not over is not among them: the
//! journal has its requests.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use super::{
    exchange::WholeAnswer,
    held::Held,
    kept::{Kept, KeptAnswers},
    whole::Whole,
};
use crate::server::{http::auth::ApiKeys, state::AppState};

/// One answer.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::server) struct AnswerPart {
    /// The name of its key.
    owner: Option<u64>,
    /// Its id, escaped. `None` if its client gave it a name.
    id: Option<String>,
    /// The client's name for it.
    key: Option<String>,
    request_hash: [u8; 32],
    /// Seconds since it was over.
    age_secs: u64,
    content: Content,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Content {
    Stream(EndedStream),
    Whole(WholeAnswer),
}

/// A stream that has ended.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct EndedStream {
    /// The place of the event before the first. `None` if the stream is whole.
    pub(super) base: Option<String>,
    /// The events, each with its place.
    pub(super) events: Vec<(Option<String>, Vec<u8>)>,
}

impl KeptAnswers {
    /// Returns the answers that are over.
    pub(in crate::server) fn parts(&self, keys: &ApiKeys) -> Vec<AnswerPart> {
        let now = Instant::now();
        let (answers, by_key) = self.all();
        let mut parts = Vec::new();
        for ((owner, id), kept) in answers {
            let owner = owner.and_then(|owner| keys.name_of(owner));
            let (request_hash, over) = match &kept {
                Kept::Stream(held) => {
                    let ended = held.ended(now).map(|(stream, age)| (Content::Stream(stream), age));
                    (held.request_hash, ended)
                }
                Kept::Whole(whole) => (whole.request_hash, over(whole, now)),
                Kept::Dormant(_) => continue,
            };
            parts.extend(part(owner, (Some(id), None), request_hash, over));
        }
        for ((owner, key), whole) in by_key {
            let owner = owner.and_then(|owner| keys.name_of(owner));
            parts.extend(part(owner, (None, Some(key)), whole.request_hash, over(&whole, now)));
        }
        parts
    }

    /// Enters an answer of another process, unless this one has it or its key is not known.
    pub(in crate::server) fn enter_part(&self, part: AnswerPart, state: &AppState) {
        let owner = match part.owner {
            None if !state.keys.are_needed() => None,
            None => return,
            Some(name) => match state.keys.named(name) {
                Some(owner) => Some(owner),
                None => return,
            },
        };
        let since = Instant::now();
        let since = since.checked_sub(Duration::from_secs(part.age_secs)).unwrap_or(since);
        let (lease, hash) = (state.engine.memory().lease(), part.request_hash);
        match (part.content, part.id, part.key) {
            (Content::Stream(stream), Some(id), _) => {
                if let Some(held) = Held::of_another(stream, hash, since, lease) {
                    self.restore(owner, id, Kept::Stream(held));
                }
            }
            (Content::Whole(answer), id, key) => {
                if lease.add(answer.body.len()).is_err() {
                    return;
                }
                let whole = Arc::new(Whole::of_another(hash, answer, since, lease));
                if let Some(id) = id {
                    self.restore(owner, id, Kept::Whole(Arc::clone(&whole)));
                }
                if let Some(key) = key {
                    self.restore_key(owner, key, whole);
                }
            }
            (Content::Stream(_), None, _) => {}
        }
    }
}

fn over(whole: &Whole, now: Instant) -> Option<(Content, Duration)> {
    let (answer, since) = whole.answered()?;
    let age = now.saturating_duration_since(since);
    Some((Content::Whole(WholeAnswer::clone(&answer)), age))
}

fn part(
    owner: Option<u64>,
    (id, key): (Option<String>, Option<String>),
    request_hash: [u8; 32],
    over: Option<(Content, Duration)>,
) -> Option<AnswerPart> {
    let (content, age) = over?;
    Some(AnswerPart { owner, id, key, request_hash, age_secs: age.as_secs(), content })
}
