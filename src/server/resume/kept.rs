//! The table of kept answers: streams, answers in one piece, and those of an earlier process whose
//! clients have not come back yet.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use super::{Rendering, dormant::Dormant, held::Held, whole::Whole};
use crate::{api::Tenant, server::http::error::ApiError};

/// The owner of an answer. `None` stands for all clients of a server without keys.
type Owner = Option<Tenant>;

type ById = Vec<((Owner, String), Kept)>;
type ByKey = Vec<((Owner, String), Arc<Whole>)>;

/// All kept answers.
#[derive(Default)]
pub(in crate::server) struct KeptAnswers {
    tables: Mutex<Tables>,
}

#[derive(Default)]
struct Tables {
    /// Keyed by the answer's id, escaped.
    answers: BTreeMap<(Owner, String), Kept>,
    /// Keyed by `Idempotency-Key`.
    keys: BTreeMap<(Owner, String), Arc<Whole>>,
}

/// One kept answer.
#[derive(Clone)]
pub(super) enum Kept {
    Stream(Arc<Held>),
    Whole(Arc<Whole>),
    Dormant(Arc<Dormant>),
}

impl KeptAnswers {
    /// Enters an answer. It takes the place of an earlier one to which its client gave the same
    /// id.
    pub(super) fn enter(&self, owner: Owner, id: String, kept: Kept) {
        let replaced = self.tables.lock().answers.insert((owner, id), kept);
        drop(replaced);
    }

    /// Returns the answer with this id.
    ///
    /// # Errors
    /// 404 if the owner has none.
    pub(super) fn get(&self, owner: Owner, id: &str) -> Result<Kept, ApiError> {
        let kept = self.tables.lock().answers.get(&(owner, id.to_owned())).cloned();
        kept.ok_or_else(|| {
            let message = "there is no such stream, or it is kept no longer".to_owned();
            ApiError::missing("stream_id", message)
        })
    }

    /// Returns the answer to the request of this `Idempotency-Key`, and whether it is new: then the
    /// caller makes it.
    ///
    /// # Errors
    /// 422 if the key belongs to another request.
    pub(super) fn enter_key(
        &self,
        owner: Owner,
        key: &str,
        request_hash: [u8; 32],
    ) -> Result<(Arc<Whole>, bool), ApiError> {
        let mut tables = self.tables.lock();
        let known = tables.keys.get(&(owner, key.to_owned()));
        if let Some(known) = known.filter(|known| !known.is_gone()) {
            return match known.request_hash == request_hash {
                true => Ok((Arc::clone(known), false)),
                false => Err(ApiError::reused_key()),
            };
        }
        let whole = Arc::new(Whole::new(request_hash));
        tables.keys.insert((owner, key.to_owned()), Arc::clone(&whole));
        Ok((whole, true))
    }

    /// Enters an answer of an earlier process, unless this one has an answer with the same id.
    pub(super) fn restore(&self, owner: Owner, id: String, kept: Kept) {
        self.tables.lock().answers.entry((owner, id)).or_insert(kept);
    }

    /// Enters an answer of an earlier process by its key, unless this one has an answer with it.
    pub(super) fn restore_key(&self, owner: Owner, key: String, whole: Arc<Whole>) {
        self.tables.lock().keys.entry((owner, key)).or_insert(whole);
    }

    /// Lets answers of an earlier process wait without their model, which ends. It is that of the
    /// state with this `rendering`.
    pub(in crate::server) fn lose_model(&self, rendering: &Arc<Rendering>) {
        let mut homes = Vec::new();
        for kept in self.tables.lock().answers.values() {
            if let Kept::Dormant(dormant) = kept {
                homes.extend(dormant.lose_model(rendering));
            }
        }
        // The drop of a state may end an engine.
        drop(homes);
    }

    /// Returns whether the owner has an answer with this id.
    pub(in crate::server) fn has(&self, owner: Owner, id: &str) -> bool {
        self.tables.lock().answers.contains_key(&(owner, id.to_owned()))
    }

    /// Returns whether the owner has an answer by this `Idempotency-Key`.
    pub(in crate::server) fn has_key(&self, owner: Owner, key: &str) -> bool {
        let tables = self.tables.lock();
        let known = tables.keys.get(&(owner, key.to_owned()));
        known.is_some_and(|known| !known.is_gone())
    }

    /// Returns all answers: by their ids, and by their keys.
    pub(super) fn all(&self) -> (ById, ByKey) {
        let tables = self.tables.lock();
        let answers = tables.answers.iter().map(|(id, kept)| (id.clone(), kept.clone()));
        (
            answers.collect(),
            tables.keys.iter().map(|(key, whole)| (key.clone(), whole.clone())).collect(),
        )
    }

    /// Forgets all answers at the end of the server.
    pub(in crate::server) fn clear(&self) {
        let tables = std::mem::take(&mut *self.tables.lock());
        drop(tables);
    }

    /// Removes answers that ended, or were restored, longer than `ttl` ago.
    pub(in crate::server) fn sweep(&self, ttl: Duration) {
        let now = Instant::now();
        let mut removed: Vec<Kept> = Vec::new();
        let mut tables = self.tables.lock();
        tables.answers.retain(|_, kept| {
            let has_expired = match kept {
                Kept::Stream(held) => held.has_expired(ttl, now),
                Kept::Whole(whole) => whole.has_expired(ttl, now),
                Kept::Dormant(dormant) => dormant.has_expired(ttl, now),
            };
            if has_expired {
                removed.push(kept.clone());
            }
            !has_expired
        });
        tables.keys.retain(|_, whole| !whole.has_expired(ttl, now));
        drop(tables);
        // Their drops end requests.
        drop(removed);
    }
}
