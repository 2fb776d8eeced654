//! One connection, from its TLS handshake to its end.

use std::{convert::Infallible, panic::AssertUnwindSafe, pin::pin, time::Duration};

use axum::{Router, body::Body, extract::Request, response::IntoResponse};
use futures_util::FutureExt;
use hyper::{Response, body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::conn::auto,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::timeout,
};
#[cfg(unix)]
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::{
    activity::{Activity, Noticed, Patience},
    answer_body::AnswerBody,
    impatient::Impatient,
    phases::Phases,
    routes::CurrentRoutes,
    socket::Connection,
    streams::StreamTasks,
    tls::Tls,
};
use crate::{
    config::ServerSettings,
    server::http::{body::WaitingSeats, draining::send_away, error::ApiError},
};

/// How long a client may take to notice that its idle connection ends.
const LINGER: Patience =
    Patience { headers: Duration::from_secs(1), silence: Duration::from_secs(1) };
/// Most concurrent requests on one HTTP/2 connection.
const STREAMS_MAX: u32 = 256;
/// Unread bytes that one of them may send, and those of a connection. They are the memory of a
/// connection beside that of its requests.
const STREAM_WINDOW: u32 = 64 << 10;
const CONNECTION_WINDOW: u32 = 256 << 10;
/// Bodies of one connection that may wait for memory. They leave the room of one window to the
/// others.
const WAITING_BODIES_MAX: usize = (CONNECTION_WINDOW / STREAM_WINDOW) as usize - 1;
/// Interval of pings to a silent HTTP/2 client, and the time that it has for an answer.
const PING_INTERVAL: Duration = Duration::from_secs(30);

/// Settings and routes for connections. Cheap to clone.
#[derive(Clone)]
pub(super) struct ConnectionServer {
    http: auto::Builder<StreamTasks>,
    app: CurrentRoutes,
    tls: Option<Tls>,
    patience: Patience,
    write_limit: Duration,
    phases: Phases,
}

impl ConnectionServer {
    pub(super) fn new(
        app: CurrentRoutes,
        tls: Option<Tls>,
        config: &ServerSettings,
        phases: Phases,
    ) -> Self {
        let write_limit = Duration::from_secs(config.write_timeout_secs);
        let mut http = auto::Builder::new(StreamTasks::new(write_limit));
        let header_bytes = config.h11_max_incomplete_event_size;
        // `activity` limits the time of headers, because hyper counts from the last answer.
        http.http1()
            .timer(TokioTimer::new())
            .header_read_timeout(None)
            .max_headers(config.h11_max_header_count)
            .max_buf_size(header_bytes);
        http.http2()
            .timer(TokioTimer::new())
            .max_header_list_size(u32::try_from(header_bytes).unwrap_or(u32::MAX))
            .max_concurrent_streams(STREAMS_MAX)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_INTERVAL);
        let patience = Patience {
            headers: Duration::from_secs(config.header_timeout_secs),
            silence: Duration::from_secs(config.keep_alive_timeout_secs),
        };
        Self { http, app, tls, patience, write_limit, phases }
    }

    /// Returns a server of `app` for another process of the same server. It has no deadlines, and
    /// no phases but the end.
    #[cfg(unix)]
    pub(super) fn for_process(&self, app: CurrentRoutes, closing: CancellationToken) -> Self {
        let never = Duration::from_secs(365 * 86_400);
        let phases = Phases::of_process(closing);
        let patience = Patience { headers: never, silence: never };
        Self { app, tls: None, patience, phases, ..self.clone() }
    }

    /// Serves `connection` until it ends. Once the server closes, serves it until its requests are
    /// answered.
    pub(super) async fn serve(self, connection: Connection) {
        let connection = Impatient::new(connection, self.write_limit);
        let Some(tls) = &self.tls else { return self.speak_http(connection).await };
        let handshake = timeout(self.patience.headers, tls.accept(connection));
        tokio::select! {
            () = self.phases.closing.cancelled() => {}
            shaken = handshake => match shaken {
                Ok(Ok(connection)) => self.speak_http(connection).await,
                Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
                Err(_) => tracing::debug!("a TLS handshake took too long"),
            }
        }
    }

    async fn speak_http(&self, connection: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) {
        let activity = Activity::new(self.phases.clone());
        let seats = WaitingSeats::new(WAITING_BODIES_MAX);
        let service = service_fn(|request: hyper::Request<Incoming>| {
            let mut request: Request = request.map(Body::new);
            request.extensions_mut().insert(seats.clone());
            request.extensions_mut().insert(activity.clone());
            let is_leaving = self.phases.leaving.is_cancelled();
            answer(self.app.get(), request, activity.clone(), is_leaving)
        });
        let io = TokioIo::new(Noticed::new(connection, activity.clone()));
        let mut http = pin!(self.http.serve_connection_with_upgrades(io, service));
        tokio::select! {
            ended = http.as_mut() => {
                note(ended);
                return activity.upgrade_ended().await;
            }
            () = activity.idle(self.patience) => {}
            () = self.end(&activity) => {}
        }
        http.as_mut().graceful_shutdown();
        activity.restart();
        tokio::select! {
            ended = http => {
                note(ended);
                activity.upgrade_ended().await;
            }
            () = activity.idle(LINGER) => {}
        }
    }

    /// Completes when a connection is to end. Clients of HTTP/2 get GOAWAY when the drain begins,
    /// or another process accepts the connections. Those of HTTP/1.1 get `Connection: close` with
    /// the answer to their next request.
    async fn end(&self, activity: &Activity) {
        let phases = &self.phases;
        if !phases.draining.is_cancelled() {
            tokio::select! {
                () = phases.draining.cancelled() => {}
                () = phases.leaving.cancelled() => {}
            }
            if activity.is_http2() {
                return;
            }
        }
        phases.closing.cancelled().await;
    }
}

/// Returns the app's answer, or 500 if it panics. With `is_leaving` it is the connection's last.
async fn answer(
    app: Router,
    request: Request,
    activity: Activity,
    is_leaving: bool,
) -> Result<Response<AnswerBody<Body>>, Infallible> {
    let (open, version) = (activity.begin_request(), request.version());
    let answered = AssertUnwindSafe(app.oneshot(request)).catch_unwind().await;
    let response = answered.unwrap_or_else(|_| {
        tracing::error!("a handler panicked");
        Ok(ApiError::internal("the request could not be handled").into_response())
    });
    let response = match is_leaving {
        true => response.map(|response| send_away(version, response)),
        false => response,
    };
    response.map(|response| response.map(|body| AnswerBody::new(body, open)))
}

/// Logs the end of a connection. Clients that vanish are normal.
fn note(ended: Result<(), Box<dyn std::error::Error + Send + Sync>>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection broke off");
    }
}
