//! Stored responses as data, for another process. A turn is sent once, however many responses
//! continue it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use axum::body::Bytes;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{
    items::Items,
    response::Response,
    store::{Owner, ResponseStore},
    stored::{Stored, Turn},
};
use crate::{
    api::EncodeError,
    server::{handover::Part, http::auth::ApiKeys},
};

/// A part of a store.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::server) enum ResponsePart {
    Turn(TurnPart),
    Response(StoredPart),
}

/// A turn that responses continue. Its fields with items are JSON.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::server) struct TurnPart {
    number: u64,
    input: String,
    output: String,
}

/// A response that is over. Its fields with items are JSON.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::server) struct StoredPart {
    /// The name of its key.
    owner: Option<u64>,
    /// Seconds since it was stored.
    age_secs: u64,
    is_streamed: bool,
    /// The turns before it, by their numbers.
    history: Vec<u64>,
    /// The number of its own turn.
    number: u64,
    input: String,
    response: String,
    /// Its events, as they are sent.
    frames: Vec<Vec<u8>>,
}

/// Returns a number of a turn that no other turn has while both are stored.
fn number(turn: &Arc<Turn>) -> u64 {
    Arc::as_ptr(turn) as u64
}

fn json(value: &impl Serialize) -> String {
    // Only strings, numbers and maps with strings as keys, so this cannot fail.
    serde_json::to_string(value).unwrap_or_default()
}

impl StoredPart {
    /// `None` if the response is not over.
    fn new(stored: &Stored, owner: Option<u64>, age: Duration) -> Option<Self> {
        let conversation = stored.conversation()?;
        let (own, before) = conversation.split_last()?;
        Some(Self {
            owner,
            age_secs: age.as_secs(),
            is_streamed: stored.is_streamed(),
            history: before.iter().map(number).collect(),
            number: number(own),
            input: json(own.input()),
            response: json(&stored.response()),
            frames: stored.frames().iter().map(|frame| frame.to_vec()).collect(),
        })
    }
}

/// Writes responses, each with the turns that were not written before.
#[derive(Default)]
struct Writer {
    written: BTreeSet<u64>,
    parts: Vec<Bytes>,
}

impl Writer {
    fn write(
        &mut self,
        stored: &Stored,
        owner: Option<u64>,
        age: Duration,
    ) -> Result<(), EncodeError> {
        let Some(part) = StoredPart::new(stored, owner, age) else { return Ok(()) };
        for turn in stored.history() {
            let number = number(turn);
            if self.written.insert(number) {
                let (input, output) = (json(turn.input()), json(turn.output()));
                self.push(ResponsePart::Turn(TurnPart { number, input, output }))?;
            }
        }
        self.written.insert(part.number);
        self.push(ResponsePart::Response(part))
    }

    fn push(&mut self, part: ResponsePart) -> Result<(), EncodeError> {
        self.parts.push(Part::Response(part).to_bytes()?);
        Ok(())
    }
}

impl ResponseStore {
    /// Returns a response that is over, and the turns before it.
    ///
    /// # Errors
    /// If one of them is too large for a frame.
    pub(in crate::server) fn parts_of(
        &self,
        owner: Owner,
        stored: &Stored,
        keys: &ApiKeys,
    ) -> Result<Vec<u8>, EncodeError> {
        let mut writer = Writer::default();
        let owner = owner.and_then(|owner| keys.name_of(owner));
        writer.write(stored, owner, Duration::ZERO)?;
        Ok(writer.parts.concat())
    }

    /// Returns all responses that are over, and the number of those that are too large for a frame.
    pub(in crate::server) fn all_parts(&self, keys: &ApiKeys) -> (Vec<Bytes>, usize) {
        let (mut writer, mut num_lost) = (Writer::default(), 0);
        for (owner, stored, age) in self.all(Instant::now()) {
            let owner = owner.and_then(|owner| keys.name_of(owner));
            num_lost += usize::from(writer.write(&stored, owner, age).is_err());
        }
        (writer.parts, num_lost)
    }

    /// Returns the reader of another store.
    pub(in crate::server) fn heir(&self) -> Heir<'_> {
        Heir { store: self, turns: BTreeMap::new() }
    }
}

/// Enters the responses of another process.
pub(in crate::server) struct Heir<'a> {
    store: &'a ResponseStore,
    turns: BTreeMap<u64, Arc<Turn>>,
}

impl Heir<'_> {
    /// Enters a part. A response that is there stays as it is.
    pub(in crate::server) fn enter(&mut self, part: ResponsePart, keys: &ApiKeys) {
        let entered = match part {
            ResponsePart::Turn(part) => self.turn(&part),
            ResponsePart::Response(part) => self.response(part, keys),
        };
        if let Err(reason) = entered {
            tracing::warn!(reason, "a stored response of the process before is lost");
        }
    }

    fn turn(&mut self, part: &TurnPart) -> Result<(), String> {
        let (input, output) = (read::<Items>(&part.input)?, read::<Items>(&part.output)?);
        let turn = Turn::new(Arc::new(input), Arc::new(output), &self.store.weight());
        self.turns.insert(part.number, Arc::new(turn));
        Ok(())
    }

    fn response(&mut self, part: StoredPart, keys: &ApiKeys) -> Result<(), String> {
        let owner = match part.owner {
            None => None,
            Some(name) => Some(keys.named(name).ok_or("its API key is no longer known")?),
        };
        let response: Response = read(&part.response)?;
        if !self.store.is_enabled() {
            return Ok(());
        }
        if let Ok(known) = self.store.get(owner, &response.id) {
            self.know(part.number, &known);
            return Ok(());
        }
        let turns = part.history.iter().map(|number| self.turns.get(number).cloned());
        let history = turns.collect::<Option<Vec<_>>>().ok_or("a turn before it is missing")?;
        let input = Arc::new(read::<Items>(&part.input)?);
        let weight = self.store.weight();
        let stored = Stored::new(response, part.is_streamed, history, input, weight, None);
        stored.update(None, part.frames.into_iter().map(Bytes::from).collect());
        self.know(part.number, &stored);
        self.store.insert_aged(owner, Arc::new(stored), Duration::from_secs(part.age_secs));
        Ok(())
    }

    /// Notes the number of a response's own turn.
    fn know(&mut self, number: u64, stored: &Stored) {
        if let Some(turn) = stored.conversation().and_then(|mut turns| turns.pop()) {
            self.turns.insert(number, turn);
        }
    }
}

fn read<T: DeserializeOwned>(json: &str) -> Result<T, String> {
    serde_json::from_str(json).map_err(|error| error.to_string())
}
