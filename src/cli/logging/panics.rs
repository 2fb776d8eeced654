//! The messages of panics. The standard library would write them on the panicking thread, which
//! would block if standard error is not read.

use std::{
    backtrace::{Backtrace, BacktraceStatus},
    fmt::Write as _,
    io::Write as _,
    panic::{self, PanicHookInfo},
    thread,
};

use super::Stderr;

/// Sends panics through [`Stderr`] from now on.
pub(super) fn tell() {
    panic::set_hook(Box::new(|panic| {
        // If it cannot be written, nothing else can be tried.
        let _ = Stderr.write_all(text(panic, &Backtrace::capture()).as_bytes());
    }));
}

/// Returns the message in the words of the standard library.
fn text(panic: &PanicHookInfo<'_>, backtrace: &Backtrace) -> String {
    let thread = thread::current();
    let name = thread.name().unwrap_or("<unnamed>");
    let mut text = format!("thread '{name}' {panic}\n");
    if backtrace.status() == BacktraceStatus::Captured {
        // Writing to a string does not fail.
        let _ = writeln!(text, "stack backtrace:\n{backtrace}");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn a_panic_is_reported_with_its_thread_place_and_message() {
        const THREAD: &str = "panics on purpose";
        let told = Arc::new(Mutex::new(String::new()));
        let (hook, heard) = (Arc::new(panic::take_hook()), told.clone());
        let others = hook.clone();
        panic::set_hook(Box::new(move |panic| match thread::current().name() {
            Some(THREAD) => *heard.lock().unwrap() = text(panic, &Backtrace::disabled()),
            _ => others(panic),
        }));
        let thread = thread::Builder::new().name(THREAD.to_owned());
        thread.spawn(|| panic!("a message")).unwrap().join().unwrap_err();
        panic::set_hook(Box::new(move |panic| hook(panic)));
        let told = told.lock().unwrap();
        assert!(
            told.starts_with("thread 'panics on purpose' panicked at src/cli/logging/panics.rs")
        );
        assert!(told.ends_with(":\na message\n"), "{told}");
    }
}
