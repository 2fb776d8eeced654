//! An answer in one piece that is made once, for all clients that ask by its key or its id.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    body::{Body, to_bytes},
    http::{HeaderValue, StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::{exchange::WholeAnswer, keeping::Keeping, ticket::Ticket};
use crate::{
    api::Lease,
    server::{http::error::ApiError, state::AppState},
};

/// An answer that is being made, or is there.
pub(in crate::server) struct Whole {
    pub(super) request_hash: [u8; 32],
    progress: watch::Sender<Progress>,
    held: Mutex<(Option<Keeping>, Option<Lease>)>,
}

#[derive(Clone)]
enum Progress {
    Working,
    Answered(Arc<WholeAnswer>, Instant),
    /// The work is not done again, because it killed the process.
    Refused(ApiError, Instant),
    /// Nothing will come: the work was ended.
    Gone,
}

impl Whole {
    pub(super) fn new(request_hash: [u8; 32]) -> Self {
        let progress = watch::Sender::new(Progress::Working);
        Self { request_hash, progress, held: Mutex::default() }
    }

    /// Returns an answer that an earlier process gave.
    pub(super) fn restored(
        request_hash: [u8; 32],
        answer: WholeAnswer,
        keeping: Keeping,
        lease: Lease,
    ) -> Self {
        let whole = Self::new(request_hash);
        *whole.held.lock() = (Some(keeping), Some(lease));
        whole.set(answer, Instant::now());
        whole
    }

    /// Returns an answer that another process gave at `since`. The journal does not have it.
    pub(super) fn of_another(
        request_hash: [u8; 32],
        answer: WholeAnswer,
        since: Instant,
        lease: Lease,
    ) -> Self {
        let whole = Self::new(request_hash);
        *whole.held.lock() = (None, Some(lease));
        whole.set(answer, since);
        whole
    }

    fn set(&self, answer: WholeAnswer, since: Instant) {
        self.progress.send_replace(Progress::Answered(Arc::new(answer), since));
    }

    /// Returns the answer and the time since when it is there, if it is.
    pub(super) fn answered(&self) -> Option<(Arc<WholeAnswer>, Instant)> {
        match &*self.progress.borrow() {
            Progress::Answered(answer, since) => Some((Arc::clone(answer), *since)),
            _ => None,
        }
    }

    /// Answers all clients with `error`, for as long as an answer is kept.
    pub(super) fn refuse(&self, error: ApiError, keeping: Option<Keeping>) {
        *self.held.lock() = (keeping, None);
        self.progress.send_replace(Progress::Refused(error, Instant::now()));
    }

    /// Takes the answer from `work`. It is kept.
    ///
    /// # Errors
    /// The error of `work`, and 503 if there is no memory for the answer.
    pub(super) async fn fill(
        &self,
        lease: Lease,
        ticket: &Ticket,
        work: impl Future<Output = Result<Response, ApiError>>,
    ) -> Result<Response, ApiError> {
        let answer = WholeAnswer::of(work.await?).await?;
        let leased = lease.add(answer.body.len());
        // The outputs of a restored answer are used up, so it could not be made again.
        leased.or_else(|error| if ticket.is_repeated() { Ok(()) } else { Err(error) })?;
        if let Some(mut keeping) = ticket.take_keeping() {
            keeping.answered(answer.clone())?;
            *self.held.lock() = (Some(keeping), Some(lease));
        }
        let response = answer.to_response();
        self.set(answer, Instant::now());
        Ok(response)
    }

    /// Returns the answer, once it is there.
    ///
    /// # Errors
    /// 503 if the work on it was ended, and the error with which it was refused.
    pub(super) async fn answer(&self) -> Result<Response, ApiError> {
        let mut progress = self.progress.subscribe();
        let settled = progress.wait_for(|progress| !matches!(progress, Progress::Working)).await;
        match settled.as_deref() {
            Ok(Progress::Answered(answer, _)) => Ok(answer.to_response()),
            Ok(Progress::Refused(error, _)) => Err(error.clone()),
            _ => {
                let message = "the work on this answer was ended; send the request again";
                Err(ApiError::unavailable(message.to_owned(), Duration::from_secs(1)))
            }
        }
    }

    /// Returns whether the work on it was ended.
    pub(super) fn is_gone(&self) -> bool {
        matches!(*self.progress.borrow(), Progress::Gone)
    }

    /// Returns whether the answer is there for longer than `ttl`, or will never be.
    pub(super) fn has_expired(&self, ttl: Duration, now: Instant) -> bool {
        match &*self.progress.borrow() {
            Progress::Working => false,
            Progress::Answered(_, since) | Progress::Refused(_, since) => {
                now.saturating_duration_since(*since) >= ttl
            }
            Progress::Gone => true,
        }
    }
}

impl WholeAnswer {
    /// Returns the answer that `response` gives.
    async fn of(response: Response) -> Result<Self, ApiError> {
        let status = response.status().as_u16();
        let content_type = response.headers().get(CONTENT_TYPE);
        let content_type = content_type.and_then(|value| value.to_str().ok()).unwrap_or_default();
        let content_type = content_type.to_owned();
        let body = to_bytes(response.into_body(), usize::MAX).await;
        let body = body.map_err(|error| ApiError::internal(error.to_string()))?.to_vec();
        Ok(Self { status, content_type, body })
    }

    fn to_response(&self) -> Response {
        let mut response = Body::from(self.body.clone()).into_response();
        *response.status_mut() = StatusCode::from_u16(self.status).unwrap_or(StatusCode::OK);
        if let Ok(value) = HeaderValue::try_from(&self.content_type) {
            response.headers_mut().insert(CONTENT_TYPE, value);
        }
        response
    }
}

/// Makes the answer with `work`, which goes on though its client leaves. A successful answer is
/// kept.
///
/// # Errors
/// The error of `work`.
pub(super) async fn make(
    state: &AppState,
    whole: Arc<Whole>,
    ticket: Ticket,
    work: impl Future<Output = Result<Response, ApiError>> + Send + 'static,
) -> Result<Response, ApiError> {
    let lease = state.engine.memory().lease();
    let made = tokio::spawn(async move {
        let unmade = Unmade(whole);
        unmade.0.fill(lease, &ticket, work).await
    });
    made.await.unwrap_or_else(|error| Err(ApiError::internal(error.to_string())))
}

/// Ends the waiting of other clients, unless an answer came.
pub(super) struct Unmade(pub(super) Arc<Whole>);

impl Drop for Unmade {
    fn drop(&mut self) {
        self.0.progress.send_if_modified(|progress| {
            let is_working = matches!(progress, Progress::Working);
            if is_working {
                *progress = Progress::Gone;
            }
            is_working
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        api::MemoryBudget,
        server::{
            http::draws::Draws,
            resume::{
                exchange::{Exchange, Mode, Served},
                rendering::Rendering,
            },
        },
    };

    fn restored() -> Ticket {
        let exchange = Exchange {
            id: "s".to_owned(),
            owner: None,
            route: "/test".to_owned(),
            headers: Vec::new(),
            body: Vec::new(),
            draws: Draws::default(),
            mode: Mode::Whole,
            served: Served::default(),
            rendering: Rendering::default(),
            num_prompts: None,
            key: Some("k".to_owned()),
            grace_ms: 0,
            answer: None,
        };
        Ticket::again(Keeping::of(None, exchange), None, None)
    }

    #[tokio::test]
    async fn a_restored_answer_is_kept_though_memory_is_short() {
        let limit = 16 << 20;
        let fill = async |ticket: Ticket| {
            let whole = Whole::new([0; 32]);
            let work = async { Ok(vec![b'a'; limit + 1].into_response()) };
            let filled = whole.fill(MemoryBudget::new(limit, "m", "0").lease(), &ticket, work);
            let status = filled.await.map_or_else(|error| error.status, |answer| answer.status());
            (status, whole.answered().is_some())
        };
        assert_eq!(fill(Ticket::plain()).await, (StatusCode::SERVICE_UNAVAILABLE, false));
        assert_eq!(fill(restored()).await, (StatusCode::OK, true));
    }
}
