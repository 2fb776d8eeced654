//! `playhouse health`: whether a server lives, for the health checks of containers.

#[cfg(unix)]
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use hyper::{Method, Response, StatusCode, body::Incoming};

#[cfg(unix)]
use super::http::send_to_socket;
use super::{
    CliError, engine,
    http::{Http, error_of, headers, whole_text},
};

const EXAMPLES: &str = "\
Examples:
  playhouse health && echo lives
  playhouse health --path /readyz                  Whether it takes new requests
  playhouse health --url https://models.example:8443 --timeout 10
  playhouse health --uds /run/playhouse.sock

Exit code 0 if the server answers with 200, else 1 and the reason on standard error.";

/// Ask whether a server lives
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct HealthArgs {
    /// The server [default: http://127.0.0.1:8000, at PLAYHOUSE_PORT if that is set]
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// The Unix socket of the server, in place of a URL; without TLS
    #[cfg(unix)]
    #[arg(long, value_name = "PATH", conflicts_with = "url")]
    uds: Option<PathBuf>,
    /// The route to ask; /livez fails only if a restart helps
    #[arg(long, value_name = "PATH", default_value = "/livez")]
    path: String,
    /// Seconds until no answer is one
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    timeout: f64,
}

impl HealthArgs {
    fn url(&self) -> String {
        self.url.clone().unwrap_or_else(|| {
            let port = std::env::var("PLAYHOUSE_PORT").ok().filter(|port| !port.is_empty());
            format!("http://127.0.0.1:{}", port.as_deref().unwrap_or("8000"))
        })
    }
}

/// Asks once.
pub(crate) fn run(args: &HealthArgs) -> Result<(), CliError> {
    let timeout = Duration::try_from_secs_f64(args.timeout);
    let timeout = timeout.map_err(|_| CliError::Usage("--timeout: not a time".to_owned()))?;
    if !args.path.starts_with('/') {
        return Err(CliError::Usage("--path begins with /".to_owned()));
    }
    engine::run(async {
        let ask = async {
            let answer = ask(args).await?;
            match answer.status() {
                StatusCode::OK => Ok(()),
                status => {
                    let text = whole_text(answer).await;
                    Err(CliError::Unreachable(format!(
                        "{}: {}",
                        args.path,
                        error_of(status, &text)
                    )))
                }
            }
        };
        let late = |_| CliError::Unreachable(format!("no answer in {} s", args.timeout));
        tokio::time::timeout(timeout, ask).await.map_err(late)?
    })
}

async fn ask(args: &HealthArgs) -> Result<Response<Incoming>, CliError> {
    let headers = headers(&[], None)?;
    #[cfg(unix)]
    if let Some(socket) = &args.uds {
        let answer = send_to_socket(socket, Method::GET, &args.path, headers).await;
        return answer.map_err(CliError::Unreachable);
    }
    let server = Http::new(args.url().trim_end_matches('/'), headers)?;
    server.send(Method::GET, &args.path, String::new()).await.map_err(CliError::Unreachable)
}
