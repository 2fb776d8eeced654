//! `playhouse upgrade`: a running server goes on as a new process of its program's file.

use clap::Args;
use hyper::{Method, StatusCode};
use serde_json::Value;

use super::{
    CliError, engine,
    http::{Http, error_of, headers, whole_text},
    output,
};

const EXAMPLES: &str = "\
Examples:
  sudo install playhouse-new /usr/local/bin/playhouse && playhouse upgrade
  playhouse upgrade --url https://models.example:8443
  PLAYHOUSE_ADMIN_API_KEY=secret playhouse upgrade

The server starts the file from which it was started, with the same arguments, and hands its
listening socket over once the new process has loaded the model. Streams that run end in the old
process. If the new process does not serve, the old one goes on.";

/// Let a running server go on as a new process of its program's file
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct UpgradeArgs {
    /// The server; PLAYHOUSE_ADMIN_API_KEY is its operator's key
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8000")]
    url: String,
}

/// Asks the server, and waits until the new process serves.
pub(crate) fn run(args: &UpgradeArgs) -> Result<(), CliError> {
    let key = std::env::var("PLAYHOUSE_ADMIN_API_KEY").ok();
    let server = Http::new(args.url.trim_end_matches('/'), headers(&[], key)?)?;
    engine::run(async {
        let answer = server.send(Method::POST, "/upgrade", String::new()).await;
        let answer = answer.map_err(CliError::Unreachable)?;
        let status = answer.status();
        let text = whole_text(answer).await;
        if status != StatusCode::OK {
            return Err(CliError::Unreachable(format!("no upgrade: {}", error_of(status, &text))));
        }
        let answer: Value = serde_json::from_str(&text).unwrap_or_default();
        output::tell(format_args!("process {} serves", answer["pid"]));
        Ok(())
    })
}
