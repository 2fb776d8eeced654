//! A listening socket that another process has opened for this one: a service manager, or the
//! server that this one takes over from.

use std::{
    env, fs, io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream as Socket,
    },
};

use nix::unistd::{dup2_stdin, dup2_stdout};
use tokio::{io::AsyncWriteExt, net::UnixStream, sync::oneshot};

use super::activation;
use crate::{
    cli::CliError,
    config::{ServerSettings, layer::HANDOVER_VARIABLE},
    server::{Listener, ServerError},
};

/// The word after the process's id in [`HANDOVER_VARIABLE`], if a service manager has opened the
/// socket.
const ACTIVATED: &str = "activated";
/// The report of a process that serves.
pub(super) const READY: &str = "ready";

/// A socket of another process.
pub(super) struct Inherited {
    listener: OwnedFd,
    /// Whether a service manager opened it.
    is_activated: bool,
    /// Takes the report to the server that this one takes over from.
    report: Option<Socket>,
    /// The id of that server's process.
    starter: Option<u32>,
}

/// Returns the value of [`HANDOVER_VARIABLE`] for a process that this one starts.
pub(super) fn handover(is_activated: bool) -> String {
    let own = std::process::id();
    if is_activated { format!("{own} {ACTIVATED}") } else { own.to_string() }
}

impl Inherited {
    /// Takes the socket, if there is one.
    ///
    /// # Errors
    /// If it is no socket, or if there are several.
    pub(super) fn take() -> Result<Option<Self>, CliError> {
        if let Some(value) = env::var_os(HANDOVER_VARIABLE) {
            let what = format!("{HANDOVER_VARIABLE} is for processes that another server starts");
            let value = value.to_string_lossy();
            let starter = value.split(' ').next().and_then(|pid| pid.parse().ok());
            let taken = Self::from_server(value.ends_with(ACTIVATED), starter);
            return taken.map(Some).map_err(CliError::io(what));
        }
        let activated = activation::take()?;
        Ok(activated.map(|listener| Self {
            listener,
            is_activated: true,
            report: None,
            starter: None,
        }))
    }

    /// Takes the sockets out of standard input and output.
    fn from_server(is_activated: bool, starter: Option<u32>) -> io::Result<Self> {
        let listener = io::stdin().as_fd().try_clone_to_owned()?;
        let report = Socket::from(io::stdout().as_fd().try_clone_to_owned()?);
        report.peer_addr()?;
        // Without these, the sockets would stay open to the end of the process.
        let null = fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
        dup2_stdin(&null)?;
        dup2_stdout(&null)?;
        Ok(Self { listener, is_activated, report: Some(report), starter })
    }

    /// Returns whether it comes from a server that ends.
    pub(super) fn is_of_server(&self) -> bool {
        self.report.is_some()
    }

    /// Returns the id of that server's process, as far as it is known.
    pub(super) fn starter(&self) -> u32 {
        self.starter.unwrap_or_default()
    }

    /// Returns the listener.
    pub(super) fn listener(&self, server: &ServerSettings) -> Result<Listener, CliError> {
        let socket = self.listener.try_clone().map_err(ServerError::Io)?;
        let listener = Listener::inherited(socket, self.is_activated, server);
        listener.map_err(|error| match self.report {
            Some(_) => CliError::io("cannot take over the socket of the server before")(error),
            None => activation::wrong(error),
        })
    }

    /// Reports the failure of this process before it serves.
    pub(super) fn failed(&self, error: &CliError) {
        let Some(mut report) = self.report.as_ref() else { return };
        let mut causes = vec![error.to_string()];
        let mut next = std::error::Error::source(error);
        while let Some(cause) = next {
            causes.push(cause.to_string());
            next = cause.source();
        }
        let line = causes.join(": ").replace('\n', " ");
        // A process that has gone needs no report.
        let _ = io::Write::write_all(&mut report, format!("{line}\n").as_bytes());
    }

    /// Reports that this process serves, once `listening` says so. Returns the connection to the
    /// other process, if there is one.
    ///
    /// # Errors
    /// The other process has gone meanwhile: its operator has ended the server.
    pub(super) async fn report(
        &self,
        listening: oneshot::Receiver<()>,
    ) -> io::Result<Option<UnixStream>> {
        let Some(report) = &self.report else { return Ok(None) };
        if listening.await.is_err() {
            return Ok(None);
        }
        let report = report.try_clone()?;
        report.set_nonblocking(true)?;
        let mut report = UnixStream::from_std(report)?;
        report.write_all(format!("{READY}\n").as_bytes()).await?;
        Ok(Some(report))
    }
}
