//! One exchange with the hub by `hf-hub`, on a thread of its own: its client has no time limit, so
//! a connection on which nothing arrives is given up from outside.

use std::{
    io,
    sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel},
    thread,
    time::Duration,
};

use hf_hub::api::{
    Progress,
    sync::{Api, ApiError, ApiRepo},
};

/// Longest time in which nothing arrives.
const STALL: Duration = Duration::from_secs(60);
/// Reports that may wait to be read.
const REPORTS: usize = 256;
/// Largest answer about a repository.
const INFO_BYTES_MAX: u64 = 64 << 20;

/// The reason why an exchange failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The hub answered with this status.
    Status(u16),
    /// The connection failed or broke off.
    Network(String),
    /// Nothing arrived for a long time.
    Stalled,
    /// The answer is not that of a hub.
    Protocol(String),
    /// A file could not be written.
    Disk(io::Error),
    /// Another process fetches the file.
    Locked,
}

impl Failure {
    /// Returns whether another try may succeed.
    pub(super) fn is_transient(&self) -> bool {
        matches!(self, Self::Network(_) | Self::Status(408 | 429 | 500..=599))
    }

    /// Returns the reason as text.
    pub(super) fn why(&self) -> String {
        match self {
            Self::Status(status) => format!("the hub answered with status {status}"),
            Self::Network(why) | Self::Protocol(why) => why.clone(),
            Self::Stalled => format!("nothing arrived for {} s", STALL.as_secs()),
            Self::Disk(error) => error.to_string(),
            Self::Locked => "another process fetches it".to_owned(),
        }
    }
}

impl From<ureq::Error> for Failure {
    fn from(error: ureq::Error) -> Self {
        match error {
            ureq::Error::StatusCode(status) => Self::Status(status),
            ureq::Error::BadUri(_) | ureq::Error::Http(_) | ureq::Error::Json(_) => {
                Self::Protocol(error.to_string())
            }
            other => Self::Network(other.to_string()),
        }
    }
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        match error {
            ApiError::RequestError(error) => (*error).into(),
            ApiError::LockAcquisition(_) => Self::Locked,
            ApiError::IoError(error) => match error.kind() {
                io::ErrorKind::StorageFull
                | io::ErrorKind::QuotaExceeded
                | io::ErrorKind::FileTooLarge
                | io::ErrorKind::PermissionDenied
                | io::ErrorKind::ReadOnlyFilesystem
                | io::ErrorKind::NotADirectory
                | io::ErrorKind::IsADirectory
                | io::ErrorKind::NotFound => Self::Disk(error),
                _ => Self::Network(error.to_string()),
            },
            other => Self::Protocol(other.to_string()),
        }
    }
}

/// A report of a transfer.
#[derive(Debug, Clone, Copy)]
pub(super) enum Report {
    /// It begins, perhaps anew.
    Begin,
    /// So many bytes of the file are there, in addition to those reported before.
    Bytes(u64),
}

/// Returns the hub's answer about a repository.
///
/// # Errors
/// [`Failure`].
pub(super) fn info(api: &Api, repo: hf_hub::Repo) -> Result<serde_json::Value, Failure> {
    let repo = api.repo(repo);
    let ask = move |_: SyncSender<Report>| -> Result<_, Failure> {
        let mut answer = repo.info_request().query("blobs", "true").call()?;
        Ok(answer.body_mut().with_config().limit(INFO_BYTES_MAX).read_json()?)
    };
    watched(ask, |_| ())
}

/// Fetches a file into the cache, and continues where an earlier transfer broke off.
///
/// # Errors
/// [`Failure`].
pub(super) fn file(
    repo: ApiRepo,
    path: &str,
    on_report: impl FnMut(Report),
) -> Result<(), Failure> {
    let path = path.to_owned();
    let fetch = move |sender| -> Result<(), Failure> {
        repo.download_with_progress(&path, Reporter(sender))?;
        Ok(())
    };
    watched(fetch, on_report)
}

/// Runs `work` on a thread, and hands its reports to `on_report`. A thread that is given up ends
/// with its connection.
fn watched<T: Send + 'static>(
    work: impl FnOnce(SyncSender<Report>) -> Result<T, Failure> + Send + 'static,
    mut on_report: impl FnMut(Report),
) -> Result<T, Failure> {
    let (sender, reports) = sync_channel(REPORTS);
    let thread = thread::Builder::new().name("playhouse-hub".to_owned());
    let thread = thread.spawn(move || work(sender)).map_err(Failure::Disk)?;
    loop {
        match reports.recv_timeout(STALL) {
            Ok(report) => on_report(report),
            Err(RecvTimeoutError::Timeout) => return Err(Failure::Stalled),
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let panicked = |_| Err(Failure::Protocol("its client panicked at an answer".to_owned()));
    thread.join().unwrap_or_else(panicked)
}

struct Reporter(SyncSender<Report>);

impl Progress for Reporter {
    fn init(&mut self, _: usize, _: &str) {
        // Nothing reads the reports of a thread that was given up.
        let _ = self.0.send(Report::Begin);
    }

    fn update(&mut self, size: usize) {
        let _ = self.0.send(Report::Bytes(size as u64));
    }

    fn finish(&mut self) {}
}
