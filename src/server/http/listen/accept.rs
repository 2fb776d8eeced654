//! The accept loop, on a thread and a runtime of its own. It gives connections to the runtime of
//! the engine; while that is frozen, it answers them itself, with probes alone.

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

/// How often the loop shows that it goes round.
const TICK: Duration = Duration::from_millis(250);
/// How long a connection that the loop serves itself outlasts the freeze.
const FAREWELL: Duration = Duration::from_secs(1);
/// How long to wait when the system gives out no more connections.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// What an accept loop works with; cheap to clone.
#[derive(Clone)]
pub(super) struct AcceptContext {
    pub(super) socket: Arc<Socket>,
    /// For connections on the runtime of the engine.
    pub(super) server: ConnectionServer,
    pub(super) runtime: Handle,
    pub(super) seats: Arc<Semaphore>,
    /// For connections on the loop's own runtime.
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
    /// How often it has gone round.
    pub(super) fn turns(&self) -> u64 {
        self.turns.load(Relaxed)
    }

    /// Ends it at its next turn, for another to take its place.
    pub(super) fn retire(&self) {
        self.retired.cancel();
    }
}

impl AcceptContext {
    /// Starts an accept loop.
    ///
    /// # Errors
    /// When the system gives no thread, runtime or handle.
    pub(super) fn start(&self) -> io::Result<AcceptLoop> {
        let (accept_loop, context) = (AcceptLoop::default(), self.clone());
        let (turning, thread_token) = (accept_loop.clone(), self.threads.token());
        // A runtime must not be dropped on a thread of another one, which a refused thread would do.
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
            // The one that asked waits.
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
                // Seats are given out as long as the server lives.
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

/// Completes when the runtime of the engine is at work again, and clients have read that it was not.
async fn thaw(pulse: &RuntimePulse) {
    while pulse.is_frozen() {
        sleep(TICK).await;
    }
    sleep(FAREWELL).await;
}

/// Whether it is about one client that was too quick to leave.
fn is_the_clients(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}
