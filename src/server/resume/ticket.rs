//! The wishes of a request beyond its body: an answer that goes on, that is kept, or that is made
//! once.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::{FromRequestParts, MatchedPath},
    http::{HeaderMap, HeaderName, request::Parts},
};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use super::{
    exchange::{Exchange, Mode, Served},
    keeping::Keeping,
    position::{self, Position},
    prompt::{AdoptedPrompt, Prompt},
    rendering::Rendering,
};
use crate::{
    api::Tenant,
    config::ServerSettings,
    server::{
        http::{body_copy::BodyCopy, draws::Draws, error::ApiError},
        state::AppState,
    },
};

pub(in crate::server) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const DETACH_GRACE: HeaderName = HeaderName::from_static("x-detach-grace");
pub(in crate::server) const IDEMPOTENCY_KEY: HeaderName =
    HeaderName::from_static("idempotency-key");
const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Longest key, as other APIs have it.
const KEY_LENGTH_MAX: usize = 255;

/// The wishes of one request. Clones share it.
#[derive(Clone)]
pub(in crate::server) struct Ticket(Arc<Inner>);

#[derive(Default)]
struct Inner {
    route: String,
    headers: Vec<(String, String)>,
    body: BodyCopy,
    draws: Draws,
    asked: Asked,
    /// Whether the answer is kept at all.
    keeps: bool,
    /// The last event that the client has of an answer that is written again.
    after: Option<Position>,
    /// The model of an answer that is written again.
    served: Option<Served>,
    keeping: Mutex<Option<Keeping>>,
    adopted: Mutex<Adopted>,
}

/// The prompts of an answer that an earlier process accepted.
#[derive(Default)]
enum Adopted {
    /// The engine gets the requests anew.
    #[default]
    None,
    Here(Vec<Prompt>),
    /// They belong to the answer that is being written.
    Taken,
}

/// The prompts of an answer that an earlier process accepted, each with the streams of its choices.
pub(in crate::server) type Prompts = Vec<AdoptedPrompt>;

/// An answer that begins.
pub(in crate::server) struct Entry<'a> {
    /// Its id.
    pub(in crate::server) id: &'a str,
    pub(in crate::server) mode: Mode,
    /// As in [`Exchange::num_prompts`].
    pub(in crate::server) num_prompts: Option<usize>,
    pub(in crate::server) served: Served,
}

/// The headers about the answer.
#[derive(Debug, Clone, PartialEq, Default)]
pub(in crate::server) struct Asked {
    /// The stream, escaped, and the last event that the client has of it.
    pub(in crate::server) last_event: Option<(String, Position)>,
    /// How long the request goes on without a connection.
    pub(in crate::server) grace: Duration,
    /// The client's name for the request, by which it gets the same answer again.
    pub(in crate::server) key: Option<String>,
}

impl FromRequestParts<AppState> for Ticket {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, ApiError> {
        if let Some(ticket) = parts.extensions.get::<Self>().cloned() {
            parts.extensions.insert(ticket.0.body.clone());
            return Ok(ticket);
        }
        let asked = Asked::read(&parts.headers, &state.config)?;
        let has_wishes = asked.last_event.is_some() || asked.key.is_some();
        let keeps = state.engine.journal().is_some() || !asked.grace.is_zero() || has_wishes;
        if !keeps {
            return Ok(Self::plain());
        }
        let route = parts.extensions.get::<MatchedPath>();
        let route = route.map_or("", MatchedPath::as_str).to_owned();
        let id = parts.headers.get(&X_REQUEST_ID).and_then(|value| value.to_str().ok());
        let id = id.map(|id| (X_REQUEST_ID.to_string(), id.to_owned()));
        let headers = id.into_iter().collect();
        let inner = Inner { route, headers, asked, keeps: true, ..Inner::default() };
        let ticket = Self(Arc::new(inner));
        parts.extensions.insert(ticket.0.body.clone());
        Ok(ticket)
    }
}

impl Ticket {
    /// Returns the ticket of a request whose answer is not kept.
    pub(in crate::server) fn plain() -> Self {
        Self(Arc::new(Inner::default()))
    }

    /// Returns the ticket of a kept answer that is written again, after the event `after`. Without
    /// `adopted`, the engine gets its requests anew.
    pub(super) fn again(
        keeping: Keeping,
        adopted: Option<Vec<Prompt>>,
        after: Option<Position>,
    ) -> Self {
        let exchange = keeping.exchange();
        let asked = Asked {
            last_event: None,
            grace: Duration::from_millis(exchange.grace_ms),
            key: exchange.key.clone(),
        };
        Self(Arc::new(Inner {
            route: exchange.route.clone(),
            headers: exchange.headers.clone(),
            body: BodyCopy::default(),
            draws: exchange.draws.clone(),
            asked,
            keeps: true,
            after,
            served: Some(exchange.served.clone()),
            keeping: Mutex::new(Some(keeping)),
            adopted: Mutex::new(adopted.map_or(Adopted::None, Adopted::Here)),
        }))
    }

    pub(in crate::server) fn asked(&self) -> &Asked {
        &self.0.asked
    }

    pub(in crate::server) fn draws(&self) -> &Draws {
        &self.0.draws
    }

    /// Returns a hash of route and body: equal requests have equal ones.
    pub(super) fn request_hash(&self) -> [u8; 32] {
        request_hash(&self.0.route, &self.0.body.get())
    }

    /// Enters an answer into the journal, if there is one, unless it is there.
    pub(in crate::server) fn enter(
        &self,
        state: &AppState,
        owner: Option<Tenant>,
        entry: Entry<'_>,
    ) -> Result<(), ApiError> {
        let Entry { id, mode, num_prompts, served } = entry;
        let mut keeping = self.0.keeping.lock();
        if !self.0.keeps || keeping.is_some() {
            return Ok(());
        }
        let exchange = Exchange {
            id: id.to_owned(),
            owner: owner.and_then(|tenant| state.keys.name_of(tenant)),
            route: self.0.route.clone(),
            headers: self.0.headers.clone(),
            body: self.0.body.get().to_vec(),
            draws: self.0.draws.clone(),
            mode,
            served,
            rendering: Rendering::clone(&state.rendering),
            num_prompts,
            key: self.0.asked.key.clone(),
            grace_ms: u64::try_from(self.0.asked.grace.as_millis()).unwrap_or(u64::MAX),
            answer: None,
        };
        *keeping = Some(Keeping::begin(state.engine.journal().cloned(), exchange)?);
        Ok(())
    }

    /// Returns whether the answer is entered, so that it is kept.
    pub(in crate::server) fn is_entered(&self) -> bool {
        self.0.keeping.lock().is_some()
    }

    /// Returns the name by which requests belong to the answer, if it is kept.
    pub(in crate::server) fn answer_id(&self) -> Option<Arc<str>> {
        self.0.keeping.lock().as_ref().map(|keeping| Arc::clone(keeping.name()))
    }

    pub(super) fn take_keeping(&self) -> Option<Keeping> {
        self.0.keeping.lock().take()
    }

    /// Returns the bytes of the recorded request. 0 if the answer is not kept.
    pub(super) fn exchange_bytes(&self) -> usize {
        self.0.keeping.lock().as_ref().map_or(0, |keeping| keeping.exchange().body.len())
    }

    pub(in crate::server) fn take_adopted(&self) -> Option<Prompts> {
        let mut adopted = self.0.adopted.lock();
        match std::mem::take(&mut *adopted) {
            Adopted::None => None,
            Adopted::Here(prompts) => {
                *adopted = Adopted::Taken;
                Some(prompts.into_iter().map(Prompt::into_streams).collect())
            }
            Adopted::Taken => Some(Vec::new()),
        }
    }

    /// Returns the parts of an answer that was not written again, unless some are lost.
    pub(super) fn take_back(&self) -> Option<(Keeping, Option<Vec<Prompt>>)> {
        let keeping = self.take_keeping()?;
        match std::mem::take(&mut *self.0.adopted.lock()) {
            Adopted::None => Some((keeping, None)),
            Adopted::Here(prompts) => Some((keeping, Some(prompts))),
            Adopted::Taken => None,
        }
    }

    /// Returns whether an answer of an earlier process is written again.
    pub(in crate::server) fn is_repeated(&self) -> bool {
        self.0.served.is_some()
    }

    /// Returns the model of an answer that is written again.
    pub(in crate::server) fn served(&self) -> Option<&Served> {
        self.0.served.as_ref()
    }

    /// Returns whether the engine has the requests of the answer from an earlier process.
    pub(in crate::server) fn is_adopted(&self) -> bool {
        matches!(*self.0.adopted.lock(), Adopted::Here(_))
    }

    /// Returns the last event that the client of an answer that is written again has.
    pub(in crate::server) fn after(&self) -> Option<&Position> {
        self.0.after.as_ref()
    }
}

pub(super) fn request_hash(route: &str, body: &[u8]) -> [u8; 32] {
    Sha256::new().chain_update(route).chain_update([0]).chain_update(body).finalize().into()
}

impl Asked {
    fn read(headers: &HeaderMap, config: &ServerSettings) -> Result<Self, ApiError> {
        let text = |name: &HeaderName| {
            let Some(value) = headers.get(name) else { return Ok(None) };
            let text = value.to_str().ok().map(str::trim).filter(|text| !text.is_empty());
            let error = || ApiError::invalid(name.as_str(), format!("{name} must be ASCII text"));
            text.map(Some).ok_or_else(error)
        };
        let last_event = text(&LAST_EVENT_ID)?.map(position::split).transpose();
        let last_event = last_event.map_err(|error| {
            ApiError::invalid(LAST_EVENT_ID.as_str(), format!("Last-Event-ID: {error}"))
        })?;
        let last_event = last_event.map(|(stream, position)| (stream.to_owned(), position));
        let longest = config.resume_ttl_secs;
        let grace = match text(&DETACH_GRACE)? {
            None => config.detach_grace_secs.min(longest),
            Some(text) => {
                let seconds = text.parse().ok().filter(|seconds| (0.0..=longest).contains(seconds));
                seconds.ok_or_else(|| {
                    let message = format!(
                        "X-Detach-Grace must be a number of seconds from 0 to {longest} \
                         (resume_ttl_secs), got {text:?}"
                    );
                    ApiError::invalid(DETACH_GRACE.as_str(), message)
                })?
            }
        };
        let grace = Duration::try_from_secs_f64(grace).unwrap_or(Duration::MAX);
        let key = text(&IDEMPOTENCY_KEY)?.map(str::to_owned);
        if key.as_ref().is_some_and(|key| key.len() > KEY_LENGTH_MAX) {
            let message = format!("Idempotency-Key must have at most {KEY_LENGTH_MAX} characters");
            return Err(ApiError::invalid(IDEMPOTENCY_KEY.as_str(), message));
        }
        Ok(Self { last_event, grace, key })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: HeaderName, value: &str) -> Result<Asked, String> {
        let headers = HeaderMap::from_iter([(name, value.parse().unwrap())]);
        let config = ServerSettings { resume_ttl_secs: 60.0, ..ServerSettings::default() };
        Asked::read(&headers, &config).map_err(|error| error.message)
    }

    #[test]
    fn a_grace_is_at_most_the_time_that_streams_are_kept() {
        let grace = |value| read(DETACH_GRACE, value).map(|asked| asked.grace.as_secs_f64());
        assert_eq!(grace("2.5"), Ok(2.5));
        let wanted = "X-Detach-Grace must be a number of seconds from 0 to 60 (resume_ttl_secs)";
        for wrong in ["61", "-1", "NaN", "soon"] {
            assert!(grace(wrong).unwrap_err().starts_with(wanted), "{wrong}");
        }
    }

    #[test]
    fn an_id_of_another_server_is_refused() {
        let read = |value| read(LAST_EVENT_ID, value);
        let (stream, position) = read("cmpl-1:0.0.b").unwrap().last_event.unwrap();
        assert_eq!((stream.as_str(), position.number), ("cmpl-1", 0));
        assert!(read("42").unwrap_err().contains("not the id of an event of this server"));
    }

    #[test]
    fn a_key_has_a_longest_length() {
        assert!(read(IDEMPOTENCY_KEY, &"x".repeat(255)).is_ok());
        assert!(read(IDEMPOTENCY_KEY, &"x".repeat(256)).is_err());
    }
}
