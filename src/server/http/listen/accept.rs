//! The accept loop, on a thread and a runtime of its own. It passes connections to the runtime of
//! the engine. While that is frozen, the loop answers them itself, with probes alone.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::sync_channel,
    },
    thread,
    time::Duration,
};

use tokio::{
    runtime::{Builder, Handle},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::sleep,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    connection::ConnectionServer,
    phases::Phases,
    socket::{Acceptor, Peer, Socket},
};
use crate::server::health::pulse::RuntimePulse;

/// Interval at which an idle loop makes a turn.
const TICK: Duration = Duration::from_millis(250);
/// Time that a connection which the loop serves itself outlasts the freeze.
const FAREWELL: Duration = Duration::from_secs(1);
/// Pause after the system cannot accept a connection.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// The parts that an accept loop uses. Cheap to clone.
#[derive(Clone)]
pub(super) struct AcceptContext {
    pub(super) socket: Arc<Socket>,
    /// Serves connections on the runtime of the engine.
    pub(super) server: ConnectionServer,
    pub(super) runtime: Handle,
    pub(super) seats: Arc<Semaphore>,
    /// Serves connections on the loop's own runtime.
    pub(super) frozen: ConnectionServer,
    pub(super) frozen_seats: Arc<Semaphore>,
    pub(super) pulse: RuntimePulse,
    pub(super) phases: Phases,
    pub(super) connections: TaskTracker,
    /// Cancelled to end all connections at once.
    pub(super) cut: CancellationToken,
    /// The threads that hold the socket.
    pub(super) threads: TaskTracker,
}

/// A running accept loop.
#[derive(Debug, Clone, Default)]
pub(super) struct AcceptLoop {
    turns: Arc<AtomicU64>,
    retired: CancellationToken,
}

impl AcceptLoop {
    /// Returns the number of its turns.
    pub(super) fn turns(&self) -> u64 {
        self.turns.load(Relaxed)
    }

    /// Ends it at its next turn, so that another can take its place.
    pub(super) fn retire(&self) {
        self.retired.cancel();
    }
}

impl AcceptContext {
    /// Starts an accept loop.
    ///
    /// # Errors
    /// The system's error if it has no thread, runtime or handle.
    pub(super) fn start(&self) -> io::Result<AcceptLoop> {
        let (accept_loop, context) = (AcceptLoop::default(), self.clone());
        let (turning, thread_token) = (accept_loop.clone(), self.threads.token());
        // The new thread makes its runtime itself: a failed spawn would drop the runtime here, and
        // that must not happen on a thread of another runtime.
        let (opened, is_opened) = sync_channel(1);
        let turn = move || {
            let opening = || -> io::Result<_> {
                let runtime = Builder::new_current_thread().enable_all().build()?;
                let acceptor = {
                    let _on_it = runtime.enter();
                    context.socket.try_clone()?.into_acceptor()?
                };
                Ok((runtime, acceptor))
            };
            let (outcome, runtime) = match opening() {
                Ok(runtime) => (Ok(()), Some(runtime)),
                Err(error) => (Err(error), None),
            };
            // The starter waits for it, so the send cannot fail.
            let _ = opened.send(outcome);
            if let Some((runtime, acceptor)) = runtime {
                runtime.block_on(context.turn(&turning, acceptor));
            }
            drop(thread_token);
        };
        thread::Builder::new().name("playhouse-accept".to_owned()).spawn(turn)?;
        is_opened.recv().map_err(io::Error::other)??;
        Ok(accept_loop)
    }

    async fn turn(self, accept_loop: &AcceptLoop, acceptor: Acceptor) {
        tokio::select! {
            () = self.phases.closing.cancelled() => {}
            () = self.phases.leaving.cancelled() => {}
            () = accept_loop.retired.cancelled() => {}
            () = self.accept(accept_loop, &acceptor) => {}
        }
    }

    async fn accept(&self, accept_loop: &AcceptLoop, acceptor: &Acceptor) {
        loop {
            accept_loop.turns.fetch_add(1, Relaxed);
            let is_frozen = self.pulse.is_frozen();
            let seats = if is_frozen { &self.frozen_seats } else { &self.seats };
            let accepted = async {
                let seat = seats.clone().acquire_owned().await;
                (acceptor.accept().await, seat)
            };
            let (peer, seat) = tokio::select! {
                accepted = accepted => accepted,
                () = sleep(TICK) => continue,
            };
            match (peer, seat) {
                (Ok(peer), Ok(seat)) => self.admit(peer, seat),
                (Err(error), _) if is_the_clients(&error) => {}
                (Err(error), _) => {
                    tracing::error!(%error, "no connection can be accepted");
                    sleep(ACCEPT_PAUSE).await;
                }
                // The semaphore of seats is never closed while the server lives.
                (_, Err(_)) => return,
            }
        }
    }

    fn admit(&self, peer: Peer, seat: OwnedSemaphorePermit) {
        let (cut, pulse) = (self.cut.clone(), self.pulse.clone());
        // It may have changed while the loop waited for a connection.
        let is_frozen = pulse.is_frozen();
        let (server, runtime) = match is_frozen {
            true => (self.frozen.clone(), Handle::current()),
            false => (self.server.clone(), self.runtime.clone()),
        };
        let serve = async move {
            match peer.open() {
                Ok(connection) => server.serve(connection).await,
                Err(error) => tracing::debug!(%error, "a connection cannot be used"),
            }
        };
        let connection = async move {
            let _seat = seat;
            tokio::select! {
                () = serve => {}
                () = cut.cancelled() => {}
                () = thaw(&pulse), if is_frozen => {}
            }
        };
        self.connections.spawn_on(connection, &runtime);
    }
}

/// Completes when the engine's runtime works again and clients have had time to read that it was
/// frozen.
async fn thaw(pulse: &RuntimePulse) {
    while pulse.is_frozen() {
        sleep(TICK).await;
    }
    sleep(FAREWELL).await;
}

/// Returns whether the error is about one client that left too early.
fn is_the_clients(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}
