//! `playhouse upgrade`: a running server goes on as a new process of its program's file.

#[cfg(unix)]
use std::path::PathBuf;
use std::{
    pin::pin,
    time::{Duration, Instant},
};

use clap::Args;
use hyper::{Method, Response, StatusCode, body::Incoming};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;
use tokio::time::timeout;

#[cfg(unix)]
use super::http::send_to_socket;
use super::{
    CliError, engine,
    http::{Http, error_of, headers, whole_text},
    output,
    style::shows_bars,
};

const EXAMPLES: &str = "\
Examples:
  sudo install playhouse-new /usr/local/bin/playhouse && playhouse upgrade
  playhouse upgrade --url https://models.example:8443
  playhouse upgrade --uds /run/playhouse.sock --timeout 120
  PLAYHOUSE_ADMIN_API_KEY=secret playhouse upgrade

The server starts the file from which it was started, with the same arguments, and hands its
listening socket over once the new process has loaded the model. Streams that run end in the old
process. If the new process does not serve, the old one goes on.";

/// How often a command without a terminal reports that it waits.
const PERIOD: Duration = Duration::from_secs(30);
/// How often the bar on a terminal is drawn.
const TICK: Duration = Duration::from_millis(200);
/// Time that a server has to answer when the time of the new process is over.
const GRACE: Duration = Duration::from_secs(30);

/// Let a running server go on as a new process of its program's file
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct UpgradeArgs {
    /// The server; PLAYHOUSE_ADMIN_API_KEY is its operator's key
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8000")]
    url: String,
    /// The Unix socket of the server, in place of a URL; without TLS
    #[cfg(unix)]
    #[arg(long, value_name = "PATH", conflicts_with = "url")]
    uds: Option<PathBuf>,
    /// Seconds until the new process must serve; else it is ended, and the old one goes on
    #[arg(long, value_name = "SECONDS", default_value_t = 1800)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,
}

/// Asks the server, and waits until the new process serves.
pub(crate) fn run(args: &UpgradeArgs) -> Result<(), CliError> {
    engine::run(async {
        output::tell(format_args!(
            "waiting until a new process has loaded the model, for {} s at most",
            args.timeout
        ));
        let answer = timeout(Duration::from_secs(args.timeout) + GRACE, with_progress(ask(args)));
        let late = |_| CliError::Unreachable("no upgrade: the server does not answer".to_owned());
        let answer = answer.await.map_err(late)??;
        let status = answer.status();
        let text = whole_text(answer).await;
        if status != StatusCode::OK {
            let hint = match status {
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                    "; set PLAYHOUSE_ADMIN_API_KEY to an operator's key"
                }
                _ => "",
            };
            let error = error_of(status, &text);
            return Err(CliError::Unreachable(format!("no upgrade: {error}{hint}")));
        }
        let answer: Value = serde_json::from_str(&text).unwrap_or_default();
        output::tell(format_args!("process {} serves", answer["pid"]));
        Ok(())
    })
}

/// Sends the order. Returns the answer.
async fn ask(args: &UpgradeArgs) -> Result<Response<Incoming>, CliError> {
    let key = std::env::var("PLAYHOUSE_ADMIN_API_KEY").ok();
    let (headers, path) = (headers(&[], key)?, format!("/upgrade?timeout={}", args.timeout));
    #[cfg(unix)]
    if let Some(socket) = &args.uds {
        let answer = send_to_socket(socket, Method::POST, &path, headers).await;
        return answer.map_err(CliError::Unreachable);
    }
    let server = Http::new(args.url.trim_end_matches('/'), headers)?;
    server.send(Method::POST, &path, String::new()).await.map_err(CliError::Unreachable)
}

/// Shows how long the command has waited, until `answer` completes.
async fn with_progress<T>(answer: impl Future<Output = T>) -> T {
    let (bar, began) = (ProgressBar::hidden(), Instant::now());
    let bar = if shows_bars() { ProgressBar::new_spinner() } else { bar };
    let style = ProgressStyle::with_template("{spinner} {elapsed}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    bar.enable_steady_tick(TICK);
    let mut answer = pin!(answer);
    loop {
        match timeout(PERIOD, answer.as_mut()).await {
            Ok(answer) => {
                bar.finish_and_clear();
                return answer;
            }
            Err(_) if bar.is_hidden() => {
                output::tell(format_args!("still waiting after {} s", began.elapsed().as_secs()));
            }
            Err(_) => {}
        }
    }
}
