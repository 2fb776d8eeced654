//! Two processes of one server, one after the other. The old one starts the new one
//! ([`super::inherited`] is about its side). Standard input of the new one is the listening socket,
//! and its standard output is a socket for one line of report. The line says that the new one
//! serves, or why not. If it serves, the socket connects the two servers from then on.

use std::{
    env, io,
    os::{fd::OwnedFd, unix::net::UnixStream as Socket},
    process::{Child, Command, Stdio, id},
    time::Duration,
};

use tokio::{
    io::AsyncReadExt,
    net::UnixStream,
    sync::{mpsc, oneshot},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::inherited::{READY, handover};
use crate::{
    cli::CliError,
    config::layer::HANDOVER_VARIABLE,
    server::{AbortOnDrop, Handover, Link, Listener, ServerError, UpgradeOrder},
};

/// Most bytes of a report.
const REPORT_BYTES_MAX: usize = 4096;
/// The id of the process that systemd has started, in the environment of that process.
const SYSTEMD_VARIABLE: &str = "SYSTEMD_EXEC_PID";

/// Starts new processes of the server.
pub(super) struct Upgrader {
    socket: OwnedFd,
    /// Whether a service manager opened it.
    is_activated: bool,
    orders: mpsc::Receiver<UpgradeOrder>,
    taken_over: oneshot::Sender<Link>,
    ending: CancellationToken,
}

impl Upgrader {
    /// Follows the orders of `handover` for the server on `listener`, until the returned value is
    /// dropped. Follows none if the end of this process would end the new one, too.
    pub(super) fn begin(
        listener: &Listener,
        handover: &mut Handover,
    ) -> Result<Option<AbortOnDrop>, CliError> {
        let own = id();
        let is_main = env::var(SYSTEMD_VARIABLE).is_ok_and(|pid| pid == own.to_string());
        if own == 1 || is_main {
            return Ok(None);
        }
        let (sender, orders) = mpsc::channel(1);
        handover.orders = Some(sender);
        let socket = listener.handle().map_err(ServerError::Io)?;
        let (taken_over, receiver) = oneshot::channel();
        handover.taken_over = Some(receiver);
        let ending = handover.ending.clone();
        let is_activated = listener.is_activated();
        let upgrader = Self { socket, is_activated, orders, taken_over, ending };
        Ok(Some(AbortOnDrop(tokio::spawn(upgrader.run()).abort_handle())))
    }

    /// Follows orders until a new process serves.
    async fn run(mut self) {
        while let Some(order) = self.orders.recv().await {
            let started = self.start(order.limit).await;
            if let Err(why) = &started {
                tracing::warn!(why, "no upgrade: this process goes on");
            }
            let (outcome, link) = match started {
                Ok((pid, link)) => (Ok(pid), Some(link)),
                Err(why) => (Err(why), None),
            };
            order.answer(outcome);
            if let Some(link) = link {
                // Without a receiver, the server ends already.
                let _ = self.taken_over.send(link);
                return;
            }
        }
    }

    /// Starts a process, and waits until it serves, for `limit` at most. Returns its id, and the
    /// connection to it.
    async fn start(&self, limit: Duration) -> Result<(u32, Link), String> {
        let started = start(&self.socket, self.is_activated);
        let (mut child, mut report) =
            started.map_err(|error| format!("the program cannot be started: {error}"))?;
        let pid = child.id();
        tracing::info!(pid, "an upgrade begins: a new process loads the model");
        let mut line = Vec::new();
        let read = async {
            tokio::select! {
                read = read_line(&mut report, &mut line) => read,
                () = self.ending.cancelled() => Err(io::Error::other("the server ends")),
            }
        };
        let read = timeout(limit, read).await;
        let line = String::from_utf8_lossy(&line);
        if line == format!("{READY}\n") {
            child.0.take();
            return Ok((pid, report));
        }
        let why = match read {
            Err(_) => format!("it was not ready within {} s", limit.as_secs()),
            Ok(Err(error)) => error.to_string(),
            Ok(Ok(())) => match line.trim() {
                "" => "it ended before it was ready; its log has the reason".to_owned(),
                line => line.to_owned(),
            },
        };
        let ended = tokio::task::spawn_blocking(move || child.end()).await;
        let how = ended.ok().flatten().map_or_else(String::new, |how| format!(" ({how})"));
        Err(format!("the new process does not serve: {why}{how}"))
    }
}

/// Reads up to the end of a line, and nothing after it.
async fn read_line(report: &mut UnixStream, line: &mut Vec<u8>) -> io::Result<()> {
    let mut byte = [0];
    while line.last() != Some(&b'\n') && line.len() < REPORT_BYTES_MAX {
        if report.read(&mut byte).await? == 0 {
            break;
        }
        line.extend(byte);
    }
    Ok(())
}

/// A process that does not serve yet. It is ended on drop.
struct Starting(Option<Child>);

impl Starting {
    fn id(&self) -> u32 {
        self.0.as_ref().map_or(0, Child::id)
    }

    /// Ends it, and returns how it ended.
    fn end(&mut self) -> Option<String> {
        let mut child = self.0.take()?;
        // A process that has ended cannot be killed.
        let _ = child.kill();
        child.wait().ok().map(|status| status.to_string())
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        self.end();
    }
}

/// Starts the program that started this process, with its arguments. The file of the program may
/// be another one by now.
fn start(socket: &OwnedFd, is_activated: bool) -> io::Result<(Starting, UnixStream)> {
    let (own, other) = Socket::pair()?;
    own.set_nonblocking(true)?;
    let mut arguments = env::args_os();
    let program = arguments.next().ok_or(io::ErrorKind::NotFound)?;
    let child = Command::new(program)
        .args(arguments)
        .env(HANDOVER_VARIABLE, handover(is_activated))
        .stdin(Stdio::from(socket.try_clone()?))
        .stdout(Stdio::from(OwnedFd::from(other)))
        .spawn()?;
    Ok((Starting(Some(child)), UnixStream::from_std(own)?))
}
