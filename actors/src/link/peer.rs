//! The front's end of a link to one engine process, from its start to its end.

use std::{sync::Arc, time::Duration};

use tokio::{
    task::JoinHandle,
    time::{Instant, Interval, MissedTickBehavior, interval, timeout},
};

use super::{
    frames::{ToEngine, ToFront},
    incoming::{Incoming, LinkError},
    outgoing::Outgoing,
    process::{EngineLauncher, Process, ProcessState},
};
use crate::{
    fault::{Bug, planted},
    logic::{
        recovery::heartbeat::{Heartbeat, Verdict},
        request::ids::Micros,
    },
};

/// Time between two looks at a process.
pub const LOOK_PERIOD: Duration = Duration::from_millis(25);

/// Time that a process has to end after its link was closed.
const END_LIMIT: Duration = Duration::from_secs(2);

/// An engine process and the link to it. A drop kills the process.
#[derive(Debug)]
pub struct Peer {
    incoming: Incoming<ToFront>,
    outgoing: Outgoing<ToEngine>,
    process: Arc<dyn Process>,
    writes: JoinHandle<()>,
    looks: Interval,
    heartbeat: Heartbeat,
    started: Instant,
}

/// A process that loads its model.
#[derive(Debug)]
pub struct Loading(Peer);

/// A process whose model is loaded.
#[derive(Debug)]
pub struct Loaded {
    /// The process.
    pub(crate) peer: Peer,
    /// The facts about the model, in the program's own format.
    pub facts: Vec<u8>,
}

/// The reason why a process did not load its model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The process reported this reason.
    #[error("{0}")]
    Refused(String),
    /// The process ended, was stopped, or gave no sign of life.
    #[error("the engine process {0}")]
    Ended(String),
}

/// News from a process.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one at a time, and most are frames")]
pub(crate) enum News {
    /// It sent a frame.
    Frame(ToFront),
    /// It sent none since the last look.
    Nothing,
}

/// The end of a process.
#[derive(Debug)]
pub(crate) struct End {
    /// In words that follow "the engine process".
    pub(crate) how: String,
    /// Whether a step may be the cause. A signal that stops a process comes from outside, and so
    /// does SIGKILL.
    pub(crate) is_by_step: bool,
}

impl From<End> for LoadError {
    fn from(end: End) -> Self {
        Self::Ended(end.how)
    }
}

impl Loading {
    /// Starts a process and sends it its settings. `silence_max` is the time without a sign of life
    /// after which it is killed. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// [`LoadError::Ended`] if the system starts no process.
    pub fn begin(launcher: &dyn EngineLauncher, silence_max: Duration) -> Result<Self, LoadError> {
        let failed =
            |error: std::io::Error| LoadError::Ended(format!("could not be started: {error}"));
        let launched = launcher.launch().map_err(failed)?;
        let (outgoing, queue) = Outgoing::new();
        let writes = tokio::spawn(async move {
            // The reader finds a broken link too, and knows more about its end.
            let _ = queue.write(launched.writer).await;
        });
        let mut looks = interval(LOOK_PERIOD);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let heartbeat = Heartbeat::new(0, micros(silence_max), micros(LOOK_PERIOD));
        let (incoming, process) = (Incoming::new(launched.reader), launched.process);
        let started = Instant::now();
        let peer = Peer { incoming, outgoing, process, writes, looks, heartbeat, started };
        // A process that is dead by now is noticed by the reader.
        let _ = peer.outgoing.send(&ToEngine::Load(launched.settings));
        Ok(Self(peer))
    }

    /// Waits until the model is loaded. `progress` gets the process's reports, in the program's own
    /// format.
    ///
    /// # Errors
    /// [`LoadError`].
    pub async fn loaded(self, mut progress: impl FnMut(Vec<u8>)) -> Result<Loaded, LoadError> {
        let mut peer = self.0;
        loop {
            match peer.next().await? {
                News::Frame(ToFront::Loading(report)) => progress(report),
                News::Frame(ToFront::Ready(facts)) => return Ok(Loaded { peer, facts }),
                News::Frame(ToFront::Failed(why)) => return Err(LoadError::Refused(why)),
                // Before it has actors, it has nothing else to report.
                News::Frame(_) | News::Nothing => {}
            }
        }
    }
}

impl Peer {
    /// Returns the sending end.
    pub(crate) fn outgoing(&self) -> &Outgoing<ToEngine> {
        &self.outgoing
    }

    /// Returns the process.
    pub(crate) fn process(&self) -> &Arc<dyn Process> {
        &self.process
    }

    /// Waits for news. A caller that stops waiting loses none.
    ///
    /// # Errors
    /// The end of the process. It is killed then.
    pub(crate) async fn next(&mut self) -> Result<News, End> {
        let link_error = tokio::select! {
            biased;
            frame = self.incoming.next() => match frame {
                Ok(frame) => {
                    self.heartbeat.beat();
                    return Ok(News::Frame(frame));
                }
                Err(error) => error,
            },
            _ = self.looks.tick() => {
                let is_stopped = self.process.state() == ProcessState::Stopped;
                let now = micros(self.started.elapsed());
                let (how, is_by_step) = match self.heartbeat.look(now, is_stopped) {
                    Verdict::Alive => return Ok(News::Nothing),
                    Verdict::Stopped => ("was stopped by a signal", false),
                    Verdict::Silent => ("gave no sign of life", true),
                };
                self.process.kill();
                return Err(End { how: how.to_owned(), is_by_step });
            }
        };
        Err(end(&self.process, link_error).await)
    }
}

/// Returns the end of a process whose link is broken. It is killed if it lives.
fn end(process: &Arc<dyn Process>, error: LinkError) -> impl Future<Output = End> + Send + use<> {
    let process = Arc::clone(process);
    async move {
        if matches!(error, LinkError::Closed | LinkError::Io(_))
            && let Ok(exit) = timeout(END_LIMIT, process.ended()).await
        {
            let is_by_step = !exit.is_from_outside || planted(Bug::BlameOutsider);
            return End { how: format!("ended: {exit}"), is_by_step };
        }
        process.kill();
        End { how: format!("was killed: {error}"), is_by_step: true }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.process.kill();
        self.writes.abort();
    }
}

fn micros(time: Duration) -> Micros {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
