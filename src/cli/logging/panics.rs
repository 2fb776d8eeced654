//! What a panic tells. The standard library writes it from the thread that panics, which would wait
//! where standard error is not read.

use std::{
    backtrace::{Backtrace, BacktraceStatus},
    fmt::Write as _,
    io::Write as _,
    panic::{self, PanicHookInfo},
    thread,
};

use super::Stderr;

/// Panics are told through [`Stderr`] from now on.
pub(super) fn tell() {
    panic::set_hook(Box::new(|panic| {
        // Where it cannot be written there is nothing left to try.
        let _ = Stderr.write_all(text(panic, &Backtrace::capture()).as_bytes());
    }));
}

/// As the standard library words it.
fn text(panic: &PanicHookInfo<'_>, backtrace: &Backtrace) -> String {
    let thread = thread::current();
    let name = thread.name().unwrap_or("<unnamed>");
    let mut text = format!("thread '{name}' {panic}\n");
    if backtrace.status() == BacktraceStatus::Captured {
        // A string takes everything.
        let _ = writeln!(text, "stack backtrace:\n{backtrace}");
    }
    text
}
