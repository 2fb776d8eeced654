//! A listening socket that a service manager opened before it started the server, as
//! `sd_listen_fds(3)` of systemd describes.

use std::{env, ffi::OsString, fmt::Display, os::fd::OwnedFd, process::id};

use listenfd::ListenFd;

use crate::cli::CliError;

/// The number of sockets. The first one is descriptor 3.
const COUNT_VARIABLE: &str = "LISTEN_FDS";
/// The process that they are for.
const PID_VARIABLE: &str = "LISTEN_PID";

/// Takes the socket, if there is one for this process. Removes the variables, so that no child
/// takes the socket for its own.
///
/// # Errors
/// Wrong usage, if there are several, or if it is no stream socket.
pub(super) fn take() -> Result<Option<OwnedFd>, CliError> {
    let text = |name| env::var_os(name).map(|value: OsString| value.to_string_lossy().into_owned());
    if !is_given(text(COUNT_VARIABLE).as_deref(), text(PID_VARIABLE).as_deref(), id())? {
        return Ok(None);
    }
    let mut sockets = ListenFd::from_env();
    if let Ok(Some(unix)) = sockets.take_unix_listener(0) {
        return Ok(Some(unix.into()));
    }
    match sockets.take_tcp_listener(0) {
        Ok(tcp) => Ok(tcp.map(OwnedFd::from)),
        Err(error) => Err(wrong(error)),
    }
}

/// Returns the error of variables that lead to no socket to listen on.
pub(super) fn wrong(why: impl Display) -> CliError {
    CliError::Usage(format!(
        "{COUNT_VARIABLE}: {why}; expected one listening stream socket, TCP or Unix, as descriptor 3"
    ))
}

/// Returns whether the variables give the process `own` a socket.
fn is_given(count: Option<&str>, pid: Option<&str>, own: u32) -> Result<bool, CliError> {
    let (Some(count), Some(pid)) = (count, pid) else { return Ok(false) };
    let pid: u32 = pid.parse().map_err(|_| {
        CliError::Usage(format!("{PID_VARIABLE}: expected a process id, got {pid:?}"))
    })?;
    if pid != own {
        return Ok(false);
    }
    match count.parse() {
        Ok(0) => Ok(false),
        Ok(1) => Ok(true),
        Ok::<u32, _>(count) => Err(wrong(format_args!("{count} sockets"))),
        Err(_) => Err(wrong(format_args!("{count:?} is no number"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_socket_for_this_process_is_taken() {
        let given = |count, pid| is_given(count, pid, 7).map_err(|error| error.to_string());
        assert_eq!(given(Some("1"), Some("7")), Ok(true));
        for (count, pid) in [
            (None, None),
            (None, Some("7")),
            (Some("1"), None),
            (Some("1"), Some("8")),
            (Some("many"), Some("8")),
            (Some("0"), Some("7")),
        ] {
            assert_eq!(given(count, pid), Ok(false), "{count:?} {pid:?}");
        }
        for (count, pid, expected) in [
            ("2", "7", "2 sockets"),
            ("many", "7", "\"many\" is no number"),
            ("99999999999", "7", "\"99999999999\" is no number"),
            ("1", "me", "expected a process id, got \"me\""),
        ] {
            let error = given(Some(count), Some(pid)).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
